"""Levenberg-Marquardt in routed, whitened coordinates: the product's solver.

u = u0 + T w A' (`prior`). Each step minimises |W (r + J d)|^2 + mu |w + d|^2 + nu |d|^2: mu, small and constant,
holds the total correction to the prior, nu damps the step alone, so that anchors metres away converge. As there are
far fewer rows than unknowns, the step is solved in the dual, with s = mu + nu:
d = J' (J J' + s)^-1 ((mu / s) J w - r) - (mu / s) w.

What keeps it cheap: the Jacobian is formed once and then updated from what each step taught (Broyden's rank-one rule in
w); it is formed anew only when a step disappoints. What keeps it sane: a row group pulls no harder than from `reach`
metres, no token moves further than `radius` standard deviations of real latents, and when nothing more can be gained,
groups that stay far off let go (their weight falls), so that the others are met.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorroute.routesolver import prior as priors
from anchorroute.routesolver.basis import Kind, build
from anchorroute.routesolver.explain import explain
from anchorroute.routesolver.prior import Prior
from anchorroute.routesolver.problem import Problem
from anchorroute.routesolver.products import Linearised, conjugate_gradients, jacobian
from anchorroute.routesolver.result import Callback, Cancel, Refined, Solution, Step, Stopped
from anchorroute.routesolver.rows import TOLERANCE


@dataclass(frozen=True)
class GaussNewton:
    """Settings of the Gauss-Newton solver; the defaults are the product's."""

    iterations: int = 40
    jacobians: int = 8
    """At most so many Jacobians a sample."""
    patience: float = 0.08
    """Disappointing steps a row before a new Jacobian: it costs as many passes as there are rows, a step one."""
    stop: float = 1e-4
    """Metres: closer than this is met, for an anchor of the default tolerance; it scales with the tolerance."""
    mu: float = 1e-8
    nu: float = 1e-3
    """Initial damping, as a share of the mean diagonal of J J'."""
    radius: float = 2.5
    """No token's correction exceeds so many standard deviations of real latents."""
    reach: float = 2.0
    """Metres: a group further off pulls as if it were here."""
    shrinkage: float = 0.05
    time: Literal["interval", "token", "smooth"] = "interval"
    basis: Kind = "affine"
    width: float = 1.5
    """Tokens over which corrections are correlated, for `time` "smooth"."""
    rho: float = 0.05
    ridge: float = 4.0
    """lambda of the frozen activities; 0 ignores them."""
    dense_rows: int = 160
    """Above so many rows the step is solved by conjugate gradients, without forming the Jacobian."""
    cg_iterations: int = 40
    cg_tolerance: float = 1e-2
    releases: int = 3
    """How often groups that cannot be met let go."""
    at_once: int = 512
    """Rows times samples differentiated together; bounds the memory."""


@dataclass
class _State:
    """One row a sample. `done` samples are not touched any more."""

    w: Float[Tensor, "batch columns code"]
    joints: Float[Tensor, "batch frames 22 3"]
    residual: Float[Tensor, "batch rows"]
    trust: Float[Tensor, "batch groups"]
    nu: Float[Tensor, " batch"]
    age: Int[Tensor, " batch"]
    formed: Int[Tensor, " batch"]
    misses: Int[Tensor, " batch"]
    stalls: Int[Tensor, " batch"]
    releases: Int[Tensor, " batch"]
    done: Bool[Tensor, " batch"]
    met: Bool[Tensor, " batch"]


_Model = Callable[[Tensor], Tensor]
"""Whitened change -> change of the weighted rows, to first order."""

_STALE = -1
_GOOD, _POOR = 0.6, 0.2
"""Actual gain over predicted gain: above the first the damping falls, below the second the Jacobian is renewed."""
_AWFUL = -3.0
"""Below this gain the step was far too long, whatever the Jacobian."""
_CALM = 0.9
"""A step that leaves more than this share of the misfit is a stall."""
_PATIENCE = 3
_POLISH = 5.0
"""Groups within so many times what is enough are worth further steps, but no new Jacobian, and no patience."""


