"""`Motion`: what each change must leave alone, and what the value refuses to be."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion import body, features
from anchorroute.motion import motion as motion_module
from anchorroute.motion.canonical import Placement, place
from anchorroute.motion.motion import CONTACT_SPEED, Motion
from anchorroute.motion.skeleton import CONTACT_JOINTS, MIRROR, joint_index

from motions import walk

FRAMES = 50


def anchored(seed: int = 0) -> Motion:
    """A walk with anchors that it misses by known amounts, one of them between frames and one with a free height."""
    motion = Motion.from_joints(walk(FRAMES, seed).numpy(), text="a person walks, left hand up", seed=5, model="m")
    hand, root = motion.at(1.0)[20], motion.at(1.72)[0]
    anchors = (
        {
            "at": 1.0,
            "joint": "left_wrist",
            "position": (hand + np.array([0.01, 0.0, -0.02])).tolist(),
            "tolerance": 0.01,
        },
        {"at": 1.72, "joint": "pelvis", "position": [float(root[0]), None, float(root[2]) + 0.03]},
    )
    return dataclasses.replace(motion, anchors=anchors)


def residuals(motion: Motion) -> list[float]:
    out = []
    for anchor in motion.anchors:
        own = motion.at(anchor["at"])[joint_index(anchor["joint"])]
        out.append(math.dist(*zip(*[(a, b) for a, b in zip(own, anchor["position"]) if b is not None])))
    return out


def test_joints_are_the_fixed_bone_body_of_the_joints_given() -> None:
    joints = walk(FRAMES) + 0.02 * torch.randn(FRAMES, 22, 3, generator=torch.Generator().manual_seed(1))
    motion = Motion.from_joints(joints.numpy())
    np.testing.assert_allclose(motion.joints, body.fixed_bones(joints).numpy(), atol=1e-5)


def test_from_features_is_from_the_joints_that_they_recover() -> None:
    values = features.from_joints(walk(FRAMES))
    motion = Motion.from_features(values.numpy(), text="t")
    np.testing.assert_allclose(motion.joints, body.fixed_bones(features.to_joints(values)).numpy(), atol=1e-5)
    assert motion.text == "t" and motion.fps == 20.0 and motion.seconds == pytest.approx((FRAMES - 1) / 20)


def test_long_motions_are_posed_in_blocks_that_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    joints = walk(400, 3).numpy()
    whole = Motion.from_joints(joints)
    monkeypatch.setattr(motion_module, "_BLOCK", 90)
    parts = Motion.from_joints(joints)
    np.testing.assert_allclose(parts.rotations, whole.rotations, atol=1e-6)
    np.testing.assert_allclose(parts.joints, whole.joints, atol=1e-6)


def test_a_motion_cannot_be_changed_in_place() -> None:
    motion = anchored()
    for array in (motion.root, motion.rotations, motion.joints, motion.contacts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        motion.fps = 30.0  # type: ignore[misc]


def test_the_callers_arrays_stay_the_callers() -> None:
    root, turns = np.zeros((3, 3)), np.tile([1.0, 0, 0, 0], (3, 22, 1))
    motion = Motion(root=root, rotations=turns)
    root += 1
    assert not motion.root.any() and root.flags.writeable


def test_contacts_are_speeds_below_the_rule_at_any_rate() -> None:
    motion = anchored().resample(60.0)
    feet = motion.joints[:, CONTACT_JOINTS]
    slow = np.linalg.norm(np.diff(feet, axis=0), axis=-1) * 60.0 < CONTACT_SPEED
    fresh = Motion(root=motion.root, rotations=motion.rotations, fps=60.0)
    np.testing.assert_array_equal(fresh.contacts[:-1], slow)
    np.testing.assert_array_equal(fresh.contacts[-1], slow[-1])
    assert slow.any() and not slow.all()


@pytest.mark.parametrize("factor", [2, 3, 6])
def test_resampling_to_a_multiple_keeps_every_old_frame_and_comes_back(factor: int) -> None:
    motion = anchored()
    dense = motion.resample(20.0 * factor)
    assert dense.frames == (FRAMES - 1) * factor + 1
    np.testing.assert_allclose(dense.joints[::factor], motion.joints, atol=2e-6)
    assert dense.anchors == motion.anchors
    np.testing.assert_allclose(dense.resample(20.0).joints, motion.joints, atol=4e-6)


@given(rate=st.floats(5.0, 150.0))
@settings(max_examples=25, deadline=None)
def test_resampled_frames_stand_at_their_time(rate: float) -> None:
    """Between frames the pelvis moves on straight lines, so it must lie where `at` says for each new frame's time."""
    motion = anchored()
    other = motion.resample(rate)
    assert (other.frames - 1) / rate <= (motion.frames - 1) / motion.fps + 1e-6 < other.frames / rate + 1e-5
    for frame in (0, other.frames // 2, other.frames - 1):
        np.testing.assert_allclose(other.root[frame], motion.at(frame / rate)[0], atol=1e-5)


def test_halfway_between_two_frames_is_half_the_turn() -> None:
    """Slerp: a constant turning speed stays constant."""
    turns = np.tile([1.0, 0, 0, 0], (2, 22, 1))
    turns[1, 0] = [math.cos(0.5), 0, math.sin(0.5), 0]
    middle = Motion(root=np.zeros((2, 3)), rotations=turns, fps=10.0).resample(40.0)
    np.testing.assert_allclose(middle.rotations[:, 0, 2], np.sin(np.linspace(0, 0.5, 5)), atol=1e-6)


def test_trimming_moves_anchors_with_the_moments_they_belong_to() -> None:
    motion = anchored()
    part = motion.trim(0.5, 1.9)
    assert part.frames == 28 and [a["at"] for a in part.anchors] == pytest.approx([0.5, 1.22])
    np.testing.assert_array_equal(part.joints, motion.joints[10:38])
    np.testing.assert_allclose(residuals(part), residuals(motion), atol=1e-6)
    assert len(motion.trim(1.1).anchors) == 1
    assert motion.trim(0.0, motion.seconds) == motion


def test_trimming_to_nothing_is_refused() -> None:
    with pytest.raises(FormatError, match="two or more"):
        anchored().trim(1.0, 1.05)


def test_mirroring_twice_is_nothing_and_once_is_the_mirror_image() -> None:
    motion = anchored()
    image = motion.mirror()
    assert image.mirror() == motion
    assert image.text == "a person walks, right hand up" and image.anchors[0]["joint"] == "right_wrist"
    np.testing.assert_array_equal(image.contacts, motion.contacts[:, [2, 3, 0, 1]])
    flipped = motion.joints[:, list(MIRROR)] * [-1.0, 1.0, 1.0]
    assert np.linalg.norm(image.joints - flipped, axis=-1).max() < 0.025
    np.testing.assert_array_equal(image.joints[:, 0], flipped[:, 0])


@given(yaw=st.floats(-4, 4), x=st.floats(-5, 5), z=st.floats(-5, 5))
@settings(max_examples=20, deadline=None)
def test_placing_moves_the_body_and_its_anchors_rigidly(yaw: float, x: float, z: float) -> None:
    motion = anchored()
    moved = motion.place(Placement(yaw, (x, z)))
    wanted = place(torch.from_numpy(motion.joints.astype(np.float64)), Placement(yaw, (x, z)))
    np.testing.assert_allclose(moved.joints, wanted.numpy(), atol=1e-5)
    np.testing.assert_allclose(residuals(moved), residuals(motion), atol=1e-5)
    assert moved.anchors[1]["position"][1] is None


def test_a_line_along_x_cannot_be_turned() -> None:
    motion = dataclasses.replace(anchored(), anchors=({"at": 0, "joint": "pelvis", "position": [None, 1.0, 0.0]},))
    assert motion.place(Placement(0.0, (1.0, 2.0))).anchors[0]["position"] == [None, 1.0, 2.0]
    with pytest.raises(AnchorError, match="free both"):
        motion.place(Placement(0.5, (0.0, 0.0)))


def test_on_the_spot_the_pelvis_stays_and_anchors_stay_as_far_off() -> None:
    motion = anchored()
    still = motion.in_place()
    np.testing.assert_allclose(still.root[:, [0, 2]], np.tile(motion.root[0, [0, 2]], (FRAMES, 1)), atol=1e-6)
    np.testing.assert_array_equal(still.root[:, 1], motion.root[:, 1])
    np.testing.assert_allclose(residuals(still), residuals(motion), atol=1e-5)
    step = motion.root[-1] - motion.root[0]
    assert still.provenance["travel"] == pytest.approx([step[0], step[2]])
    assert still.on_spot and still.in_place() is still


def test_time_outside_of_the_clip_is_its_nearest_end() -> None:
    motion = anchored()
    np.testing.assert_array_equal(motion.at(-1.0), motion.joints[0])
    np.testing.assert_allclose(motion.at(99.0), motion.joints[-1], atol=1e-7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"root": np.zeros((FRAMES, 2))}, "root have the shape"),
        ({"root": np.zeros((FRAMES - 1, 3))}, "one of each"),
        ({"root": np.full((FRAMES, 3), np.nan)}, "not finite, first in frame 0"),
        ({"rotations": np.zeros((FRAMES, 22, 4))}, "unit quaternions"),
        ({"fps": 0.0}, "above 0"),
        ({"fps": float("nan")}, "above 0"),
        ({"anchors": ({"at": float("inf")},)}, "plain JSON"),
        ({"provenance": {"path": Path("x")}}, "plain JSON"),
        ({"contacts": np.ones((3, 4))}, "contacts have the shape"),
    ],
)
def test_what_a_motion_refuses_to_be(change: dict, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        dataclasses.replace(anchored(), **change)


def test_one_frame_is_no_motion() -> None:
    with pytest.raises(FormatError, match="two frames"):
        Motion.from_joints(walk(5).numpy()[:1])


def test_an_unknown_ending_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"\.bvh.*\.glb.*\.npz.*\.html"):
        anchored().save(tmp_path / "walk.fbx")
    with pytest.raises(FormatError, match="does not exist"):
        anchored().save(tmp_path / "no" / "walk.npz")


@pytest.mark.parametrize("ending", ["bvh", "glb", "npz", "html"])
def test_every_format_dispatches_and_reads_back(ending: str, tmp_path: Path) -> None:
    motion = anchored()
    written = motion.save(tmp_path / f"walk.{ending}")
    found = Motion.load(written)
    assert np.linalg.norm(found.joints - motion.joints, axis=-1).max() < 1e-3
    assert found == motion or ending == "bvh"
    assert [path.name for path in tmp_path.iterdir()] == [f"walk.{ending}"]
