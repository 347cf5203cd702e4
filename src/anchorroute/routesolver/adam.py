"""The paper's RouteSolver with OptStep = Adam: RS100, RS200, RS500 and every ablation of its tables.

Each step takes a raw Adam update of the soft tokens and projects it onto the interval basis, with activities refreshed
from the same forward pass as the loss. Adam's moments see raw gradients, and one state serves all steps. The step
size is in units of the latents' standard deviation, and so is the trust term.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute import losses
from anchorroute.errors import RequestError
from anchorroute.routesolver.basis import Basis, Kind, build
from anchorroute.routesolver.problem import Problem
from anchorroute.routesolver.result import Callback, Cancel, Refined, Solution, Step, Stopped


@dataclass(frozen=True)
class Adam:
    """Settings of the paper's solver; `Adam(steps=200)` is RS200.

    The ablations: plain soft tokens `basis="identity"`; uniform or shuffled `activity`; `basis` "transport", "slope",
    "quadratic" or "cubic".
    """

    steps: int = 200
    learning_rate: float = 0.005
    betas: tuple[float, float] = (0.9, 0.999)
    basis: Kind = "affine"
    activity: Literal["residual", "uniform", "shuffled"] = "residual"
    projection: Literal["scale-free", "literal"] = "scale-free"
    ridge: float = 4.0
    """lambda."""
    rho: float = 0.05
    """rho_f, metres."""
    smoothness: float | None = None
    """gamma_sm; None: 1 where only the pelvis is anchored, 0.1 otherwise."""
    trust: float = 1e-5
    """gamma_tr, on the correction in standard deviations."""
    feasibility: float = 0.0
    """gamma_feas; the paper's default is off."""
    v_max: float = 0.2
    """Metres a frame."""
    keep: Literal["last", "best"] = "last"
    snapshots: tuple[int, ...] = ()
    """Numbers of steps after which the tokens are kept too: one run of 500 gives RS100 and RS200."""
    seed: int = 0
    """Deals the shuffled activities."""

    def __post_init__(self) -> None:
        wrong = [step for step in self.snapshots if not 0 < step <= self.steps]
        if wrong:
            raise RequestError(
                f"snapshots after {wrong} steps asked of a run of {self.steps}; ask for 1 to {self.steps}"
            )


_EPS = 1e-8


def solve(
    problem: Problem,
    config: Adam,
    covariance: Float[Tensor, "code code"] | None,
    warm: Solution | None,
    callback: Callback | None,
    cancel: Cancel | None,
) -> Refined:
    """All steps, or as many as were taken when `cancel` said stop."""
    u0 = problem.u0
    unit = 1.0 if covariance is None else float(covariance.diagonal().mean().sqrt())
    basis = build(problem.observed, problem.lengths.cpu(), u0.shape[1], config.basis, device=u0.device)
    inside = _valid_tokens(problem)
    u = u0 if warm is None else u0 + inside * warm.correction.to(u0)
    first, second = torch.zeros_like(u), torch.zeros_like(u)
    trace: list[Tensor] = []
    snapshots: dict[int, Tensor] = {}
    best, lowest, cancelled = u, u0.new_full((len(u0),), torch.inf), False
    before = None
    for index in range(config.steps):
        if cancel is not None and cancel():
            cancelled = True
            break
        value, gradient, joints, errors = _objective(problem, config, u, unit)
        before = errors if before is None else before
        trace.append(problem.mean_error(errors))
        best = torch.where((value < lowest)[:, None, None], u, best)
        lowest = torch.minimum(value, lowest)
        raw = _adam_step(gradient, first, second, index + 1, config) * unit
        u = u + inside * _routed(raw, basis, problem.anchor_errors(errors), config)
        if index + 1 in config.snapshots:
            snapshots[index + 1] = u
        if callback is not None:
            callback(Step(index + 1, config.steps, trace[-1], 0, joints))
    return _finish(problem, config, u, best, lowest, before, trace, snapshots, cancelled, unit)