def solve(
    problem: Problem,
    config: GaussNewton,
    covariance: Float[Tensor, "code code"] | None,
    warm: Solution | None,
    callback: Callback | None,
    cancel: Cancel | None,
) -> Refined:
    """Run to convergence, to the last iteration, or until cancelled."""
    run = _Run(problem, config, covariance, warm)
    return run.loop(callback, cancel)


class _Run:
    """The solve in progress."""

    def __init__(self, problem: Problem, config: GaussNewton, covariance: Tensor | None, warm: Solution | None) -> None:
        self.problem, self.config, self.rows = problem, config, problem.rows
        self.weights = self.rows.group_weights()
        self.enough = (config.stop * self.rows.tolerance / TOLERANCE).clamp(max=1e-3)
        start = problem.joints(problem.u0)
        residual = self.rows(start)
        self.before = self.rows.errors(residual)
        known = warm if warm is not None and warm.rows is not None and warm.rows.same_places(self.rows) else None
        self.prior = self._prior(covariance, known)
        self.dense = len(self.rows) <= config.dense_rows
        batch, device = len(residual), residual.device
        zero = torch.zeros(batch, dtype=torch.long, device=device)
        never = torch.zeros(batch, dtype=torch.bool, device=device)
        w = residual.new_zeros(batch, self.prior.time.shape[2], self.prior.code.shape[0])
        self.state = _State(
            w, start, residual, torch.ones_like(self.before), torch.full((batch,), torch.nan, device=device),
            zero + _STALE, zero.clone(), zero.clone(), zero.clone(), zero.clone(), never, never.clone(),
        )  # fmt: skip
        self.patience = max(2, int(config.patience * len(self.rows)))
        shape = (batch, len(self.rows), *w.shape[1:])
        self.jacobian = residual.new_zeros(shape) if self.dense else residual.new_zeros(batch, 0, *w.shape[1:])
        if warm is not None:
            self._warm(warm, known)
        self.trace = [problem.mean_error(self.before)]

    def _prior(self, covariance: Tensor | None, known: Solution | None) -> Prior:
        u0, config = self.problem.u0, self.config
        tokens, width = u0.shape[1:]
        spread = torch.eye(width) if covariance is None else covariance
        code = priors.code_factor(spread.to(u0), config.shrinkage)
        if known is not None and known.time is not None:
            return Prior(known.time, code)  # activities stay as they were frozen when the editing began
        if config.time == "smooth":
            return Prior(priors.smooth_time(self.problem.lengths, tokens, config.width, device=u0.device).to(u0), code)
        kind: Kind = "identity" if config.time == "token" else config.basis
        basis = build(self.problem.observed, self.problem.lengths.cpu(), tokens, kind, device=u0.device)
        activities = basis.activities(self.problem.anchor_errors(self.before), config.rho)
        return Prior(priors.interval_time(basis, basis.precision(activities, config.ridge)), code)

    def _warm(self, warm: Solution, known: Solution | None) -> None:
        """Start at an earlier solution if it is better than the start; keep its Jacobian if the rows are the same."""
        w = self.prior.bounded(self.prior.coordinates(warm.correction.to(self.problem.u0)), self.config.radius)
        joints = self.problem.joints(self.problem.u0 + self.prior.correction(w))
        residual = self.rows(joints)
        better = self._objective(residual, w) <= self._objective(self.state.residual, self.state.w)
        self._move(better, w, joints, residual)
        if known is not None and known.jacobian is not None and known.jacobian.shape == self.jacobian.shape:
            self.jacobian = torch.where(better[:, None, None, None], known.jacobian, self.jacobian)
            self.state.age = torch.where(better, 1, self.state.age)
            every = torch.arange(len(better), device=better.device)
            self.state.nu = torch.where(better, self._damping(every), self.state.nu)

    # ------------------------------------------------------------------------------------------------------ the loop

    def loop(self, callback: Callback | None, cancel: Cancel | None) -> Refined:
        cancelled = False
        self._settle()
        for index in range(self.config.iterations):
            if bool(self.state.done.all()):
                break
            if cancel is not None and cancel():
                cancelled = True
                break
            if self.dense:
                self._refresh()
            self._iterate()
            self._settle()
            error = self.problem.mean_error(self.rows.errors(self.state.residual))
            self.trace.append(error)
            if callback is not None:
                done = int(self.state.done.sum())
                callback(Step(index + 1, self.config.iterations, error, done, self.state.joints))
        return self._finish(cancelled)

    def _refresh(self) -> None:
        """Form the Jacobian where it is stale: of these samples alone if the decoder can be split."""
        state = self.state
        stale = (~state.done & (state.age == _STALE)).nonzero().flatten()
        if not len(stale):
            return
        u = self.problem.u0 + self.prior.correction(state.w)
        if self.problem.subset is not None and len(stale) < len(u):
            decode, rows = self.problem.take(stale)
            fresh = jacobian(lambda v: rows(decode(v)), u[stale], self.config.at_once)
        else:
            fresh = jacobian(lambda v: self.rows(self.problem.decode(v)), u, self.config.at_once)[stale]
        self.problem.decodes += len(stale) * (len(self.rows) + 1)
        self.jacobian[stale] = self.prior[stale].pull(fresh)
        state.age[stale] = 0
        state.formed[stale] += 1
        first = stale[state.nu[stale].isnan()]
        if len(first):
            state.nu[first] = self._damping(first)

    def _damping(self, samples: Int[Tensor, " some"]) -> Float[Tensor, " some"]:
        """The first nu: a share of the mean diagonal of J J'."""
        weight = self.rows.weight[samples]
        diagonal = (weight[..., None, None] * self.jacobian[samples]).square().sum((-2, -1))
        return self.config.nu * diagonal.sum(1) / (weight > 0).sum(1).clamp(min=1)

    def _iterate(self) -> None:
        """One trial step of every sample that is not done, kept where it lowers the objective."""
        state = self.state
        pull, weight = self._pull(state.residual)
        step, model = self._dense_step(pull, weight) if self.dense else self._free_step(pull, weight)
        w = self.prior.bounded(state.w + step, self.config.radius)
        w = torch.where(state.done[:, None, None], state.w, w)
        moved = w - state.w
        predicted = _misfit(pull, state.w, self.config.mu) - _misfit(pull + model(moved), w, self.config.mu)
        joints, residual = self._decode(w)
        now, then = self._objective(state.residual, state.w), self._objective(residual, w)
        gain = (now - then) / predicted.clamp(min=1e-30)
        better = (then < now) & ~state.done
        if self.dense:
            self._learn(moved, residual - state.residual, better | (state.age > 0))
        self._judge(better, gain, then / now.clamp(min=1e-30))
        self._move(better, w, joints, residual)

    def _decode(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Joints and residuals at w; samples that are done keep theirs."""
        state = self.state
        u = self.problem.u0 + self.prior.correction(w)
        active = (~state.done).nonzero().flatten()
        if self.problem.subset is None or len(active) == len(u):
            joints = self.problem.joints(u)
            return joints, self.rows(joints)
        decode, rows = self.problem.take(active)
        self.problem.decodes += len(active)
        part = decode(u[active])
        joints, residual = state.joints.clone(), state.residual.clone()
        joints[active], residual[active] = part, rows(part)
        return joints, residual

    def _pull(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted residuals, those of far groups cut to `reach`, and the weights without the cut."""
        gather = self.rows.group.clamp(min=0)
        hard = self.rows.group >= 0
        weight = self.rows.weight * torch.where(hard, self.state.trust.gather(1, gather), 1.0)
        far = self.config.reach / self.rows.errors(residual).clamp(min=self.config.reach)
        return weight * residual * torch.where(hard, far.gather(1, gather), 1.0), weight

    def _objective(self, residual: Tensor, w: Tensor) -> Float[Tensor, " batch"]:
        """What a step must lower: squares near, linear beyond `reach`, plus the prior; in double precision."""
        reach = self.config.reach
        error = self.rows.errors(residual).double()
        near = torch.where(error <= reach, error.square(), reach * (2 * error - reach))
        hard = ((self.weights * self.state.trust).double().square() * near).sum(1)
        soft = torch.where(self.rows.group < 0, self.rows.weight * residual, 0.0).double().square().sum(1)
        return hard + soft + self.config.mu * w.double().square().sum((-2, -1))

    # ------------------------------------------------------------------------------------------------------ the steps

    def _dense_step(self, pull: Tensor, weight: Tensor) -> tuple[Tensor, _Model]:
        """The dual solve, in double precision: J J' of rows that nearly agree loses half its digits."""
        state, mu = self.state, self.config.mu
        rows = (weight[..., None, None] * self.jacobian).flatten(2)
        w = state.w.flatten(1)
        gram = rows.double() @ rows.double().mT
        s = mu + state.nu.nan_to_num(0.0).double()
        floor = 1e-12 * gram.diagonal(dim1=1, dim2=2).amax(1) if gram.shape[1] else s
        damped = gram + torch.diag_embed((s + floor)[:, None].expand(gram.shape[:2]))
        toward = (mu / s)[:, None] * (rows @ w[..., None])[..., 0].double() - pull.double()
        dual = torch.cholesky_solve(toward[..., None], torch.linalg.cholesky(damped))[..., 0].to(w)
        step = (rows.mT @ dual[..., None])[..., 0] - (mu / s)[:, None].to(w) * w

        def model(moved: Tensor) -> Tensor:
            return (rows @ moved.flatten(1)[..., None])[..., 0]

        return step.view_as(state.w), model

    def _free_step(self, pull: Tensor, weight: Tensor) -> tuple[Tensor, _Model]:
        """The same minimiser by conjugate gradients on its normal equations, J as two products."""
        state, mu, problem = self.state, self.config.mu, self.problem
        u = problem.u0 + self.prior.correction(state.w)
        products = Linearised(lambda v: self.rows(problem.decode(v)), u)
        problem.decodes += 2 * len(u)

        def model(moved: Tensor) -> Tensor:
            problem.decodes += len(u)
            return weight * products.push(self.prior.correction(moved))

        def back(rows: Tensor) -> Tensor:
            problem.decodes += len(u)
            return self.prior.pull(products.pull(weight * rows))

        if bool(state.nu.isnan().any()):
            size = back(pull).square().sum((-2, -1)) / pull.square().sum(1).clamp(min=1e-12)
            state.nu = torch.where(state.nu.isnan(), self.config.nu * size, state.nu)
        s = (mu + state.nu)[:, None, None]
        step = conjugate_gradients(
            lambda d: back(model(d)) + s * d,
            -(back(pull) + mu * state.w),
            self.config.cg_iterations,
            self.config.cg_tolerance,
        )
        return step, model

    def _learn(self, moved: Tensor, change: Tensor, worth: Tensor) -> None:
        """Broyden's update: the least change of J that explains what the step did.

        A rejected step teaches, too, unless J was formed right here: then J is right and the step was too long.
        """
        length = moved.square().sum((-2, -1)).clamp(min=1e-20)
        surprise = change - torch.einsum("brmd,bmd->br", self.jacobian, moved)
        surprise = torch.where((worth & ~self.state.done)[:, None], surprise, 0.0)
        self.jacobian += (surprise / length[:, None])[..., None, None] * moved[:, None]

    # --------------------------------------------------------------------------------------------------- bookkeeping

    def _judge(self, better: Tensor, gain: Tensor, left: Tensor) -> None:
        """Damping and the Jacobian's age after a trial step."""
        state = self.state
        old = state.age > 0
        can_form = (state.formed < self.config.jacobians) & self.dense & ~self._polishing()
        good, poor = better & (gain > _GOOD), better & (gain < _POOR)
        state.misses = state.misses + (poor | ~better).long()
        calm = ~better | (left > _CALM)
        stalls = torch.where(calm, state.stalls + 1, 0)
        worth = (state.misses >= self.patience) & (poor | ~better)
        renew = old & can_form & (worth | (stalls >= _PATIENCE))
        state.misses = torch.where(renew, 0, state.misses)
        state.stalls = torch.where(renew, 0, stalls)
        state.nu = torch.where(good, state.nu * 0.1, state.nu)
        state.nu = torch.where(poor & ~renew, state.nu * 3, state.nu)
        harder = torch.where(gain < _AWFUL, 64.0, 8.0)
        state.nu = torch.where(
            ~better & (~renew | (gain < _AWFUL)), state.nu.clamp(min=self.config.mu) * harder, state.nu
        )
        state.age = torch.where(renew, _STALE, state.age + better.long())

    def _polishing(self) -> Bool[Tensor, " batch"]:
        return (self.rows.errors(self.state.residual) <= _POLISH * self.enough).all(1)

    def _move(self, better: Tensor, w: Tensor, joints: Tensor, residual: Tensor) -> None:
        state = self.state
        state.w = torch.where(better[:, None, None], w, state.w)
        state.joints = torch.where(better[:, None, None, None], joints, state.joints)
        state.residual = torch.where(better[:, None], residual, state.residual)

    def _settle(self) -> None:
        """Mark what is met; where nothing moves any more, let go of the far groups, or stop."""
        state, config = self.state, self.config
        errors = self.rows.errors(state.residual)
        state.met = (errors <= self.enough).all(1)
        stuck = ~state.met & (state.stalls >= torch.where(self._polishing(), 1, _PATIENCE))
        close = (errors <= self.rows.tolerance).all(1)
        last = stuck & ((state.releases >= config.releases) | close)
        state.done = state.done | state.met | last
        state.met = state.met | (state.done & close)
        release = stuck & ~last
        share = (self.rows.tolerance / errors.clamp(min=1e-12)).clamp(max=1.0)
        state.trust = torch.where(release[:, None] & (self.rows.tolerance > 0), share, state.trust)
        state.releases = state.releases + release.long()
        state.stalls = torch.where(release, 0, state.stalls)
        state.nu = torch.where(release, state.nu.clamp(max=1e-2), state.nu)

    def _finish(self, cancelled: bool) -> Refined:
        state, problem = self.state, self.problem
        errors = self.rows.errors(state.residual)
        correction = self.prior.correction(state.w)
        correction = torch.where((state.w != 0).any(-1).any(-1)[:, None, None], correction, 0.0)
        stopped: list[Stopped] = []
        for met, done in zip(state.met.tolist(), state.done.tolist()):
            stopped.append("met" if met else "best compromise" if done else "cancelled" if cancelled else "steps done")
        why = explain(
            self.jacobian if self.dense else None,
            self.rows,
            state.residual,
            self.prior.sizes(state.w).amax(1) > 0.98 * self.config.radius,
            stopped,
        )
        solution = Solution(correction, self.rows, self.prior.time, self.jacobian if self.dense else None)
        return Refined(
            u=problem.u0 + correction,
            joints=state.joints,
            residuals=problem.residuals(state.joints),
            trace=torch.stack(self.trace),
            solution=solution,
            stopped=stopped,
            unmet=problem.open_wishes(self.before, errors, why),
            decodes=problem.decodes,
        )


def _misfit(pull: Tensor, w: Tensor, mu: float) -> Float[Tensor, " batch"]:
    return pull.double().square().sum(1) + mu * w.double().square().sum((-2, -1))
