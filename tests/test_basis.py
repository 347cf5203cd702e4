"""The interval basis and its ridge projection: what a projection must be, and what activities must do to it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.anchors import AnchorSet, Observed
from anchorroute.errors import RequestError
from anchorroute.routesolver.basis import build

TOKENS = 12
LENGTH = 48


def observed(*frames: float, length: int = LENGTH) -> Observed:
    return AnchorSet.from_points([(frame, 0, (0.0, 1.0, float(frame))) for frame in frames]).observed(length)


def deltas(seed: int = 0, batch: int = 1, tokens: int = TOKENS) -> torch.Tensor:
    return torch.randn(batch, tokens, 5, generator=torch.Generator().manual_seed(seed))


def basis_of(*frames: float, kind: str = "affine"):
    return build([observed(*frames)], torch.tensor([LENGTH]), TOKENS, kind)


frame_sets = st.lists(st.integers(0, LENGTH - 1), min_size=1, max_size=8, unique=True)
kinds = st.sampled_from(["affine", "transport", "slope", "quadratic", "cubic", "identity"])


@settings(max_examples=25, deadline=None)
@given(frame_sets, kinds, st.floats(0, 1))
def test_both_projections_are_linear(frames, kind, activity):
    basis = basis_of(*frames, kind=kind)
    precision = basis.precision(torch.full((1, int(basis.intervals)), activity), 4.0)
    one, two = deltas(1), deltas(2)
    for project in (basis.literal, basis.scale_free):
        both = project(2.0 * one - 3.0 * two, precision)
        torch.testing.assert_close(
            both, 2 * project(one, precision) - 3 * project(two, precision), rtol=1e-4, atol=1e-4
        )


@settings(max_examples=25, deadline=None)
@given(frame_sets, kinds)
def test_at_full_activity_both_are_the_same_orthogonal_projection(frames, kind):
    basis = basis_of(*frames, kind=kind)
    zero = torch.zeros(basis.real.shape)
    delta = deltas()
    once = basis.scale_free(delta, zero)
    torch.testing.assert_close(basis.scale_free(once, zero), once, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(basis.literal(delta, zero), once, rtol=1e-3, atol=1e-3)
    assert float((once * (delta - once)).sum()) == pytest.approx(0, abs=1e-3)


def test_at_full_activity_it_is_the_identity_where_an_interval_has_two_tokens_or_fewer():
    basis = basis_of(*range(7, LENGTH - 1, 8))
    zero = torch.zeros(basis.real.shape)
    torch.testing.assert_close(basis.scale_free(deltas(), zero), deltas(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(basis.literal(deltas(), zero), deltas(), rtol=1e-3, atol=1e-4)


def test_it_shrinks_as_activity_falls_and_only_in_the_calm_interval():
    basis = basis_of(20.0)
    sizes = []
    for activity in (1.0, 0.6, 0.2, 0.0):
        precision = basis.precision(torch.tensor([[1.0, activity]]), 4.0)
        for project in (basis.scale_free, basis.literal):
            moved = project(deltas(), precision)
            torch.testing.assert_close(moved[:, :5], project(deltas(), torch.zeros(basis.real.shape))[:, :5])
        sizes.append(float(basis.scale_free(deltas(), precision)[:, 5:].norm()))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(sizes[0] / 5, rel=1e-4)


def test_the_literal_projection_is_the_papers_least_squares():
    """Two routes: the normal equations, and ordinary least squares with the ridge as further rows."""
    basis = basis_of(10.0, 30.0)
    activities = torch.tensor([[0.1, 0.7, 0.4]])
    precision = basis.precision(activities, 2.0)
    columns = basis.raw[0].double().numpy()
    ridge = np.diag(np.sqrt(precision[0].double().numpy()))
    target = np.concatenate([deltas()[0].double().numpy(), np.zeros((columns.shape[1], 5))])
    alpha = np.linalg.lstsq(np.concatenate([columns, ridge]), target, rcond=None)[0]
    np.testing.assert_allclose(basis.literal(deltas(), precision)[0].numpy(), columns @ alpha, atol=1e-5)


def test_columns_are_transport_and_slope_of_each_interval():
    basis = basis_of(16.0)
    transport, slope = basis.raw[0, :, 0], basis.raw[0, :, 1]
    assert transport.tolist() == [1.0] * 4 + [0.0] * 8
    centres = torch.tensor([1.5, 5.5, 9.5, 13.5])
    torch.testing.assert_close(slope[:4], 2 * centres / 16 - 1)
    assert basis.interval[0].tolist() == [0, 0, 1, 1]


def test_the_stretches_before_the_first_and_after_the_last_anchor_are_intervals():
    basis = basis_of(16.0, 32.0)
    assert int(basis.intervals) == 3
    errors = torch.tensor([[0.02, 0.2]])
    assert basis.activities(errors, 0.05).tolist() == [[pytest.approx(0.4), 1.0, 1.0]]
    assert basis.activities(torch.tensor([[0.02, 0.0]]), 0.05).tolist() == [
        [pytest.approx(0.4), pytest.approx(0.4), 0.0]
    ]


def test_of_several_joints_at_one_frame_the_worst_counts():
    anchors = AnchorSet.from_points([(16, "pelvis", (0, 1, 0)), (16, "left_wrist", (0, 1, 0))])
    basis = build([anchors.observed(LENGTH)], torch.tensor([LENGTH]), TOKENS)
    assert basis.activities(torch.tensor([[0.01, 0.03]]), 0.05).tolist() == [[pytest.approx(0.6)] * 2]


def test_small_intervals_keep_as_many_columns_as_tokens():
    basis = basis_of(3.9, 10.0, 10.5, kind="cubic")  # of one token, of two, of none, and the rest
    counts = [int(((basis.interval[0] == i) & basis.real[0]).sum()) for i in range(int(basis.intervals))]
    assert counts == [1, 2, 0, 4]


def test_slope_alone_has_no_mean():
    basis = basis_of(13.0, kind="slope")
    torch.testing.assert_close(basis.raw.sum(1), torch.zeros(1, basis.raw.shape[2]), atol=1e-5, rtol=0)
    assert basis.raw.abs().sum() > 1


def test_a_batch_is_its_samples_side_by_side():
    one, two = observed(20.0), observed(3.0, 17.0, 25.0, length=32)
    lengths = torch.tensor([LENGTH, 32])
    both = build([one, two], lengths, TOKENS)
    alone = build([two], lengths[1:], TOKENS)
    activities = both.activities(torch.tensor([[0.03, 0.0, 0.0], [0.01, 0.04, 0.02]]), 0.05)
    own = alone.activities(torch.tensor([[0.01, 0.04, 0.02]]), 0.05)
    torch.testing.assert_close(activities[1:, : own.shape[1]], own)
    delta = deltas(batch=2)
    for name in ("literal", "scale_free"):
        torch.testing.assert_close(
            getattr(both, name)(delta, both.precision(activities, 4.0))[1:],
            getattr(alone, name)(delta[1:], alone.precision(own, 4.0)),
            rtol=1e-4,
            atol=1e-5,
        )
    assert both.scale_free(delta, both.precision(activities, 4.0))[1, 8:].abs().max() == 0  # padding


def test_shuffled_activities_are_the_same_numbers_elsewhere():
    basis = build([observed(5, 14, 22, 31, 40), observed(9, 30)], torch.tensor([LENGTH, LENGTH]), TOKENS)
    activities = basis.activities(torch.rand(2, 5, generator=torch.Generator().manual_seed(3)), 1.0)
    dealt = basis.shuffled(activities, seed=1)
    torch.testing.assert_close(dealt.sort().values, activities.sort().values)
    assert not torch.equal(dealt, activities)
    alone = build([observed(9, 30)], torch.tensor([LENGTH]), TOKENS)
    torch.testing.assert_close(alone.shuffled(activities[1:, :3], seed=1), dealt[1:, :3])


def test_an_unknown_basis_names_the_known_ones():
    with pytest.raises(RequestError, match="transport"):
        basis_of(3.0, kind="quartic")
