"""`refine`: S_res -> x+, three solvers behind one signature."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.observation import Observed
from anchorroute.routesolver import adam, gauss_newton
from anchorroute.routesolver.adam import Adam
from anchorroute.routesolver.gauss_newton import GaussNewton
from anchorroute.routesolver.problem import Problem
from anchorroute.routesolver.result import Callback, Cancel, Decode, Refined, Solution, Subset
from anchorroute.routesolver.rows import Term


@dataclass(frozen=True)
class Off:
    """No refinement: the generated motion as it is, measured."""


def refine(
    u0: Float[Tensor, "batch tokens code"],
    decode: Decode,
    observed: Sequence[Observed],
    lengths: Int[Tensor, " batch"],
    config: Adam | GaussNewton | Off,
    *,
    covariance: Float[Tensor, "code code"] | None = None,
    extra: Sequence[Term] = (),
    subset: Subset | None = None,
    warm: Solution | None = None,
    callback: Callback | None = None,
    cancel: Cancel | None = None,
) -> Refined:
    """Change the soft tokens so that the decoded motion meets its anchors.

    `decode` is called on whole batches and says which body the anchors are met on; its weights are constants here.
    `lengths` are frames. `covariance` is that of real latents over the code dimensions (`latent_covariance`);
    without it latents count as white with unit variance. `extra` are further rows (`rows`). With `subset`, samples
    that are done cost nothing more. `warm` is an earlier result's `solution`. Every sample is solved on its own.
    """
    problem = Problem.of(u0, decode, observed, lengths, extra, subset)
    with torch.no_grad():
        if isinstance(config, Off):
            return _measured(problem)
        if isinstance(config, Adam):
            return adam.solve(problem, config, covariance, warm, callback, cancel)
        return gauss_newton.solve(problem, config, covariance, warm, callback, cancel)


def _measured(problem: Problem) -> Refined:
    joints = problem.joints(problem.u0)
    errors = problem.rows.errors(problem.rows(joints))
    why = [dict.fromkeys(range(errors.shape[1]), "the solver is off") for _ in problem.observed]
    return Refined(
        u=problem.u0,
        joints=joints,
        residuals=problem.residuals(joints),
        trace=problem.mean_error(errors)[None],
        solution=Solution(torch.zeros_like(problem.u0)),
        stopped=["nothing to do"] * len(problem.u0),
        unmet=problem.open_wishes(errors, errors, why),
        decodes=problem.decodes,
    )


def carried(
    decode: Decode, u0: Float[Tensor, "batch tokens code"], joints: Float[Tensor, "batch frames 22 3"]
) -> Decode:
    """A decoder that returns exactly `joints` at `u0`: what the tokenizer loses of a given motion is carried along.

    With it, refining a motion that was not generated leaves alone what no anchor asks to change.
    """
    with torch.no_grad():
        lost = joints - decode(u0)

    def decoded(u: Tensor, /) -> Tensor:
        return decode(u) + lost

    return decoded
