"""The paper's losses as pure functions, shared by training and by RouteSolver.

`cross_entropy` is L_CE, `anchor` L_anc, `anchor_support` L_anc^sup, `smoothness` L_sm, `feasibility` L_feas, `trust`
the trust-region term. One surprise: the solver's terms come as one number a sample. The paper averages L_sm and L_feas
over the batch; then a sample's result would depend on its batch mates, so the caller sums instead.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from anchorroute.observation import Observed
from anchorroute.scaffold import Support, residuals


def cross_entropy(
    logits: Float[Tensor, "batch tokens codes"],
    z: Int[Tensor, "batch tokens"],
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """L_CE: the mean over every token that is not padding (id -1), corrupted or not."""
    return F.cross_entropy(logits.flatten(0, 1), z.flatten(), ignore_index=-1, label_smoothing=label_smoothing)


def anchor(joints: Float[Tensor, "frames 22 3"], observed: Observed) -> Float[Tensor, ""]:
    """L_anc: the squared distances to a sample's anchors, summed, in square metres."""
    return residuals(joints, observed).vector.square().sum()


def anchor_support(
    joints: Float[Tensor, "frames 22 3"], target: Float[Tensor, "frames 22 3"], support: Support
) -> Float[Tensor, ""]:
    """L_anc^sup: squared distances to the true motion on the frames around a sample's anchors, summed."""
    return support.difference(joints, target).square().sum()


def smoothness(
    controlled: Float[Tensor, "batch frames dims"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """L_sm: the mean over time of the squared second difference of the controlled trajectory."""
    bend = controlled[:, 2:] - 2 * controlled[:, 1:-1] + controlled[:, :-2]
    return _mean_over(bend.square().sum(-1), lengths - 2)


def feasibility(
    root: Float[Tensor, "batch frames 3"], lengths: Int[Tensor, " batch"], v_max: float
) -> Float[Tensor, " batch"]:
    """L_feas: the mean over time of the squared excess of the root's step over `v_max` metres a frame."""
    step = torch.linalg.vector_norm(root[:, 1:] - root[:, :-1], dim=-1)
    return _mean_over((step - v_max).clamp(min=0).square(), lengths - 1)


def trust(u: Float[Tensor, "batch tokens code"], u0: Float[Tensor, "batch tokens code"]) -> Float[Tensor, " batch"]:
    """The squared Frobenius distance of the soft tokens from the generated ones."""
    return (u - u0).square().sum((-2, -1))


def _mean_over(values: Float[Tensor, "batch time"], counts: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Each row's mean over its first `counts` entries; padding never enters."""
    valid: Bool[Tensor, "batch time"] = torch.arange(values.shape[1], device=values.device) < counts[:, None]
    return torch.where(valid, values, 0.0).sum(-1) / counts.clamp(min=1)
