"""The paper's solver: its first step in closed form, its ablations, and its habits."""

import pytest
import torch
from torch import Tensor

from anchorroute.anchors import AnchorSet, Observed
from anchorroute.errors import RequestError
from anchorroute.routesolver import Adam, refine
from anchorroute.routesolver.basis import build
from decoders import CODE, Network, linear

TOKENS = 12
FRAMES = 4 * TOKENS
LENGTHS = torch.tensor([FRAMES])


def tokens(batch: int = 1, seed: int = 0) -> Tensor:
    return torch.randn(batch, TOKENS, CODE, generator=torch.Generator().manual_seed(seed))


def waypoints(*frames: int, z: float = 0.3) -> Observed:
    return AnchorSet.from_points([(frame, 0, (0.0, 1.0, z * frame / 10)) for frame in frames]).observed(FRAMES)


@pytest.mark.parametrize("projection", ["scale-free", "literal"])
def test_the_first_step_on_a_linear_decoder_is_the_closed_form(projection):
    """Adam's first raw step is the learning rate times the gradient's sign (up to its epsilon), projected."""
    matrix, decode = linear(tokens=TOKENS)
    observed, u0 = waypoints(9, 33), tokens()
    config = Adam(steps=1, learning_rate=0.01, smoothness=0.0, trust=0.0, projection=projection, ridge=2.0, rho=3.0)
    result = refine(u0, decode, [observed], LENGTHS, config, covariance=4.0 * torch.eye(CODE))
    rows = matrix.view(FRAMES, 22, 3, -1)[[9, 33], 0]
    gap = rows @ u0.flatten() - observed.values
    gradient = 2 * torch.einsum("nc,ncu->u", gap, rows).view_as(u0)
    raw = -0.01 * 2.0 * gradient / (gradient.abs() + 1e-8)  # 2 is the deviation of latents with that covariance
    basis = build([observed], LENGTHS, TOKENS)
    ends = gap.norm(dim=1)
    activities = torch.stack((ends[0], ends.max(), ends[1]))[None].div(3.0).clamp(max=1)
    project = basis.literal if projection == "literal" else basis.scale_free
    expected = project(raw, basis.precision(activities, 2.0))
    torch.testing.assert_close(result.u - u0, expected, rtol=1e-4, atol=1e-6)


def test_more_steps_come_closer_and_snapshots_are_the_shorter_runs():
    decode, observed = Network(), waypoints(12, 36)
    config = Adam(steps=60, learning_rate=0.02, snapshots=(20,))
    long = refine(tokens(), decode, [observed], LENGTHS, config)
    short = refine(tokens(), decode, [observed], LENGTHS, Adam(steps=20, learning_rate=0.02))
    torch.testing.assert_close(long.snapshots[20], short.u)
    assert long.trace.shape == (61, 1)
    assert long.trace[60] < 0.5 * long.trace[20] < 0.5 * long.trace[0]
    with pytest.raises(RequestError, match="snapshots"):
        Adam(steps=10, snapshots=(20,))


def test_a_result_does_not_depend_on_its_batch_mates():
    decode = Network()
    observed = [waypoints(12, 36), waypoints(5, 20, 30, z=1.0)]
    lengths = torch.tensor([FRAMES, FRAMES])
    for activity in ("residual", "shuffled"):
        config = Adam(steps=5, activity=activity)
        both = refine(tokens(2), decode, observed, lengths, config)
        alone = refine(tokens(2)[:1], decode, observed[:1], LENGTHS, config)
        torch.testing.assert_close(both.u[:1], alone.u, rtol=1e-4, atol=1e-4)


def test_no_parameter_changes():
    decode = Network()
    before = [parameter.clone() for parameter in decode.buffers()] + [p.clone() for p in decode.parameters()]
    refine(tokens(), decode, [waypoints(12)], LENGTHS, Adam(steps=3))
    after = [*decode.buffers(), *decode.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after))


