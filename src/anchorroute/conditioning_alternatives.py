"""What the paper compares AnchorKV with: a cross-attention path and a ControlNet-style copy of the prior.

Both read the same H^s and hand out the same `Memory`, so training, sampling and evaluation do not know which they
have. Instead of keys and values the memory carries a branch that runs beside the frozen layers and adds to their
stream, through linears that start at zero. A sample without anchors gets exactly nothing added.
"""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from anchorroute.transformer import Backbone, Layer, LayerContext, Memory, padding_bias, rotate


def _zero(linear: nn.Linear) -> nn.Linear:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def _heads(x: Float[Tensor, "b n d"], heads: int) -> Float[Tensor, "b h n dh"]:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _branch_memory(branch: "CrossAttentionBranch | ControlNetBranch", mask: Bool[Tensor, "b s"]) -> Memory:
    return Memory(keys=(), values=(), mask=mask, branch=branch)


class CrossAttentionReader(nn.Module):
    """One full cross-attention to H^s after every layer."""

    def __init__(self, memory_width: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.query = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.keys = nn.ModuleList(nn.Linear(memory_width, width) for _ in range(layers))
        self.values = nn.ModuleList(nn.Linear(memory_width, width) for _ in range(layers))
        self.out = nn.ModuleList(_zero(nn.Linear(width, width)) for _ in range(layers))

    def start_from(self, network: Backbone) -> None:
        """Nothing of the prior is copied."""

    def forward(self, memory: Float[Tensor, "b s d"], mask: Bool[Tensor, "b s"]) -> Memory:
        """A memory whose branch attends to H^s."""
        present = mask.any(dim=1)
        readable = mask | ~present[:, None]  # attention over nothing would be NaN; `present` silences it
        keys = tuple(rotate(_heads(layer(memory), self.heads)) for layer in self.keys)
        values = tuple(_heads(layer(memory), self.heads) for layer in self.values)
        branch = CrossAttentionBranch(self, keys, values, padding_bias(readable), present[:, None, None])
        return _branch_memory(branch, mask)


@dataclass(frozen=True)
class CrossAttentionBranch:
    """The cross-attention path over one batch's H^s."""

    module: CrossAttentionReader
    keys: tuple[Float[Tensor, "b h s dh"], ...]
    values: tuple[Float[Tensor, "b h s dh"], ...]
    bias: Float[Tensor, "b 1 1 s"]
    present: Bool[Tensor, "b 1 1"]

    def start(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:
        """This path reads the prior's stream and keeps none of its own."""
        return x

    def step(
        self, index: int, x: Tensor, own: Tensor, bias: Tensor | None, context: LayerContext
    ) -> tuple[Tensor, Tensor]:
        """What H^s adds after layer `index`."""
        query = rotate(_heads(self.module.query[index](self.module.norm(x)), self.module.heads))
        k, v = self.keys[index].to(query.dtype), self.values[index].to(query.dtype)
        read = F.scaled_dot_product_attention(query, k, v, self.bias.to(query.dtype))
        return self.module.out[index](read.transpose(1, 2).flatten(2)) * self.present, own

    def repeat(self, times: int) -> "CrossAttentionBranch":
        """The same for `times` copies of the batch."""
        return replace(
            self,
            keys=tuple(k.repeat(times, 1, 1, 1) for k in self.keys),
            values=tuple(v.repeat(times, 1, 1, 1) for v in self.values),
            bias=self.bias.repeat(times, 1, 1, 1),
            present=self.present.repeat(times, 1, 1),
        )


class _Copy(nn.Module):
    """The self-attention and feed-forward halves of a layer, under the frozen layer's modulation."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        bias: Float[Tensor, "b 1 1 l"] | None,
        modulation: tuple[Float[Tensor, "b 1 d"], ...],
    ) -> Float[Tensor, "b l d"]:
        shift1, scale1, shift2, scale2 = modulation
        q, k, v = (_heads(part, self.heads) for part in self.qkv(self.norm(x) * (1 + scale1) + shift1).chunk(3, dim=-1))
        read = F.scaled_dot_product_attention(rotate(q), rotate(k), v, None if bias is None else bias.to(q.dtype))
        x = x + self.out(read.transpose(1, 2).flatten(2))
        grown: Tensor = self.down(F.gelu(self.up(self.norm(x) * (1 + scale2) + shift2)))
        return x + grown

    def start_from(self, layer: Layer) -> None:
        """Take the frozen layer's weights."""
        for name in ("qkv", "out", "up", "down"):
            getattr(self, name).load_state_dict(getattr(layer, name).state_dict())


class ControlNetReader(nn.Module):
    """A trainable copy of the layers, fed with the tokens plus H^s, added back through linears that start at zero."""

    def __init__(self, memory_width: int, width: int, layers: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.enter = _zero(nn.Linear(memory_width, width))
        self.copies = nn.ModuleList(_Copy(width, heads, hidden) for _ in range(layers))
        self.leave = nn.ModuleList(_zero(nn.Linear(width, width)) for _ in range(layers))

    def start_from(self, network: Backbone) -> None:
        """Copy the frozen network's halves; without this the copies start at random."""
        for copy, layer in zip(self.copies, network.layers, strict=True):
            copy.start_from(layer)  # type: ignore[operator]

    def forward(self, memory: Float[Tensor, "b s d"], mask: Bool[Tensor, "b s"]) -> Memory:
        """A memory whose branch runs the copies."""
        entering = self.enter(memory) * mask[..., None]
        return _branch_memory(ControlNetBranch(self, entering, mask.any(dim=1)[:, None, None]), mask)


@dataclass(frozen=True)
class ControlNetBranch:
    """The copied path over one batch's H^s."""

    module: ControlNetReader
    entering: Float[Tensor, "b s d"]
    present: Bool[Tensor, "b 1 1"]

    def start(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:
        """The tokens plus H^s; both are token-aligned."""
        entering = self.entering[:, : x.shape[1]]
        return x + F.pad(entering, (0, 0, 0, x.shape[1] - entering.shape[1]))

    def step(
        self, index: int, x: Tensor, own: Tensor, bias: Tensor | None, context: LayerContext
    ) -> tuple[Tensor, Tensor]:
        """What the copy of layer `index` adds."""
        own = self.module.copies[index](own, bias, context.modulation)
        return self.module.leave[index](own) * self.present, own

    def repeat(self, times: int) -> "ControlNetBranch":
        """The same for `times` copies of the batch."""
        return replace(self, entering=self.entering.repeat(times, 1, 1), present=self.present.repeat(times, 1, 1))
