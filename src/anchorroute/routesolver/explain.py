"""Why a wish stayed open, read off the last Jacobian."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorroute.routesolver.result import Stopped
from anchorroute.routesolver.rows import Rows

_DEAF = 1e-6
"""Metres a standard deviation: rows that answer less than this cannot be moved."""

_PARALLEL = 0.8
"""Cosine of two rows above which one cannot move without the other."""


def explain(
    jacobian: Float[Tensor, "batch rows columns code"] | None,
    rows: Rows,
    residual: Float[Tensor, "batch rows"],
    bounded: Bool[Tensor, " batch"],
    stopped: Sequence[Stopped],
) -> list[dict[int, str]]:
    """For each sample the groups beyond their tolerance, with the reason."""
    missed = (rows.errors(residual) > rows.tolerance) & (rows.tolerance > 0)
    found: list[dict[int, str]] = []
    for b, end in enumerate(stopped):
        groups = missed[b].nonzero().flatten().tolist()
        own = None if jacobian is None or not groups else jacobian[b].flatten(1)
        found.append({g: _why(own, rows, b, g, bool(bounded[b]), end) for g in groups})
    return found


def _why(own: Tensor | None, rows: Rows, b: int, g: int, bounded: bool, end: Stopped) -> str:
    if own is not None:
        mine = (rows.group[b] == g) & (rows.weight[b] > 0)
        if float(own[mine].norm()) < _DEAF:
            return "nothing the solver may change moves it: place and heading of the first frame are fixed"
        rival = _rival(own, rows, b, mine)
        if rival is not None:
            name, index = rows.names()[rival]
            return f"it contradicts {name} {index}: the two cannot move apart that far in the time between them"
    if bounded:
        return "it would need a motion further from real ones than the solver may go"
    if end == "cancelled":
        return "cancelled"
    return "the steps ran out" if end == "steps done" else "no motion near the generated one comes closer"


def _rival(own: Tensor, rows: Rows, b: int, mine: Tensor) -> int | None:
    """The group whose rows move most nearly as this one's do, if they do so closely."""
    unit = own / own.norm(dim=1, keepdim=True).clamp(min=1e-12)
    others = ~mine & (rows.weight[b] > 0) & (rows.group[b] >= 0)
    if not bool(others.any()):
        return None
    likeness = torch.where(others, (unit[mine] @ unit.T).abs().amax(0), 0.0)
    best = int(likeness.argmax())
    return int(rows.group[b, best]) if float(likeness[best]) > _PARALLEL else None
