import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute import scaffold
from anchorroute.anchors import BODY, FAMILIES, PLANAR, ROOT3D, Anchor, AnchorSet, Family, Observed, split
from anchorroute.errors import AnchorError
from anchorroute.motion.canonical import Placement, facing
from anchorroute.motion.rotation import quat_about_y, quat_apply

quick = settings(max_examples=40, deadline=None)
LENGTH = 60
families = st.sampled_from([ROOT3D, PLANAR, BODY])


def observed(frames, joints, values, free=None) -> Observed:
    n = len(frames)
    return Observed(
        torch.tensor(frames, dtype=torch.float32),
        torch.tensor(joints, dtype=torch.long),
        torch.tensor(values, dtype=torch.float32).reshape(n, 3),
        torch.zeros(n, 3, dtype=torch.bool) if free is None else torch.tensor(free),
        torch.full((n,), 0.005),
    )


@st.composite
def anchored(draw, family: Family | None = None) -> tuple[Family, Observed]:
    family = family or draw(families)
    cells = draw(
        st.lists(
            st.tuples(st.integers(0, LENGTH - 1), st.sampled_from(family.joints)), min_size=1, max_size=12, unique=True
        )
    )
    metres = st.floats(-5, 5, width=32)
    values = [draw(st.tuples(metres, metres, metres)) for _ in cells]
    return family, observed([frame for frame, _ in cells], [joint for _, joint in cells], values)


def parts(c: torch.Tensor, family: Family) -> dict[str, torch.Tensor]:
    where = scaffold.layout(family)
    cells = (len(c), family.masks, len(family.coords))
    return {
        "values": c[:, where.values].reshape(cells),
        "prior": c[:, where.prior].reshape(cells),
        "difference": c[:, where.difference].reshape(cells),
        "prior_mask": c[:, where.prior_mask],
        "anchor_mask": c[:, where.anchor_mask],
    }


@quick
@given(anchored())
def test_values_and_prior_are_the_targets_at_their_frames_and_masks_say_where(case) -> None:
    family, rows = case
    c = scaffold.features(rows, family, LENGTH)
    assert c.shape == (LENGTH, family.channels) and c.isfinite().all()
    split_up = parts(c, family)
    expected = torch.zeros(LENGTH, family.masks)
    for frame, joint, value in zip(rows.frames.long(), rows.joints, rows.values):
        column = family.joints.index(int(joint))
        expected[frame, column] = 1
        target = value[list(family.coords)]
        assert torch.equal(split_up["values"][frame, column], target)
        assert torch.equal(split_up["prior"][frame, column], target)
    assert torch.equal(split_up["anchor_mask"], expected)
    assert not split_up["values"][expected == 0].any()


@quick
@given(anchored())
def test_prior_is_defined_from_first_to_last_anchor_and_differences_stay_inside(case) -> None:
    family, rows = case
    split_up = parts(scaffold.features(rows, family, LENGTH), family)
    for column, joint in enumerate(family.joints):
        mine = rows.frames[rows.joints == joint]
        inside = torch.zeros(LENGTH)
        if len(mine):
            inside[int(mine.min()) : int(mine.max()) + 1] = 1
        assert torch.equal(split_up["prior_mask"][:, column], inside)
        assert not split_up["prior"][inside == 0, column].any()
        steps = torch.zeros(LENGTH, len(family.coords))
        steps[1:] = split_up["prior"][1:, column].diff(dim=0, prepend=split_up["prior"][:1, column])
        steps[1:] *= (inside[1:] * inside[:-1])[:, None]
        assert torch.allclose(split_up["difference"][:, column], steps, atol=1e-5)
        assert not split_up["difference"][0].any()


@quick
@given(anchored(), st.randoms(use_true_random=False))
def test_the_order_of_anchors_does_not_matter(case, random) -> None:
    family, rows = case
    order = list(range(len(rows)))
    random.shuffle(order)
    assert torch.equal(scaffold.features(rows, family, LENGTH), scaffold.features(rows[order], family, LENGTH))


@quick
@given(anchored(), st.tuples(*[st.floats(-3, 3, width=32)] * 3))
def test_a_shift_of_all_anchors_shifts_the_prior_and_nothing_else(case, shift) -> None:
    family, rows = case
    moved = Observed(rows.frames, rows.joints, rows.values + torch.tensor(shift), rows.free, rows.tolerance)
    before = parts(scaffold.features(rows, family, LENGTH), family)
    after = parts(scaffold.features(moved, family, LENGTH), family)
    offset = torch.tensor(shift)[list(family.coords)]
    assert torch.allclose(after["prior"], before["prior"] + before["prior_mask"][..., None] * offset, atol=2e-4)
    assert torch.allclose(after["difference"], before["difference"], atol=2e-4)
    assert torch.equal(after["anchor_mask"], before["anchor_mask"])


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9])
def test_a_straight_line_in_gives_a_straight_line_out(count: int) -> None:
    rng = np.random.default_rng(count)
    frames = np.sort(rng.choice(LENGTH, count, replace=False))
    start, velocity = rng.normal(size=3), rng.normal(size=3)
    rows = observed(frames.tolist(), [0] * count, start + frames[:, None] * velocity)
    split_up = parts(scaffold.features(rows, ROOT3D, LENGTH), ROOT3D)
    inside = np.arange(frames[0], frames[-1] + 1)
    line = torch.tensor(start + inside[:, None] * velocity, dtype=torch.float32)
    assert torch.allclose(split_up["prior"][inside, 0], line, atol=1e-3, rtol=1e-5)
    steps = split_up["difference"][inside[1:], 0]
    assert torch.allclose(steps, torch.tensor(velocity, dtype=torch.float32).expand_as(steps), atol=1e-4)


