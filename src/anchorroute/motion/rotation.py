"""Rotations, one convention for the whole package.

Quaternions are unit, ordered w, x, y, z, and rotate column vectors: `quat_apply(quat_multiply(a, b), v)` first turns
by `b`, then by `a`. Everything is torch, batched over leading axes and differentiable.
"""

import torch
from jaxtyping import Float
from torch import Tensor

_EPS = 1e-8


def normalise(v: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Unit vectors; a zero vector stays zero and its gradient stays finite."""
    return v / v.square().sum(-1, keepdim=True).clamp_min(_EPS**2).sqrt()


def quat_identity(like: Tensor) -> Float[Tensor, "4"]:
    """The rotation that does nothing, with `like`'s type and device."""
    return torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=like.dtype, device=like.device)


def quat_multiply(a: Float[Tensor, "*batch 4"], b: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """The rotation that turns by `b` first and by `a` second."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        (
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ),
        -1,
    )


def quat_inverse(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """The way back, for unit quaternions."""
    return torch.cat((q[..., :1], -q[..., 1:]), -1)


def quat_apply(q: Float[Tensor, "*batch 4"], v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3"]:
    """Turn vectors; batch axes broadcast."""
    xyz, v = torch.broadcast_tensors(q[..., 1:], v)
    t = 2.0 * torch.linalg.cross(xyz, v)
    return v + q[..., :1] * t + torch.linalg.cross(xyz, t)


def quat_to_matrix(q: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    """Rotation matrices whose columns are the turned axes."""
    w, x, y, z = q.unbind(-1)
    rows = (
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    )
    return torch.stack(rows, -1).reshape(*q.shape[:-1], 3, 3)


def matrix_to_quat(m: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    """Quaternions with w >= 0, accurate for every angle: of four ways to divide, the one by the largest number."""
    m00, m01, m02 = m[..., 0, :].unbind(-1)
    m10, m11, m12 = m[..., 1, :].unbind(-1)
    m20, m21, m22 = m[..., 2, :].unbind(-1)
    squares = torch.stack((m00 + m11 + m22, m00 - m11 - m22, m11 - m00 - m22, m22 - m00 - m11), -1)
    candidates = torch.stack(
        (
            torch.stack((squares[..., 0] + 1, m21 - m12, m02 - m20, m10 - m01), -1),
            torch.stack((m21 - m12, squares[..., 1] + 1, m10 + m01, m02 + m20), -1),
            torch.stack((m02 - m20, m10 + m01, squares[..., 2] + 1, m12 + m21), -1),
            torch.stack((m10 - m01, m20 + m02, m21 + m12, squares[..., 3] + 1), -1),
        ),
        -2,
    )
    best = squares.argmax(-1)[..., None, None].expand(*squares.shape[:-1], 1, 4)
    q = normalise(candidates.gather(-2, best).squeeze(-2))
    return torch.where(q[..., :1] < 0, -q, q)


def quat_about_y(angle: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch 4"]:
    """A turn about the vertical; a positive angle takes +Z towards +X (to the body's left)."""
    half = 0.5 * angle
    zero = torch.zeros_like(half)
    return torch.stack((half.cos(), zero, half.sin(), zero), -1)


def quat_between(u: Float[Tensor, "*batch 3"], v: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 4"]:
    """The smallest turn of `u` onto `v`; for opposite vectors any half turn, still a unit quaternion."""
    u, v = torch.broadcast_tensors(normalise(u), normalise(v))
    w = 1.0 + (u * v).sum(-1, keepdim=True)
    axis = torch.linalg.cross(u, v)
    # A half turn has no unique axis: take one across u, along the coordinate that u has least of.
    least = torch.nn.functional.one_hot(u.abs().argmin(-1), 3).to(u.dtype)
    half_turn = torch.cat((torch.zeros_like(w), normalise(torch.linalg.cross(u, least))), -1)
    opposite = w < 1e-6
    q = normalise(torch.cat((torch.where(opposite, torch.ones_like(w), w), axis), -1))
    return torch.where(opposite, half_turn, q)


def quat_slerp(
    a: Float[Tensor, "*batch 4"], b: Float[Tensor, "*batch 4"], t: Float[Tensor, "*batch"] | float
) -> Float[Tensor, "*batch 4"]:
    """The point at share `t` of the shorter way from `a` to `b`, at constant angular speed."""
    share = torch.as_tensor(t, dtype=a.dtype, device=a.device)[..., None]
    dot = (a * b).sum(-1, keepdim=True)
    b = torch.where(dot < 0, -b, b)
    angle = torch.acos(dot.abs().clamp(max=1.0 - 1e-7))
    sine = angle.sin().clamp_min(1e-4)
    near = angle < 1e-3
    wa = torch.where(near, 1.0 - share, ((1.0 - share) * angle).sin() / sine)
    wb = torch.where(near, share.expand_as(wa), (share * angle).sin() / sine)
    return normalise(wa * a + wb * b)


def quat_continuous(q: Float[Tensor, "*batch time joints 4"]) -> Float[Tensor, "*batch time joints 4"]:
    """The same rotations with signs chosen so that no quaternion jumps to its negative from frame to frame."""
    flips = ((q[..., 1:, :, :] * q[..., :-1, :, :]).sum(-1, keepdim=True) < 0).to(q.dtype)
    signs = 1.0 - 2.0 * torch.remainder(flips.cumsum(-3), 2.0)
    return torch.cat((q[..., :1, :, :], q[..., 1:, :, :] * signs), -3)


def matrix_to_6d(m: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 6"]:
    """First column, then second column."""
    return torch.cat((m[..., :, 0], m[..., :, 1]), -1)


def matrix_from_6d(d: Float[Tensor, "*batch 6"]) -> Float[Tensor, "*batch 3 3"]:
    """The rotation whose first two columns are nearest by Gram-Schmidt."""
    return frame(d[..., :3], d[..., 3:])


def frame(x: Float[Tensor, "*batch 3"], y: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
    """The right-handed frame with its first axis along `x` and its second as near to `y` as that allows."""
    first = normalise(x)
    second = normalise(y - (first * y).sum(-1, keepdim=True) * first)
    return torch.stack((first, second, torch.linalg.cross(first, second)), -1)
