"""Small decoders for solver tests: a random smooth network over the cumulative features, and a linear map."""

import torch
from torch import Tensor, nn

from anchorroute.motion import body, features
from anchorroute.motion.skeleton import PARENTS, REST_OFFSETS

CODE = 8


class Network(nn.Module):
    """Random convolutions onto the features of a standing body; the root integrates, as real features make it."""

    def __init__(self, seed: int = 0, fixed: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.fixed = fixed
        self.first = nn.Conv1d(CODE, 32, 3, padding=1)
        self.last = nn.Conv1d(32, 67, 3, padding=1)
        for layer in (self.first, self.last):
            nn.init.normal_(layer.weight, std=0.25, generator=generator)
            nn.init.zeros_(layer.bias)
        scale = torch.full((67,), 0.02)
        scale[0], scale[1:3] = 0.004, 0.02
        self.register_buffer("scale", scale)
        self.register_buffer("base", _standing())
        self.requires_grad_(False)

    def forward(self, u: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(u.transpose(1, 2))).repeat_interleave(4, dim=-1)
        rows = self.base + self.scale * self.last(hidden).transpose(1, 2)
        joints = features.to_joints(rows)
        return body.fixed_bones(joints) if self.fixed else joints


def _standing() -> Tensor:
    pose = torch.zeros(22, 3)
    for joint in range(1, 22):
        pose[joint] = pose[PARENTS[joint]] + torch.from_numpy(REST_OFFSETS[joint])
    row = torch.zeros(67)
    row[3] = 0.95
    row[4:] = (pose[1:] + torch.tensor([0.0, 0.95, 0.0])).flatten()
    return row


def linear(seed: int = 0, tokens: int = 10, code: int = CODE) -> tuple[Tensor, "LinearDecoder"]:
    """(matrix, decoder): joints = matrix @ u, flattened, a full random map."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(4 * tokens * 66, tokens * code, generator=generator) / (tokens * code) ** 0.5
    return matrix, LinearDecoder(matrix)


class LinearDecoder:
    """joints = matrix u."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def __call__(self, u: Tensor, /) -> Tensor:
        return (u.flatten(1) @ self.matrix.T).unflatten(1, (-1, 22, 3))