def test_the_spline_is_natural() -> None:
    knots = np.array([0.0, 3.0, 4.0, 9.0, 11.0])
    values = np.array([0.0, 2.0, -1.0, 4.0, 1.0])
    fine = np.linspace(0, 11, 11001)
    curve = scaffold.interpolate(knots, values, fine)
    bend = np.diff(curve, n=2) / (fine[1] - fine[0]) ** 2
    assert abs(bend[0]) < 0.01 and abs(bend[-1]) < 0.01
    assert np.abs(bend).max() > 1
    assert np.allclose(scaffold.interpolate(knots, values, knots), values)


def test_one_anchor_and_no_anchor() -> None:
    one = parts(scaffold.features(observed([7], [0], [[1, 2, 3]]), ROOT3D, LENGTH), ROOT3D)
    assert one["prior_mask"].sum() == 1 and one["anchor_mask"].sum() == 1 and not one["difference"].any()
    none = scaffold.features(observed([], [], []), BODY, LENGTH)
    assert none.shape == (LENGTH, 3 * 66 + 2 * 22) and not none.any()


def test_channels_are_the_papers() -> None:
    assert [family.channels for family in FAMILIES.values()] == [3 * 3 + 2, 3 * 2 + 2, 3 * 66 + 2 * 22]


def test_a_time_between_frames_enters_at_the_nearest_frame_and_the_closest_wins() -> None:
    rows = observed([10.4, 10.1, 20.5], [0, 0, 0], [[1, 1, 1], [2, 2, 2], [3, 3, 3]])
    split_up = parts(scaffold.features(rows, ROOT3D, LENGTH), ROOT3D)
    assert torch.equal(split_up["values"][10, 0], torch.full((3,), 2.0))
    assert torch.nonzero(split_up["anchor_mask"][:, 0]).flatten().tolist() == [10, 21]


def test_a_free_coordinate_is_filled_from_the_anchors_that_set_it() -> None:
    rows = observed(
        [0, 10, 20], [20] * 3, [[0, 1, 0], [5, 0, 5], [10, 3, 10]], [[False] * 3, [False, True, False], [False] * 3]
    )
    column = parts(scaffold.features(rows, BODY, LENGTH), BODY)
    assert torch.allclose(column["values"][10, 20], torch.tensor([5.0, 2.0, 5.0]))
    assert not scaffold.needs_draft(rows, BODY)


def test_a_coordinate_that_no_anchor_sets_comes_from_a_draft_or_is_an_error() -> None:
    rows = observed([10], [20], [[5, 0, 5]], [[False, True, False]])
    assert scaffold.needs_draft(rows, BODY)
    with pytest.raises(AnchorError, match="no anchor sets y of left_wrist"):
        scaffold.features(rows, BODY, LENGTH)
    draft = torch.zeros(LENGTH, 22, 3)
    draft[10, 20] = torch.tensor([7.0, 1.25, 7.0])
    values = parts(scaffold.features(rows, BODY, LENGTH, draft), BODY)["values"]
    assert torch.equal(values[10, 20], torch.tensor([5.0, 1.25, 5.0]))


def test_rows_of_another_family_are_refused() -> None:
    with pytest.raises(AnchorError, match="left_wrist"):
        scaffold.features(observed([3], [20], [[0, 0, 0]]), ROOT3D, LENGTH)


def test_a_batch_is_its_clips_padded_with_zeros() -> None:
    rows = [observed([3, 9], [0, 0], [[1, 2, 3], [4, 5, 6]]), observed([1], [0], [[1, 1, 1]])]
    c = scaffold.batch(rows, PLANAR, [40, 20])
    assert c.shape == (2, 40, 8)
    assert torch.equal(c[1, :20], scaffold.features(rows[1], PLANAR, 20)) and not c[1, 20:].any()


