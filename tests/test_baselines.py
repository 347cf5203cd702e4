"""The simple ways to meet anchors: what they promise exactly, and what they cannot do."""

import pytest
import torch

from anchorroute.evaluate import baselines
from anchorroute.evaluate.metrics import bone_length_error, control_distances
from anchorroute.motion.skeleton import PARENTS, REST_OFFSETS
from anchorroute.observation import Observed


def walk(frames: int = 60) -> torch.Tensor:
    """The rest pose with slightly bent limbs, sliding forward."""
    pose = torch.zeros(22, 3, dtype=torch.float64)
    for joint, parent in enumerate(PARENTS):
        if parent >= 0:
            pose[joint] = pose[parent] + torch.as_tensor(REST_OFFSETS[joint], dtype=torch.float64)
    pose[[4, 5], 2] += 0.05
    pose[20, 0] -= 0.2
    pose[21, 0] += 0.2
    pose[[18, 19], 2] -= 0.2
    clip = pose.repeat(frames, 1, 1)
    clip[..., 1] -= float(pose[:, 1].min())
    clip[..., 2] += torch.arange(frames, dtype=torch.float64)[:, None] * 0.05
    return clip


def observed(*rows: tuple[float, int, tuple[float, float, float]], free_y: bool = False) -> Observed:
    frames, joints, values = zip(*rows, strict=True)
    free = torch.zeros(len(rows), 3, dtype=torch.bool)
    free[:, 1] = free_y
    return Observed(
        torch.tensor(frames), torch.tensor(joints), torch.tensor(values).double(), free, torch.full((len(rows),), 0.005)
    )


def test_a_warped_path_goes_through_its_anchors_with_rigid_bodies() -> None:
    clip = walk()
    anchors = observed((10.0, 0, (0.5, 0.0, 0.0)), (50.0, 0, (-1.0, 0.0, 4.0)), free_y=True)
    out = baselines.warp(clip, anchors)
    assert control_distances(out, anchors).max() < 1e-9
    shift = out - clip
    assert torch.allclose(shift, shift[:, :1].expand_as(shift), atol=1e-9), "every joint moves with the root"
    assert shift[..., 1].abs().max() == 0


def test_a_warped_hand_reaches_and_its_bones_keep_their_length() -> None:
    clip = walk()
    target = clip[30, 20] + torch.tensor([-0.1, -0.25, 0.1], dtype=torch.float64)
    anchors = observed((30.0, 20, tuple(target.tolist())))
    out = baselines.warp(clip, anchors)
    assert control_distances(out, anchors).max() < 1e-6
    assert torch.allclose(bone_length_error(out), bone_length_error(clip), atol=1e-9)
    far = observed((30.0, 20, (0.0, 5.0, 0.0)))
    assert control_distances(baselines.warp(clip, far), far).max() > 1, "an arm does not stretch"


def test_two_bones_out_of_reach_point_at_the_target() -> None:
    top = torch.zeros(1, 3, dtype=torch.float64)
    middle, tip = torch.tensor([[0.0, -0.3, 0.1]]).double(), torch.tensor([[0.0, -0.6, 0.0]]).double()
    target = torch.tensor([[2.0, 0.0, 0.0]]).double()
    knee, hand = baselines.two_bones(top, middle, tip, target)
    assert torch.allclose(hand / hand.norm(), target / target.norm(), atol=1e-6)
    assert float(hand.norm()) == pytest.approx(2 * (0.3**2 + 0.1**2) ** 0.5, rel=1e-3)
    assert float((hand - knee).norm()) == pytest.approx((0.3**2 + 0.1**2) ** 0.5, rel=1e-3)


def test_projection_is_exact_and_the_smallest_in_its_norm() -> None:
    clip = walk(24)
    anchors = observed((5.0, 20, (0.9, 1.5, 0.6)), (5.0, 0, (0.1, 0.9, 0.4)), (20.0, 11, (0.0, 0.2, 1.0)))
    out = baselines.project(clip, anchors)
    assert control_distances(out, anchors).max() < 1e-9
    # the optimum of a quadratic under linear equalities: R (x - x0) vanishes outside the anchored cells
    space = baselines._laplacian([(j, p) for j, p in enumerate(PARENTS) if p >= 0], 22)
    time = baselines._laplacian([(t, t + 1) for t in range(23)], 24)
    change = out - clip
    force = change + 10 * torch.einsum("ij,tjc->tic", space, change) + 100 * torch.einsum("st,tjc->sjc", time, change)
    for frame, joint in ((5, 20), (5, 0), (20, 11)):
        assert force[frame, joint].abs().max() > 1e-3
        force[frame, joint] = 0
    assert force.abs().max() < 1e-8


def test_projection_bends_bones_and_free_coordinates_stay() -> None:
    clip = walk()
    anchors = observed((30.0, 20, (3.0, 0.0, 1.5)), free_y=True)
    out = baselines.project(clip, anchors)
    assert torch.equal(out[..., 1], clip[..., 1])
    assert float(bone_length_error(out)) > float(bone_length_error(clip)) + 1e-3


def test_features_of_a_warped_clip_have_a_row_a_frame() -> None:
    assert baselines.to_features(walk(40).float()).shape == (40, 263)
