import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.anchors import (
    BODY,
    FAMILIES,
    PLANAR,
    ROOT3D,
    Anchor,
    AnchorSet,
    Placement,
    canonicalise,
    family,
    split,
)
from anchorroute.errors import AnchorError
from anchorroute.motion.canonical import place
from anchorroute.motion.skeleton import JOINTS
from anchorroute.scaffold import residuals

quick = settings(max_examples=60, deadline=None)
metres = st.floats(-50, 50, width=32)
yaws = st.floats(-3.1, 3.1)
LENGTH = 60


@st.composite
def anchor_sets(draw) -> AnchorSet:
    """Anchors at distinct cells, with free coordinates, headings, and perhaps a start."""
    cells = draw(st.lists(st.tuples(st.integers(1, LENGTH - 1), st.sampled_from(JOINTS)), max_size=8, unique=True))
    anchors = []
    for frame, joint in cells:
        position = draw(st.tuples(*[st.none() | metres] * 3))
        heading = draw(st.none() | yaws) if joint == "pelvis" else None
        if heading is None and position == (None, None, None):
            position = (0.0, None, None)
        anchors.append(Anchor(frame / 20, joint, position, heading))
    start = draw(st.none() | st.builds(Placement, yaws, st.tuples(metres, metres)))
    return AnchorSet(tuple(anchors), start)


def distance(motion: torch.Tensor, anchor: Anchor) -> float:
    """Straight from the definition, in the world."""
    point = motion[round(anchor.at * 20), JOINTS.index(anchor.joint)]
    gaps = [float(here) - wanted for here, wanted in zip(point, anchor.position) if wanted is not None]
    return math.hypot(*gaps)