def test_the_stretch_before_the_first_root_anchor_moves_and_so_does_the_one_after_only_by_activity():
    """A root anchor is reached through earlier tokens; those after it feel only the decoder's reach and the trust."""
    decode = Network()
    result = refine(tokens(), decode, [waypoints(24)], LENGTHS, Adam(steps=10, trust=0.0, smoothness=0.0))
    moved = (result.u - tokens())[0].abs().amax(1)
    assert moved[:6].min() > 1e-3
    assert moved[6:].max() > 0  # the decoder looks one token ahead, and the slope spreads it over the interval
    idle = refine(
        tokens(), decode, [waypoints(24)], LENGTHS, Adam(steps=10, trust=0.0, smoothness=0.0, basis="identity")
    )
    assert (idle.u - tokens())[0, 8:].abs().max() == 0


def test_a_met_anchor_calms_its_intervals():
    decode = Network()
    here = decode(tokens())[0]
    met, far = here[12, 0], here[36, 0] + torch.tensor([0.0, 0.0, 0.5])
    points = [(12, 0, tuple(met.tolist())), (36, 0, tuple(far.tolist()))]
    observed = AnchorSet.from_points(points).observed(FRAMES)
    routed = refine(tokens(), decode, [observed], LENGTHS, Adam(steps=1, smoothness=0.0))
    uniform = refine(tokens(), decode, [observed], LENGTHS, Adam(steps=1, smoothness=0.0, activity="uniform"))
    ratio = (routed.u - tokens())[0].norm(dim=1) / (uniform.u - tokens())[0].norm(dim=1)
    torch.testing.assert_close(ratio, torch.tensor([0.2] * 3 + [1.0] * 9), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("basis", ["identity", "transport", "slope", "quadratic", "cubic"])
def test_every_basis_of_the_ablations_runs_and_lowers_the_error(basis):
    result = refine(tokens(), Network(), [waypoints(12, 36)], LENGTHS, Adam(steps=25, learning_rate=0.02, basis=basis))
    assert result.trace[-1] < result.trace[0]
    if basis == "transport":
        first = (result.u - tokens())[0, :3]
        torch.testing.assert_close(first, first[:1].expand(3, -1), rtol=1e-4, atol=1e-5)


def test_the_best_iterate_is_kept_on_request():
    wild = {"steps": 7, "learning_rate": 1.0, "smoothness": 0.0, "trust": 0.0}
    observed = waypoints(12, 36)
    best = refine(tokens(), Network(), [observed], LENGTHS, Adam(**wild, keep="best"))
    last = refine(tokens(), Network(), [observed], LENGTHS, Adam(**wild))
    # `best` goes by the objective, a sum of squares, which is what the mean distance is bounded by.
    squares = [float(item.distance.square().sum()) for item in (*best.residuals, *last.residuals)]
    assert squares[0] <= squares[1]


def test_feasibility_slows_the_root_down():
    decode, observed = Network(), waypoints(12, z=2.0)
    quiet = Adam(steps=40, learning_rate=0.05, feasibility=300.0, v_max=0.01)
    free = refine(tokens(), decode, [observed], LENGTHS, Adam(steps=40, learning_rate=0.05))
    slow = refine(tokens(), decode, [observed], LENGTHS, quiet)
    speed = [(item.joints[0, 1:, 0] - item.joints[0, :-1, 0]).norm(dim=-1).max() for item in (free, slow)]
    assert speed[1] < speed[0]


def test_cancel_and_callback():
    seen = []
    result = refine(
        tokens(),
        Network(),
        [waypoints(12)],
        LENGTHS,
        Adam(steps=50),
        callback=seen.append,
        cancel=lambda: len(seen) == 3,
    )
    assert [step.index for step in seen] == [1, 2, 3]
    assert result.stopped == ["cancelled"]
    assert len(result.trace) == 4
