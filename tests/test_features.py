from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute.motion import features
from anchorroute.motion.canonical import Placement, canonicalise, place, unplace
from anchorroute.motion.skeleton import MIRROR

from motions import walk

S = features.SLICES


def sample(shared: Path) -> tuple[torch.Tensor, torch.Tensor]:
    folder = shared / "data" / "humanml3d-sample"
    return (torch.from_numpy(np.load(folder / f"012314.{kind}.npy")) for kind in ("features", "joints"))  # type: ignore[return-value]


def test_slices_tile_the_row() -> None:
    ends = [0]
    for part in S:
        assert part.start == ends[-1]
        ends.append(part.stop)
    assert ends[-1] == features.DIM


def test_recovery_agrees_with_the_published_clip(shared: Path) -> None:
    stored, joints = sample(shared)
    assert (features.to_joints(stored) - joints).abs().max() < 1e-5


def test_features_agree_with_the_published_clip(shared: Path) -> None:
    stored, joints = sample(shared)
    difference = (features.from_joints(joints) - stored[: len(joints) - 1]).abs()
    assert difference[:85].max() < 1e-4
    assert difference.max() < 2e-2


def test_there_and_back_keeps_the_joints() -> None:
    joints = walk(120)
    back = features.to_joints(features.from_joints(joints))
    # The first frame's heading is +Z by definition, the smoothed one is not: undo that one turn.
    assert (canonicalise(back)[0] - canonicalise(joints[:-1])[0]).abs().max() < 2e-3


def test_a_full_turn_keeps_its_sign() -> None:
    """A body that turns through -Z: the original flips one frame's yaw, which bends the path after it."""
    joints = walk(160, turn=1.2)
    yaw = features.from_joints(joints)[:, 0]
    assert (yaw[2:].sign() == yaw[2].sign()).all()


def test_yaw_is_half_the_turn() -> None:
    """HumanML3D stores the sine's argument of a quaternion, half of the angle."""
    joints = walk(200, turn=0.5)
    middle = features.from_joints(joints)[90:110, 0]
    assert torch.allclose(middle.abs(), torch.full_like(middle, 0.5 * 0.5 / 20), atol=5e-4)


def test_hips_count_against_shoulders_in_the_heading() -> None:
    """The heading subtracts the hips from the shoulders; only because shoulders are wider does it face forward."""
    joints = walk(60)
    wide_hips = joints.clone()
    wide_hips[:, [1, 2]] += 20.0 * (joints[:, [1, 2]] - joints[:, [2, 1]])
    apart = (features.heading(joints) - features.heading(wide_hips))[1:]
    assert apart.cos().median() < -0.8


def test_contact_ignores_height() -> None:
    joints = walk(30)
    still_in_the_air = joints[:1].repeat(10, 1, 1) + torch.tensor([0.0, 3.0, 0.0])
    assert features.contacts(still_in_the_air).all()
    moving = still_in_the_air.clone()
    moving[:, 10, 0] += 0.05 * torch.arange(10)
    assert not features.contacts(moving)[:, 1].any()


def test_batches_and_gradients() -> None:
    joints = torch.stack((walk(60, 1), walk(60, 2)))
    rows = features.from_joints(joints)
    assert rows.shape == (2, 59, 263)
    assert torch.allclose(rows[1], features.from_joints(joints[1]), atol=1e-6)
    rows = rows.clone().requires_grad_()
    features.to_joints(rows).square().sum().backward()
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()
    assert (rows.grad[..., 67:] == 0).all() and rows.grad[..., :67].abs().sum() > 0


def test_first_frame_root_is_a_constant_of_the_representation() -> None:
    rows = features.from_joints(walk(40)) + 0.1 * torch.randn(39, 263, generator=torch.Generator().manual_seed(0))
    root = features.to_joints(rows)[0, 0]
    assert root[0] == 0 and root[2] == 0


@pytest.mark.parametrize("yaw", [-3.0, -0.5, 0.0, 1.0, 3.1])
def test_canonicalise_undoes_a_placement(yaw: float) -> None:
    joints = walk(50)
    placed = place(joints, Placement(yaw, (4.0, -7.0)))
    back, placement, floor = canonicalise(placed)
    assert (back - joints).abs().max() < 1e-5
    assert placement.yaw == pytest.approx(yaw, abs=1e-5) and placement.xz == pytest.approx((4.0, -7.0), abs=1e-5)
    assert floor == pytest.approx(0.0, abs=1e-5)
    assert (unplace(placed, placement) - joints).abs().max() < 1e-5


def test_mirrored_motion_has_mirrored_features() -> None:
    joints = walk(70)
    mirrored = joints[:, list(MIRROR)] * torch.tensor([-1.0, 1.0, 1.0])
    left, right = features.from_joints(joints), features.from_joints(mirrored)
    assert torch.allclose(left[:, 0], -right[:, 0], atol=1e-5)
    assert torch.allclose(left[:, 1], -right[:, 1], atol=1e-5)
    assert torch.allclose(left[:, 2:4], right[:, 2:4], atol=1e-5)


def test_two_frames_are_enough() -> None:
    assert features.from_joints(walk(40)[:2]).shape == (1, 263)