@quick
@given(anchor_sets(), st.integers(0, 1000))
def test_residuals_in_the_canonical_frame_are_the_residuals_in_the_world(anchors: AnchorSet, seed: int) -> None:
    canonical, placement = canonicalise(anchors)
    motion = torch.randn(LENGTH, 22, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    world = place(motion, placement)
    found = residuals(motion, canonical.observed(LENGTH))
    expected = [distance(world, anchor) for anchor in anchors.anchors]
    assert found.distance.tolist() == pytest.approx(expected, abs=1e-4, rel=1e-5)


@quick
@given(anchor_sets())
def test_canonicalise_has_an_inverse_and_is_idempotent(anchors: AnchorSet) -> None:
    canonical, placement = canonicalise(anchors)
    again, none = canonicalise(canonical)
    assert none == Placement() and again.anchors == canonical.anchors
    back = canonical.moved(placement)
    assert back.start == placement
    for before, after in zip(anchors.anchors, back.anchors, strict=True):
        assert before.free == after.free and after.axes == pytest.approx(0, abs=1e-9)
        for one, other in zip(before.position, after.position):
            assert one is None or other == pytest.approx(one, abs=1e-9)
        assert before.heading is None or math.cos(after.heading - before.heading) == pytest.approx(1)


@quick
@given(anchor_sets())
def test_every_row_that_sets_a_coordinate_belongs_to_one_family(anchors: AnchorSet) -> None:
    rows = anchors.observed(LENGTH)
    parts = [member.select(rows) for member in FAMILIES.values()]
    assert sum(map(len, parts)) == len(rows.positional)
    assert set(split(rows)) == {name for name, part in zip(FAMILIES, parts) if len(part)}


def test_from_user_to_family() -> None:
    rows = AnchorSet.from_points(
        [
            (1, 0, (1, 1, 1)),
            (2, 0, (1, None, 1)),
            (3, 0, (1, None, None)),
            (4, "head", (None, 1.6, None)),
            (5, 20, (1, 1, 1)),
        ]
    ).observed(LENGTH)
    frames = {name: part.frames.tolist() for name, part in split(rows).items()}
    assert frames == {"root3d": [1], "planar": [2], "body": [3, 4, 5]}


def test_operators_observe_their_coordinates() -> None:
    motion = torch.arange(2 * LENGTH * 66.0).reshape(2, LENGTH, 22, 3)
    assert torch.equal(ROOT3D.observe(motion)[:, :, 0], motion[:, :, 0])
    assert torch.equal(PLANAR.observe(motion)[:, :, 0], motion[:, :, 0, [0, 2]])
    assert torch.equal(BODY.observe(motion), motion)
    assert family("planar") is PLANAR
    with pytest.raises(AnchorError, match="root3d, planar, body"):
        family("hands")


# Placement


def test_start_wins() -> None:
    start = Placement(1.0, (10.0, 20.0))
    anchors = AnchorSet((Anchor(2.0, "pelvis", (100.0, 0.9, 100.0)),), start)
    assert canonicalise(anchors)[1] == start


def test_a_root_anchor_at_frame_0_is_where_the_motion_starts() -> None:
    anchors = AnchorSet((Anchor(0.0, "pelvis", (-40.0, 0.92, 70.0), heading=2.0),))
    canonical, placement = canonicalise(anchors)
    assert placement == Placement(2.0, (-40.0, 70.0))
    assert canonical.anchors[0].position == pytest.approx((0, 0.92, 0), abs=1e-12)
    assert canonical.anchors[0].heading == pytest.approx(0)


@pytest.mark.parametrize(("x", "z", "yaw"), [(3, 0, math.pi / 2), (-3, 0, -math.pi / 2), (0, -3, math.pi), (0, 3, 0)])
def test_a_path_from_frame_0_is_walked_facing_it(x: float, z: float, yaw: float) -> None:
    """A path that begins sideways or backwards, without a word about the heading, begins straight ahead."""
    anchors = AnchorSet.from_points([(0, 0, (5, 0.9, 5)), (8, 0, (5.01, 0.9, 5)), (40, 0, (5 + x, 0.9, 5 + z))])
    canonical, placement = canonicalise(anchors)
    assert placement.xz == (5, 5) and placement.yaw == pytest.approx(yaw, abs=1e-6)
    assert canonical.anchors[-1].position == pytest.approx((0, 0.9, 3), abs=1e-9)


@pytest.mark.parametrize("position", [(0, 0.9, -3), (-2, 0.9, 0), (0.5, None, 2)])
def test_what_can_be_reached_is_reached_from_the_origin(position) -> None:
    assert canonicalise(AnchorSet((Anchor(2.0, "pelvis", position),)))[1] == Placement()


def test_far_away_anchors_move_the_start_to_where_they_lead() -> None:
    far = AnchorSet.from_points([(20, 0, (500, 0.9, -300)), (60, 0, (502, 0.9, -300))])
    canonical, placement = canonicalise(far)
    assert placement.yaw == pytest.approx(math.pi / 2)
    assert canonical.anchors[0].position == pytest.approx((0, 0.9, 1.0))  # a metre a second, for one second
    assert canonical.anchors[1].position == pytest.approx((0, 0.9, 3.0))
    alone, placement = canonicalise(AnchorSet((Anchor(1.0, "left_wrist", (80.0, 1.2, 0.0)),)))
    assert placement == Placement(0.0, (80.0, 0.0)) and alone.anchors[0].position == (0, 1.2, 0)


def test_a_heading_alone_at_frame_0_turns_the_start_and_leaves_it_where_it_was() -> None:
    heading = Anchor(0.0, "pelvis", (None, 0.9, None), heading=1.0)
    assert canonicalise(AnchorSet((heading,)))[1] == Placement(1.0, (0.0, 0.0))
    far = Anchor(1.0, "pelvis", (80.0, 0.9, 0.0))
    assert canonicalise(AnchorSet((heading, far)))[1] == Placement(1.0, (80.0, 0.0))


def test_a_start_and_an_anchor_at_frame_0_may_agree_but_not_differ() -> None:
    anchor = Anchor(0.0, "pelvis", (1.0, 0.9, None), heading=0.5)
    assert canonicalise(AnchorSet((anchor,), Placement(0.5, (1.0, 7.0))))[1].xz == (1.0, 7.0)
    with pytest.raises(AnchorError, match="contradict each other in x"):
        AnchorSet((anchor,), Placement(0.5, (1.1, 7.0)))
    with pytest.raises(AnchorError, match=r"faces 0\.5 rad"):
        AnchorSet((anchor,), Placement(0.6, (1.0, 7.0)))


# Sets


def test_agreeing_duplicates_are_merged_and_rows_stay_in_step() -> None:
    anchors = AnchorSet(
        (
            Anchor(1.0, "head", (None, 1.6, None), tolerance=0.01),
            Anchor(2.0, "head", (0.0, 1.5, 0.0)),
            Anchor(1.0, "head", (0.2, 1.6, None), tolerance=0.002),
        )
    )
    assert anchors.anchors == (
        Anchor(1.0, "head", (0.2, 1.6, None), tolerance=0.002),
        Anchor(2.0, "head", (0.0, 1.5, 0.0)),
    )
    assert anchors.observed(LENGTH).frames.tolist() == [20, 40]


def test_two_targets_for_one_joint_at_one_frame_name_both() -> None:
    with pytest.raises(AnchorError) as error:
        AnchorSet.from_points([(10, 20, (0, 1, 0)), (30, 0, (0, 1, 0)), (10, "left_wrist", (0, 1.5, 0))])
    message = str(error.value)
    assert "anchors[0]" in message and "anchors[2]" in message and "set y to 1 and 1.5" in message


def test_no_anchor_one_anchor_and_five_hundred() -> None:
    assert len(AnchorSet().observed(LENGTH)) == 0 and canonicalise(AnchorSet())[1] == Placement()
    assert AnchorSet().observed(LENGTH).values.shape == (0, 3)
    rng = np.random.default_rng(0)
    cells = rng.choice(LENGTH * 22, 500, replace=False)
    many = AnchorSet.from_points([(cell // 22, cell % 22, rng.normal(size=3)) for cell in cells.tolist()])
    rows = canonicalise(many)[0].observed(LENGTH)
    assert len(rows) == 500 and torch.equal(rows.frames, torch.tensor(cells // 22, dtype=torch.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1, "pelvis", (0, 0, 0)), "from 0 on"),
        ((math.nan, "pelvis", (0, 0, 0)), "from 0 on"),
        ((1, "pelvis", (0, math.nan, 0)), "y is nan"),
        ((1, "pelvis", (math.inf, 0, 0)), "x is inf"),
        ((1, "pelvis", (0, 0, 1e6)), "are the units metres"),
        ((1, "pelvis", (0, 0)), "three entries"),
        ((1, "pelvis", (None, None, None)), "nothing is fixed"),
        ((1, "left_rist", (0, 0, 0)), "did you mean 'left_wrist'.*pelvis, left_hip"),
        ((1, "left_hand", (0, 0, 0)), "did you mean 'left_wrist'"),
        ((1, "Root", (0, 0, 0)), "did you mean 'pelvis'"),
        ((1, "head", (0, 0, 0), 1.0), "give it to an anchor of the pelvis"),
        ((1, "pelvis", (0, 0, 0), math.inf), "heading is inf"),
        ((1, "pelvis", (0, 0, 0), None, 0.0), "tolerance must be a positive"),
    ],
)
def test_what_cannot_mean_anything_is_refused(arguments, message: str) -> None:
    with pytest.raises(AnchorError, match=message):
        Anchor(*arguments)


def test_a_time_beyond_the_clip_says_how_long_it_would_have_to_be() -> None:
    anchors = AnchorSet((Anchor(3.0, "pelvis", (0, 0.9, 3)),))
    assert anchors.observed(61).frames.item() == 60
    with pytest.raises(AnchorError, match=r"frame 60 lies beyond the clip.*end at frame 59.*at least 3\.05 s"):
        anchors.observed(60)


def test_times_between_frames_are_kept() -> None:
    rows = AnchorSet((Anchor(1.23, "pelvis", (0, 0.9, 3)),)).observed(LENGTH)
    assert rows.frames.item() == pytest.approx(24.6)
