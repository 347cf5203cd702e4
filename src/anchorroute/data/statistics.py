"""Mean and standard deviation as HumanML3D computes them: one deviation for each group of numbers, not for each number.

The groups are root yaw, root velocity, root height, joint positions, rotations, velocities and contacts. The data
set's evaluator uses other deviations on purpose (root and contacts divided by 25): those belong to the evaluator.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from anchorroute.motion.features import DIM, SLICES


@dataclass(frozen=True)
class Moments:
    """Sums over rows from which mean and deviation follow; adding in a fixed order gives the same bits every time."""

    count: int
    total: Float[np.ndarray, "263"]
    squares: Float[np.ndarray, "263"]

    @staticmethod
    def of(rows: Float[np.ndarray, "rows 263"]) -> "Moments":
        """The moments of some rows."""
        wide = rows.astype(np.float64)
        return Moments(len(wide), wide.sum(0), np.square(wide).sum(0))

    @staticmethod
    def merged(parts: Iterable["Moments"]) -> "Moments":
        """All parts' moments together, added in the order given."""
        count, total, squares = 0, np.zeros(DIM), np.zeros(DIM)
        for part in parts:
            count, total, squares = count + part.count, total + part.total, squares + part.squares
        return Moments(count, total, squares)


def mean_std(moments: Moments) -> tuple[Float[np.ndarray, "263"], Float[np.ndarray, "263"]]:
    """`Mean.npy` and `Std.npy`: each number's mean, and its group's average deviation."""
    mean = moments.total / moments.count
    std = np.sqrt(np.maximum(moments.squares / moments.count - np.square(mean), 0.0))
    for part in SLICES:
        std[part] = std[part].mean()
    return mean.astype(np.float32), std.astype(np.float32)
