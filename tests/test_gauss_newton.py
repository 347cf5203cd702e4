"""The Gauss-Newton solver: exact where the problem is linear, sane where it is impossible, alone in a batch."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anchorroute import scaffold
from anchorroute.anchors import Anchor, AnchorSet, Observed
from anchorroute.errors import RequestError
from anchorroute.routesolver import GaussNewton, Off, carried, latent_covariance, plant_term, refine
from anchorroute.routesolver.prior import Prior, code_factor, smooth_time
from anchorroute.routesolver.products import Linearised, conjugate_gradients, jacobian
from decoders import CODE, LinearDecoder, Network, linear

TOKENS = 12
FRAMES = 4 * TOKENS
LENGTHS = torch.tensor([FRAMES])


def tokens(batch: int = 1, seed: int = 0) -> Tensor:
    return torch.randn(batch, TOKENS, CODE, generator=torch.Generator().manual_seed(seed))


def covariance() -> Tensor:
    return latent_covariance(
        torch.randn(400, CODE, generator=torch.Generator().manual_seed(9)) @ torch.rand(CODE, CODE)
    )


def reachable(decode: Network, cells: list[tuple[float, str]], seed: int = 5, **kwargs: object) -> Observed:
    """Anchors that another code of the same decoder meets."""
    joints = decode(tokens(seed=seed))[0]
    bare = AnchorSet.from_points([(frame, joint, (0.0, 0.0, 0.0)) for frame, joint in cells]).observed(FRAMES)
    places = scaffold.points(joints, bare.frames, bare.joints)
    points = [(frame, joint, tuple(place.tolist())) for (frame, joint), place in zip(cells, places)]
    return AnchorSet.from_points(points, **kwargs).observed(FRAMES)


CELLS = [(11.0, "pelvis"), (25.0, "left_wrist"), (25.0, "pelvis"), (40.5, "right_foot")]


def worst(result) -> float:
    return max(item.worst for item in result.residuals)


def test_on_a_linear_decoder_it_is_the_shortest_correction_in_the_priors_norm():
    """Two routes: the solver, and the pseudo-inverse of the whitened rows."""
    matrix, decode = linear(tokens=TOKENS)
    spread = covariance()
    observed = AnchorSet.from_points([(7, "head", (0.3, 0.2, 0.1)), (30, "left_foot", (-0.2, 0.1, 0.4))]).observed(
        FRAMES
    )
    u0 = tokens()
    config = GaussNewton(time="token", ridge=0.0, shrinkage=0.1, mu=1e-9, nu=0.0, stop=1e-6, radius=100.0, reach=100.0)
    result = refine(u0, decode, [observed], LENGTHS, config, covariance=spread)
    places = [(int(f) * 22 + int(j)) * 3 + c for f, j in zip(observed.frames, observed.joints) for c in range(3)]
    root = torch.kron(torch.eye(TOKENS), code_factor(spread, 0.1).contiguous()).double()
    whitened = matrix[places].double() @ root
    gap = observed.values.flatten().double() - matrix[places].double() @ u0.flatten().double()
    expected = (root @ torch.linalg.pinv(whitened) @ gap).float().view_as(u0)
    torch.testing.assert_close(result.u - u0, expected, rtol=1e-3, atol=1e-3)
    assert len(result.trace) == 2
    assert result.stopped == ["met"]


EXACT = GaussNewton(stop=2e-5, iterations=60)


@pytest.mark.parametrize(
    ("time", "fixed"), [("interval", False), ("interval", True), ("token", True), ("smooth", False)]
)
def test_anchors_are_met_to_a_tenth_of_a_millimetre(time, fixed):
    decode = Network(fixed=fixed)
    observed = reachable(decode, CELLS)
    before = refine(tokens(), decode, [observed], LENGTHS, Off())
    after = refine(tokens(), decode, [observed], LENGTHS, replace(EXACT, time=time), covariance=torch.eye(CODE))
    assert worst(before) > 0.05
    assert worst(after) < 1.1e-4
    assert after.unmet == [()]
    torch.testing.assert_close(decode(after.u), after.joints)
    assert after.trace[-1] < 1.1e-4 < after.trace[0]


def test_conjugate_gradients_take_the_same_way_as_the_dense_dual():
    decode = Network()
    observed = reachable(decode, CELLS)
    one = GaussNewton(iterations=1, nu=0.0, mu=1e-3, cg_iterations=300, cg_tolerance=1e-6)
    dense = refine(tokens(), decode, [observed], LENGTHS, one)
    free = refine(tokens(), decode, [observed], LENGTHS, replace(one, dense_rows=0))
    moved = (dense.u - tokens()).norm()
    assert moved > 0.1
    assert (dense.u - free.u).norm() < 0.01 * moved
    done = refine(tokens(), decode, [observed], LENGTHS, GaussNewton(dense_rows=0))
    assert worst(done) < 1e-3


def test_a_result_does_not_depend_on_its_batch_mates():
    decode = Network()
    observed = [reachable(decode, CELLS, seed=5), reachable(decode, [(9.0, "head")], seed=6)]
    u0 = tokens(2)
    lengths = torch.tensor([FRAMES, FRAMES])
    for subset in (None, lambda _: decode):
        both = refine(u0, decode, observed, lengths, GaussNewton(), subset=subset)
        for b in range(2):
            alone = refine(u0[b : b + 1], decode, observed[b : b + 1], LENGTHS, GaussNewton())
            torch.testing.assert_close(both.u[b], alone.u[0], rtol=1e-2, atol=5e-3)
            assert both.stopped[b] == alone.stopped[0] == "met"


def test_padding_is_never_touched_and_shorter_clips_are_solved_on_their_own_frames():
    decode = Network()
    observed = AnchorSet.from_points([(20, "pelvis", (0.1, 1.0, 0.2))]).observed(32)
    result = refine(tokens(), decode, [observed], torch.tensor([32]), GaussNewton())
    assert worst(result) < 1e-3
    assert (result.u - tokens())[0, 8:].abs().max() == 0


def test_no_parameter_changes_and_none_asks_for_a_gradient():
    decode = Network()
    before = {name: value.clone() for name, value in decode.state_dict().items()}
    refine(tokens(), decode, [reachable(decode, CELLS)], LENGTHS, GaussNewton())
    assert all(torch.equal(before[name], value) for name, value in decode.state_dict().items())
    assert all(parameter.grad is None for parameter in decode.parameters())


def test_free_coordinates_stay_free_and_headings_are_met():
    decode = Network()
    pose = decode(tokens(seed=5))[0, 30]
    anchors = AnchorSet((Anchor(1.5, "pelvis", (float(pose[0, 0]), None, float(pose[0, 2])), heading=0.05),))
    result = refine(tokens(), decode, [anchors.observed(FRAMES)], LENGTHS, EXACT)
    assert worst(result) < 1e-3
    assert float(result.residuals[0].heading.abs().max()) < 0.002


def test_a_loop_closes_beside_an_anchor():
    _, decode = linear(tokens=TOKENS)  # with a rich decoder: the toy network's last pose has too few unknowns
    observed = AnchorSet.from_points([(20, "head", (0.1, 0.2, 0.3))], loop=True).observed(FRAMES)
    result = refine(tokens(), decode, [observed], LENGTHS, replace(EXACT, radius=20.0, time="token", reach=100.0))
    assert worst(result) < 1e-3
    assert result.unmet == [()]
    ends = result.joints[0, [0, -1]]
    ends = ends - ends[:, :1] * torch.tensor([1.0, 0.0, 1.0])
    torch.testing.assert_close(ends[1], ends[0], atol=2e-3, rtol=0)


def test_a_looser_tolerance_is_a_smaller_weight():
    matrix = torch.zeros(FRAMES * 66, TOKENS * CODE)
    matrix[(10 * 22) * 3 :: 1, 0] = 1.0  # everything from frame 10 on moves together: two wishes cannot both be met
    points = [
        Anchor(1.0, "head", (0.0, 0.0, 0.0), tolerance=0.005),
        Anchor(2.0, "head", (1.0, 1.0, 1.0), tolerance=0.02),
    ]
    config = GaussNewton(time="token", releases=0, radius=100.0, shrinkage=0.0)
    result = refine(
        torch.zeros(1, TOKENS, CODE),
        LinearDecoder(matrix),
        [AnchorSet(tuple(points)).observed(FRAMES)],
        LENGTHS,
        config,
    )
    assert float(result.joints[0, 20, 15, 0]) == pytest.approx(1 / 17, rel=1e-2)  # weights 1 and 1/4, squared
    assert all("contradicts" in wish.why for wish in result.unmet[0])


ABSURD = [
    [Anchor(1.5, "left_wrist", (10_000.0, 1.0, 0.0))],
    [Anchor(1.0, "pelvis", (0.0, 0.95, 0.1)), Anchor(1.05, "pelvis", (5.0, 0.95, 0.1))],
    [Anchor(1.0, "right_wrist", (0.2, -1.5, 0.3))],
]


@pytest.mark.parametrize("anchors", ABSURD)
def test_absurd_anchors_end_in_a_compromise_and_never_in_an_explosion(anchors):
    decode = Network(fixed=True)
    config = GaussNewton(iterations=30)
    result = refine(tokens(), decode, [AnchorSet(tuple(anchors)).observed(FRAMES)], LENGTHS, config)
    assert torch.isfinite(result.joints).all()
    assert (result.u - tokens()).square().mean(-1).sqrt().max() <= config.radius * 1.01
    assert result.unmet[0]
    assert all(wish.why and wish.error > wish.tolerance for wish in result.unmet[0])
    assert result.trace[-1] <= result.trace[0]


def test_an_absurd_anchor_lets_go_so_that_the_others_are_met():
    decode = Network(fixed=True)
    sane = reachable(decode, [(11.0, "pelvis"), (35.0, "pelvis")], seed=5)
    points = [(float(f), int(j), tuple(v.tolist())) for f, j, v in zip(sane.frames, sane.joints, sane.values)]
    observed = AnchorSet.from_points([*points, (24, "left_wrist", (500.0, 1.0, 0.0))]).observed(FRAMES)
    result = refine(tokens(), decode, [observed], LENGTHS, GaussNewton(iterations=60))
    assert float(result.residuals[0].distance[:2].max()) < 0.02
    assert [wish.index for wish in result.unmet[0]][-1] == 2


def test_what_cannot_move_is_said_to_be_fixed():
    observed = AnchorSet((Anchor(0.0, "pelvis", (1.0, None, 0.0)),)).observed(FRAMES)
    result = refine(tokens(), Network(), [observed], LENGTHS, GaussNewton())
    assert "first frame" in result.unmet[0][0].why
    assert str(result.unmet[0][0]).startswith("anchor 0: 1000.0 mm off")


def test_a_warm_start_after_a_drag_takes_a_fraction_of_the_passes():
    decode = Network()
    observed = reachable(decode, CELLS)
    first = refine(tokens(), decode, [observed], LENGTHS, GaussNewton())
    moved = observed.values.clone()
    moved[1, 0] += 0.02
    dragged = Observed(
        observed.frames, observed.joints, moved, observed.free, observed.tolerance, observed.heading, observed.axes
    )
    cold = refine(tokens(), decode, [dragged], LENGTHS, GaussNewton())
    warm = refine(tokens(), decode, [dragged], LENGTHS, GaussNewton(), warm=first.solution)
    assert worst(warm) < 1e-3
    assert warm.decodes < 0.8 * cold.decodes
    again = refine(tokens(), decode, [observed], LENGTHS, GaussNewton(), warm=first.solution)
    assert again.decodes <= 3
    assert worst(again) <= worst(first) + 1e-6


def test_cancelling_keeps_the_best_so_far_and_the_callback_sees_every_step():
    decode = Network()
    observed = reachable(decode, CELLS)
    seen = []
    result = refine(
        tokens(), decode, [observed], LENGTHS, GaussNewton(),
        callback=seen.append, cancel=lambda: len(seen) == 2,
    )  # fmt: skip
    assert [step.index for step in seen] == [1, 2]
    assert result.stopped == ["cancelled"]
    torch.testing.assert_close(result.trace[1:, 0], torch.stack([step.error[0] for step in seen]))
    assert result.trace[-1] < result.trace[0]


def test_soft_rows_keep_a_planted_foot_while_the_anchor_is_met():
    decode = Network()
    u0 = tokens()
    still = decode(u0).clone()
    still[:, :, 10] = torch.tensor([0.1, 0.03, 0.0])
    still[:, :, 11, 1] = 0.5
    plants = plant_term(still, LENGTHS, 0.1, longest=FRAMES)
    observed = reachable(decode, [(35.0, "pelvis")])
    plain = refine(u0, decode, [observed], LENGTHS, GaussNewton())
    planted = refine(u0, decode, [observed], LENGTHS, GaussNewton(), extra=[plants])
    assert worst(planted) < 2e-3
    assert plants(planted.joints).norm() < 0.5 * plants(plain.joints).norm()


def test_what_the_tokenizer_loses_is_carried_along():
    decode = Network()
    given = decode(tokens()) + 0.05 * torch.sin(torch.arange(FRAMES * 66.0)).view(1, FRAMES, 22, 3)
    carrying = carried(decode, tokens(), given)
    torch.testing.assert_close(carrying(tokens()), given)
    observed = reachable(decode, [(35.0, "left_wrist")])
    result = refine(tokens(), carrying, [observed], LENGTHS, GaussNewton())
    assert worst(result) < 1e-3
    untouched = refine(tokens(), carrying, [observed[:0]], LENGTHS, GaussNewton())
    torch.testing.assert_close(untouched.joints, given)


def test_products_agree_with_the_jacobian_and_with_finite_differences():
    decode = Network(fixed=True)

    def rows(u: Tensor) -> Tensor:
        return decode(u)[:, [5, 30], [0, 20]].flatten(1)

    u, du = tokens(2), 1e-3 * tokens(2, seed=3)
    full = jacobian(rows, u, at_once=3)
    products = Linearised(rows, u)
    weights = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(products.push(du), torch.einsum("brld,bld->br", full, du), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(
        products.pull(weights), torch.einsum("brld,br->bld", full, weights), rtol=1e-4, atol=1e-5
    )
    numeric = (rows(u + du) - rows(u - du)) / 2
    torch.testing.assert_close(products.push(du), numeric, rtol=1e-2, atol=1e-6)


def test_conjugate_gradients_solve_each_sample():
    root = torch.randn(2, 12, 12, generator=torch.Generator().manual_seed(0))
    matrix = root @ root.mT + torch.eye(12)
    right = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    x = conjugate_gradients(lambda v: (matrix @ v.reshape(2, 12, 1)).view(2, 3, 4), right, 60, 1e-6)
    torch.testing.assert_close((matrix @ x.reshape(2, 12, 1)).view(2, 3, 4), right, rtol=1e-3, atol=1e-3)


def test_the_prior_maps_are_transposes_and_coordinates_invert_them():
    prior = Prior(smooth_time(torch.tensor([40]), TOKENS, 1.0), code_factor(covariance(), 0.1))
    w, g = torch.randn(1, TOKENS, CODE), torch.randn(1, TOKENS, CODE)
    w[:, 10:] = 0  # beyond the clip's ten tokens
    torch.testing.assert_close((prior.correction(w) * g).sum(), (w * prior.pull(g)).sum(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        prior.correction(prior.coordinates(prior.correction(w))), prior.correction(w), rtol=1e-2, atol=1e-2
    )
    assert prior.sizes(prior.bounded(10 * w, 1.5)).max() <= 10 * prior.sizes(w).max()


def test_a_covariance_must_be_one():
    with pytest.raises(RequestError, match="shrinkage"):
        code_factor(torch.eye(3), 1.5)
    with pytest.raises(RequestError, match="symmetric"):
        code_factor(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), 0.1)
    with pytest.raises(RequestError, match="singular"):
        code_factor(torch.tensor([[1.0, 1.0], [1.0, 1.0]]), 0.0)
    with pytest.raises(RequestError, match="one of each"):
        refine(tokens(2), Network(), [], LENGTHS, Off())
