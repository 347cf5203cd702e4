"""Naive surface nets: the zero set of a sampled field as a closed mesh, one vertex a crossed cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

Array = np.ndarray[Any, np.dtype[Any]]

_CORNERS = np.array([(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)])
_EDGES = [(a, b) for a in range(8) for b in range(a + 1, 8) if np.abs(_CORNERS[a] - _CORNERS[b]).sum() == 1]


def surface_nets(
    values: Float[np.ndarray, "x y z"],
) -> tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"]]:
    """Vertices in grid units and triangles, counter-clockwise from where the field is positive.

    The field must be positive on the grid's border.
    """
    corner = [
        values[i : values.shape[0] - 1 + i, j : values.shape[1] - 1 + j, k : values.shape[2] - 1 + k]
        for i, j, k in _CORNERS
    ]
    inside = np.stack([v < 0 for v in corner], axis=-1)
    crossed = inside.any(-1) & ~inside.all(-1)
    cells = np.argwhere(crossed)
    field = np.stack([v[crossed] for v in corner], axis=-1)
    sums, counts = np.zeros((len(cells), 3)), np.zeros(len(cells))
    for a, b in _EDGES:
        cuts = (field[:, a] < 0) != (field[:, b] < 0)
        share = np.where(cuts, field[:, a] / np.where(cuts, field[:, a] - field[:, b], 1.0), 0.0)
        sums += np.where(cuts[:, None], _CORNERS[a] + share[:, None] * (_CORNERS[b] - _CORNERS[a]), 0.0)
        counts += cuts
    number = np.full(crossed.shape, -1)
    number[crossed] = np.arange(len(cells))
    return cells + sums / counts[:, None], _faces(values, number)


def _faces(values: Array, number: Array) -> Array:
    """Every grid edge that the surface cuts joins the four cells around it by two triangles."""
    triangles = []
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        low, high = [slice(None)] * 3, [slice(None)] * 3
        low[axis], high[axis] = slice(0, -1), slice(1, None)
        before, after = values[tuple(low)] < 0, values[tuple(high)] < 0
        edges = np.argwhere(before != after)
        outward = before[tuple(edges.T)]
        around = []
        for du, dv in ((-1, -1), (0, -1), (0, 0), (-1, 0)):
            cell = edges.copy()
            cell[:, u] += du
            cell[:, v] += dv
            around.append(number[tuple(cell.T)])
        quad = np.stack(around, axis=-1)
        quad = np.where(outward[:, None], quad, quad[:, ::-1])
        triangles += [quad[:, [0, 1, 2]], quad[:, [0, 2, 3]]]
    return np.concatenate(triangles)
