import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.anchors import BODY, PLANAR, ROOT3D, Family
from anchorroute.data import anchor_sampling as sampling
from anchorroute.data.humanml3d import Clip
from anchorroute.errors import AnchorError
from anchorroute.motion import features
from anchorroute.motion.skeleton import REST_OFFSETS
from anchorroute.scaffold import residuals

quick = settings(max_examples=30, deadline=None)
families = st.sampled_from([ROOT3D, PLANAR, BODY])


def motion(length: int = 80, seed: int = 0) -> torch.Tensor:
    """A smooth wander: every joint on its own slow curve."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(length, 22, 3)).cumsum(axis=0)
    kernel = np.hanning(9) / np.hanning(9).sum()
    smooth = np.apply_along_axis(lambda line: np.convolve(line, kernel, mode="same"), 0, steps)
    return torch.tensor(smooth * 0.05, dtype=torch.float32)


@quick
@given(families, st.integers(1, 40), st.integers(10, 60), st.integers(0, 2**31))
def test_evaluation_anchors_are_k_distinct_cells_of_the_motion_itself(
    family: Family, k: int, length: int, seed: int
) -> None:
    joints = motion(length)
    rows = sampling.draw(joints, family, k, np.random.default_rng(seed))
    available = length * (6 if family is BODY else 1)
    assert len(rows) == min(k, available)
    cells = set(zip(rows.frames.tolist(), rows.joints.tolist()))
    assert len(cells) == len(rows)
    assert {joint for _, joint in cells} <= set(sampling.SIX if family is BODY else (0,))
    assert residuals(joints, rows).worst < 1e-6
    assert len(family.select(rows)) == len(rows) or family is BODY
    assert bool((rows.free[:, 1] == (family is PLANAR)).all())


def test_frames_are_uniform_and_ends_are_not_forced() -> None:
    rng = np.random.default_rng(0)
    joints = motion(20)
    counts = np.zeros(20)
    for _ in range(1000):
        counts[sampling.draw(joints, ROOT3D, 4, rng).frames.long().numpy()] += 1
    expected = 1000 * 4 / 20
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected * (1 - 4 / 20))


def test_a_clips_anchors_are_the_same_for_every_method_and_differ_between_repeats() -> None:
    clip = Clip("000001", features.from_joints(motion(81)), ("a person moves",))
    one = sampling.sample_anchors(clip, BODY, 8, sampling.clip_generator(clip.id, 8, 0))
    again = sampling.sample_anchors(clip, BODY, 8, sampling.clip_generator(clip.id, 8, 0))
    other = sampling.sample_anchors(clip, BODY, 8, sampling.clip_generator(clip.id, 8, 1))
    assert torch.equal(one.frames, again.frames) and torch.equal(one.values, again.values)
    assert not torch.equal(one.frames, other.frames)
    assert residuals(features.to_joints(clip.features), one).worst < 1e-6


@quick
@given(families, st.integers(0, 2**31))
def test_training_anchors_never_set_a_cell_twice_and_lie_on_the_motion(family: Family, seed: int) -> None:
    joints = motion(48, seed=1)
    drawn = sampling.training_anchors(joints, family, np.random.default_rng(seed))
    assert family.name in drawn
    cells = [
        (frame, joint) for rows in drawn.values() for frame, joint in zip(rows.frames.tolist(), rows.joints.tolist())
    ]
    assert len(set(cells)) == len(cells) > 0
    assert all(residuals(joints, rows).worst < 1e-6 for rows in drawn.values())


def test_training_shares_are_as_configured() -> None:
    rng = np.random.default_rng(3)
    joints = motion(60)
    drawn = [sampling.training_anchors(joints, BODY, rng) for _ in range(400)]
    mixed = np.mean([len(sample) > 1 for sample in drawn])
    # A mixed sample whose body part was the pelvis alone falls back to the body's.
    assert 0.08 < mixed < 0.2
    alone = [sample["body"] for sample in drawn if len(sample) == 1]
    dense = np.mean([len(rows) > 6 * 2 and set(rows.joints.tolist()) == set(sampling.SIX) for rows in alone])
    assert 0.14 < dense < 0.32
    root = [len(sampling.training_anchors(joints, ROOT3D, rng)["root3d"]) for _ in range(400)]
    assert min(root) == 1 and max(root) == 32
    assert 4 < np.median(root) < 8  # log-uniform: the middle is the square root of 32


@pytest.mark.parametrize(
    ("reading", "amount", "count"), [("ratio", 0.3, 18), ("stride", 30, 2), ("count", 30, 30), ("count", 500, 60)]
)
def test_all_six_readings(reading: str, amount: float, count: int) -> None:
    rows = sampling.all_six(motion(60), np.random.default_rng(0), reading=reading, amount=amount)
    assert len(rows) == 6 * count
    assert all((rows.joints == joint).sum() == count for joint in sampling.SIX)
    with pytest.raises(AnchorError, match="ratio, stride, count"):
        sampling.all_six(motion(60), np.random.default_rng(0), reading="r30")


def test_events_find_the_corner_the_landing_and_the_top() -> None:
    joints = torch.tensor(np.tile(REST_OFFSETS, (80, 1, 1)))
    time = torch.arange(80.0)
    joints[:, 0, 2] = 0.06 * time.clamp(max=40)  # forward, then at frame 40 a corner to the left
    joints[:, 0, 0] = 0.06 * (time - 40).clamp(min=0)
    corner = sampling.events(joints.numpy(), 0)
    assert np.abs(corner - 40).min() <= 2

    joints[:, 10, 2] = 0.15 * time.clamp(max=30)  # the left foot swings until frame 30, then stands
    landing = sampling.events(joints.numpy(), 10)
    assert np.abs(landing - 30).min() <= 3

    joints[:, 20, 1] = 1.0 + 0.5 * torch.sin(time * torch.pi / 50)  # the hand is highest at frame 25
    assert np.abs(sampling.events(joints.numpy(), 20) - 25).min() <= 1
    for joint in (0, 10, 20):
        found = sampling.events(joints.numpy(), joint)
        assert {0, 79} <= set(found.tolist()) and len(found) < 20