def _objective(problem: Problem, config: Adam, u: Tensor, unit: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """J of every sample, its gradient, and from the same pass the joints and the groups' errors."""
    with torch.enable_grad():
        point = u.detach().requires_grad_()
        problem.decodes += len(u)
        joints = problem.joints(point)
        residual = problem.rows(joints)
        value = _value(problem, config, point, joints, residual, unit)
        (gradient,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), gradient, joints.detach(), problem.rows.errors(residual.detach())


def _value(
    problem: Problem, config: Adam, u: Tensor, joints: Tensor, residual: Tensor, unit: float
) -> Float[Tensor, " batch"]:
    value = (problem.rows.weight * residual).square().sum(1)
    value = value + config.trust / unit**2 * losses.trust(u, problem.u0)
    paths, rooted = _controlled(problem, joints)
    share = torch.where(rooted, 1.0, 0.1) if config.smoothness is None else config.smoothness
    value = value + share * losses.smoothness(paths, problem.lengths)
    if config.feasibility:
        value = value + config.feasibility * losses.feasibility(joints[:, :, 0], problem.lengths, config.v_max)
    return value


def _controlled(problem: Problem, joints: Tensor) -> tuple[Tensor, Tensor]:
    """q: the coordinates that a sample's anchors observe, at every frame; and whether they are all the pelvis's."""
    mask = torch.zeros(len(joints), joints.shape[2], 3)
    for b, item in enumerate(problem.observed):
        for joint, free in zip(item.joints.tolist(), item.free):
            mask[b, joint] = torch.maximum(mask[b, joint], (~free).float())
    rooted = ~(mask[:, 1:] > 0).flatten(1).any(1)
    return (joints * mask.to(joints)[:, None]).flatten(2), rooted.to(joints.device)


def _adam_step(gradient: Tensor, first: Tensor, second: Tensor, step: int, config: Adam) -> Tensor:
    """OptStep(u) - u, in units of the learning rate's unit; moments are updated in place."""
    one, two = config.betas
    first.mul_(one).add_(gradient, alpha=1 - one)
    second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
    mean, spread = first / (1 - one**step), second / (1 - two**step)
    return -config.learning_rate * mean / (spread.sqrt() + _EPS)


def _routed(raw: Tensor, basis: Basis, errors: Tensor, config: Adam) -> Tensor:
    """Delta* = P_{B,a}(Delta)."""
    if config.basis == "identity":
        return raw
    activities = basis.activities(errors, config.rho)
    if config.activity == "uniform":
        activities = torch.ones_like(activities)
    elif config.activity == "shuffled":
        activities = basis.shuffled(activities, config.seed)
    precision = basis.precision(activities, config.ridge)
    project = basis.literal if config.projection == "literal" else basis.scale_free
    return project(raw, precision)


def _valid_tokens(problem: Problem) -> Float[Tensor, "batch tokens 1"]:
    tokens = torch.arange(problem.u0.shape[1], device=problem.u0.device)
    return (tokens < -(-problem.lengths[:, None] // 4)).to(problem.u0)[..., None]


def _finish(
    problem: Problem,
    config: Adam,
    last: Tensor,
    best: Tensor,
    lowest: Tensor,
    before: Tensor | None,
    trace: list[Tensor],
    snapshots: dict[int, Tensor],
    cancelled: bool,
    unit: float,
) -> Refined:
    with torch.no_grad():
        joints = problem.joints(last)
        residual = problem.rows(joints)
        if config.keep == "best":
            worse = lowest < _value(problem, config, last, joints, residual, unit)
            last = torch.where(worse[:, None, None], best, last)
            joints = problem.joints(last)
            residual = problem.rows(joints)
    errors = problem.rows.errors(residual)
    met = (errors <= problem.rows.tolerance).all(1).tolist()
    stopped: list[Stopped] = ["met" if ok else "cancelled" if cancelled else "steps done" for ok in met]
    reason = "cancelled" if cancelled else f"{config.steps} steps came no closer"
    why = [dict.fromkeys(range(errors.shape[1]), reason) for _ in met]
    return Refined(
        u=last,
        joints=joints,
        residuals=problem.residuals(joints),
        trace=torch.stack([*trace, problem.mean_error(errors)]),
        solution=Solution(last - problem.u0),
        stopped=stopped,
        unmet=problem.open_wishes(errors if before is None else before, errors, why),
        snapshots=snapshots,
        decodes=problem.decodes,
    )