def test_residuals_vanish_on_the_motion_that_the_anchors_were_read_from() -> None:
    motion = torch.randn(LENGTH, 22, 3, generator=torch.Generator().manual_seed(0))
    frames = torch.tensor([0.0, 7.25, 30.0, 59.0])
    joints = torch.tensor([0, 15, 20, 11])
    before = motion[frames.long(), joints]
    after = motion[(frames.long() + 1).clamp(max=LENGTH - 1), joints]
    values = before + (frames - frames.floor())[:, None] * (after - before)
    found = scaffold.residuals(motion, observed(frames.tolist(), joints.tolist(), values.tolist()))
    assert found.worst < 1e-6 and found.met.all()
    assert found.heading.isnan().all()


def test_residuals_are_the_gap_and_carry_gradients_to_both_neighbours() -> None:
    motion = torch.zeros(LENGTH, 22, 3, requires_grad=True)
    found = scaffold.residuals(motion, observed([4.25], [20], [[3, 9, 4]], [[False, True, False]]))
    assert torch.allclose(found.vector, torch.tensor([[-3.0, 0.0, -4.0]]))
    assert found.mean == pytest.approx(5.0)
    found.distance.sum().backward()
    assert torch.allclose(motion.grad[4, 20], 0.75 * torch.tensor([-0.6, 0, -0.8]))
    assert torch.allclose(motion.grad[5, 20], 0.25 * torch.tensor([-0.6, 0, -0.8]))
    assert torch.count_nonzero(motion.grad) == 4


def test_the_heading_residual_is_the_shortest_turn() -> None:
    pose = torch.zeros(22, 3)
    pose[[1, 16], 0], pose[[2, 17], 0] = 0.1, -0.1
    motion = quat_apply(quat_about_y(torch.full((LENGTH, 1), 3.0)), pose.expand(LENGTH, 22, 3))
    assert torch.allclose(facing(motion), torch.full((LENGTH,), 3.0))
    rows = AnchorSet((Anchor(1.0, "pelvis", (None, None, None), heading=-3.0),)).observed(LENGTH)
    turn = scaffold.residuals(motion, rows).heading
    assert torch.allclose(turn, torch.tensor([6.0 - 2 * torch.pi]), atol=1e-5)
    assert len(rows.positional) == 0 and split(rows) == {}


@quick
@given(anchored())
def test_intervals_are_sorted_distinct_and_cover_the_clip(case) -> None:
    _, rows = case
    bounds = scaffold.intervals(rows, LENGTH)
    expected = sorted({0.0, LENGTH - 1.0, *rows.frames.tolist()})
    assert bounds.tolist() == expected


@quick
@given(anchored(), st.integers(0, 4))
def test_support_is_every_cell_near_an_anchor_given_to_the_nearest_one(case, radius) -> None:
    _, rows = case
    found = scaffold.support(rows, LENGTH, radius)
    cells = {}
    for frame, joint, row in zip(found.frames.tolist(), found.joints.tolist(), found.rows.tolist()):
        assert (frame, joint) not in cells
        cells[frame, joint] = row
    for frame in range(LENGTH):
        for joint in range(22):
            near = [
                (abs(frame - tau), tau, row)
                for row, (tau, mine) in enumerate(zip(rows.frames.tolist(), rows.joints.tolist()))
                if mine == joint and abs(frame - tau) <= radius
            ]
            assert cells.get((frame, joint)) == (min(near)[2] if near else None)


def test_support_difference_keeps_free_coordinates_free() -> None:
    rows = observed([10], [20], [[0, 0, 0]], [[False, True, False]])
    found = scaffold.support(rows, LENGTH)
    motion, target = torch.zeros(LENGTH, 22, 3), torch.ones(LENGTH, 22, 3)
    assert len(found) == 5
    assert torch.equal(found.difference(motion, target), torch.tensor([[-1.0, 0.0, -1.0]]).expand(5, 3))


def test_a_half_free_target_means_the_same_in_every_frame_of_reference() -> None:
    """x = 2 with y and z free, seen from a start that faces elsewhere: the residual is still along the world's x."""
    world = AnchorSet((Anchor(1.0, "head", (2.0, None, None)),), start=Placement(0.7, (5.0, -3.0)))
    from anchorroute.anchors import canonicalise

    canonical, placement = canonicalise(world)
    motion = torch.randn(LENGTH, 22, 3, generator=torch.Generator().manual_seed(1))
    turned = quat_apply(quat_about_y(torch.tensor(placement.yaw)), motion) + torch.tensor([5.0, 0.0, -3.0])
    found = scaffold.residuals(motion, canonical.observed(LENGTH))
    assert found.distance.item() == pytest.approx(abs(float(turned[20, 15, 0]) - 2.0), abs=1e-5)
    filled = parts(scaffold.features(canonical.observed(LENGTH), BODY, LENGTH, motion), BODY)["values"][20, 15]
    back = quat_apply(quat_about_y(torch.tensor(placement.yaw)), filled) + torch.tensor([5.0, 0.0, -3.0])
    assert torch.allclose(back, torch.tensor([2.0, turned[20, 15, 1], turned[20, 15, 2]]), atol=1e-5)
