"""Soft rows: what stands is planted, what no anchor asks for is held, and both leave the anchors' rows alone."""

import torch

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.holding import HELD, WEIGHT, held, planted
from anchorroute.routesolver.rows import SOFT

from motions import walk


def _standing(frames: int) -> torch.Tensor:
    return walk(2)[:1].expand(frames, -1, -1).clone()


def test_a_standing_body_is_planted() -> None:
    joints = _standing(60)
    joints[:, :, 1] -= joints[:, 10:12, 1].min() - 0.02
    (term,) = planted(joints[None], torch.tensor([60]))
    assert float(term(joints[None]).abs().max()) < 1e-5
    lifted = joints.clone()
    lifted[..., 1] += 0.2
    assert float(term(lifted[None]).abs().max()) > 0.19
    assert set(term.weight.unique().tolist()) <= {0.0, torch.tensor(WEIGHT).item()}


def test_a_body_in_the_air_is_not() -> None:
    joints = _standing(60)
    joints[..., 1] += 2.0
    assert planted(joints[None], torch.tensor([60])) == []


def _observed(joint: str, length: int) -> object:
    return AnchorSet((Anchor(1.5, joint, (0.0, 1.0, 0.0)),)).observed(length)


def test_held_rows_are_the_motions_own_places() -> None:
    joints = walk(80)
    (term,) = held(joints, _observed("head", 80))  # type: ignore[arg-type]
    assert float(term(joints[None]).abs().max()) < 1e-6
    assert (term.group == SOFT).all(), "held rows never count as met or missed"
    moved = joints + torch.tensor([0.1, 0.0, 0.0])
    assert torch.allclose(term(moved[None]).abs().max(), torch.tensor(0.1), atol=1e-5)


def test_an_anchor_frees_its_joint_and_the_pelvis_frees_all() -> None:
    joints = walk(80)
    everything, wrist, pelvis = (
        held(joints, _observed(joint, 80))[0].weight.shape[1] // 3  # type: ignore[arg-type]
        for joint in ("head", "left_wrist", "pelvis")
    )
    assert everything == 8 * len(HELD)
    near = len([frame for frame in range(0, 80, 10) if abs(frame - 30) < 20])
    assert everything - wrist == near
    assert everything - pelvis == near * len(HELD)
