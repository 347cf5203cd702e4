"""What goes into and comes out of `refine`, whichever solver runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.routesolver.rows import Rows
from anchorroute.scaffold import Residuals


class Decode(Protocol):
    """D: soft tokens -> joints, for the whole batch; differentiable once and, for many rows, twice."""

    def __call__(self, u: Float[Tensor, "batch tokens code"], /) -> Float[Tensor, "batch frames 22 3"]:
        """Joints in metres in the canonical frame; what lies beyond a clip's length is never looked at."""
        ...


Subset = Callable[[Int[Tensor, " some"]], Decode]
"""The decoder of some of the samples. With it, samples that are done cost nothing more."""

Stopped = Literal["met", "best compromise", "steps done", "cancelled", "nothing to do"]


@dataclass(frozen=True)
class Step:
    """What a callback sees after a step: `error` is each sample's mean distance in metres."""

    index: int
    of: int
    error: Float[Tensor, " batch"]
    done: int
    joints: Float[Tensor, "batch frames 22 3"]


Callback = Callable[[Step], None]
Cancel = Callable[[], bool]


@dataclass(frozen=True)
class Unmet:
    """A wish that stayed open: what it is (`anchor` 3, `heading` 3, `loop` 20), how far off, and why."""

    what: str
    index: int
    error: float
    before: float
    tolerance: float
    why: str

    def __str__(self) -> str:
        return f"{self.what} {self.index}: {1000 * self.error:.1f} mm off ({self.why})"


@dataclass(frozen=True)
class Solution:
    """What a later solve of nearly the same problem can start from. `jacobian` is in whitened coordinates."""

    correction: Float[Tensor, "batch tokens code"]
    rows: Rows | None = None
    time: Float[Tensor, "batch tokens columns"] | None = None
    jacobian: Float[Tensor, "batch rows columns code"] | None = None


@dataclass(frozen=True)
class Refined:
    """A refined batch. `trace` is each sample's mean distance before the first and after every step, in metres."""

    u: Float[Tensor, "batch tokens code"]
    joints: Float[Tensor, "batch frames 22 3"]
    residuals: list[Residuals]
    trace: Float[Tensor, "steps batch"]
    solution: Solution
    stopped: list[Stopped]
    unmet: list[tuple[Unmet, ...]]
    snapshots: Mapping[int, Float[Tensor, "batch tokens code"]] = field(default_factory=dict)
    """Adam only: the soft tokens after the numbers of steps that the configuration asked for."""
    decodes: int = 0
    """Passes through the decoder, forwards and row-wise backwards together, summed over samples."""
