"""What the token networks are made of: attention with rotary positions, the memory it may read, one pre-norm layer.

Surprise: memory keys are rotated here, at positions 0..S-1. Memory is token-aligned, so "the anchor two tokens ahead"
looks alike anywhere in the clip.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F


@runtime_checkable
class TextContext(Protocol):
    """What the networks read of a text; `text.Text` is one."""

    @property
    def pooled(self) -> Float[Tensor, "b e"]:
        """One vector a text."""

    @property
    def tokens(self) -> Float[Tensor, "b s e"]:
        """One state a word piece."""

    @property
    def mask(self) -> Bool[Tensor, "b s"]:
        """True where there is a word piece."""


@runtime_checkable
class Branch(Protocol):
    """A path beside the layers, for the alternatives to AnchorKV; it adds to the stream after every layer."""

    def start(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l d"]:
        """The branch's own stream before the first layer."""

    def step(
        self,
        index: int,
        x: Float[Tensor, "b l d"],
        own: Float[Tensor, "b l d"],
        bias: Float[Tensor, "b 1 1 l"] | None,
        context: "LayerContext",
    ) -> tuple[Float[Tensor, "b l d"], Float[Tensor, "b l d"]]:
        """After layer `index`: what it adds, and its own stream from here on."""

    def repeat(self, times: int) -> "Branch":
        """The same for `times` copies of the batch."""


@dataclass(frozen=True)
class Memory:
    """Extra keys and values for every layer, and what goes with them. `conditioning` makes these from anchors.

    A sample whose mask is all False has no anchors: gates do not touch it.
    """

    keys: tuple[Float[Tensor, "b h s dh"], ...]
    """Per layer, not rotated."""
    values: tuple[Float[Tensor, "b h s dh"], ...]
    mask: Bool[Tensor, "b s"]
    """True where a key is valid."""
    bias: tuple[Float[Tensor, "h"], ...] | None = None
    """Per layer, added to the logits of these keys."""
    text_gate: tuple[Float[Tensor, "h"], ...] | None = None
    """Per layer, text cross-attention heads are multiplied by 1 + g."""
    memory_gate: tuple[Float[Tensor, "h"], ...] | None = None
    """Per layer, these keys and values are multiplied by 1 + g."""
    condition: Float[Tensor, "b d"] | None = None
    """Added to the AdaLN input."""
    branch: Branch | None = None
    """A path beside the layers; with it, `keys` and `values` may be empty."""

    def repeat(self, times: int) -> "Memory":
        """The same memory for `times` copies of the batch, one after the other."""
        return replace(
            self,
            keys=tuple(k.repeat(times, 1, 1, 1) for k in self.keys),
            values=tuple(v.repeat(times, 1, 1, 1) for v in self.values),
            mask=self.mask.repeat(times, 1),
            condition=None if self.condition is None else self.condition.repeat(times, 1),
            branch=None if self.branch is None else self.branch.repeat(times),
        )


@dataclass(frozen=True)
class LayerContext:
    """What one layer needs besides the tokens."""

    modulation: tuple[Float[Tensor, "b 1 d"], ...]
    """Shift and scale before self-attention, shift and scale before the feed-forward part."""
    text_keys: Float[Tensor, "b h s dh"]
    text_values: Float[Tensor, "b h s dh"]
    text_gate: Float[Tensor, "b h 1 1"] | None
    memory_keys: Float[Tensor, "b h m dh"] | None
    memory_values: Float[Tensor, "b h m dh"] | None
    memory_bias: Float[Tensor, "b h 1 m"] | None


def rotate(x: Float[Tensor, "b h n dh"], base: float = 10000.0) -> Float[Tensor, "b h n dh"]:
    """Rotary positions: pair (i, i + dh/2) of place n turns by n * base^(-2i/dh)."""
    half = x.shape[-1] // 2
    # In float32 and on plain indices, so that a place's angle depends on neither batch nor autocast.
    rates = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def padding_bias(mask: Bool[Tensor, "b n"]) -> Float[Tensor, "b 1 1 n"]:
    """0 for valid keys, minus infinity for the others."""
    zero = torch.zeros(mask.shape, device=mask.device)
    return zero.masked_fill(~mask, -torch.inf)[:, None, None]


def attend(
    q: Float[Tensor, "b h n dh"],
    k: Float[Tensor, "b h m dh"],
    v: Float[Tensor, "b h m dh"],
    bias: Float[Tensor, "#b #h #n m"] | None,
) -> Float[Tensor, "b h n dh"]:
    """softmax(q k' / sqrt(dh) + bias) v; `bias` broadcasts."""
    bias = None if bias is None else bias.to(q.dtype)
    if q.dtype == torch.bfloat16 and not q.is_cuda:
        # torch's fused attention on CPU has a backward pass in bfloat16 that is five times slower than this.
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return torch.softmax(scores if bias is None else scores + bias, dim=-1) @ v
    return F.scaled_dot_product_attention(q, k, v, bias)


class Layer(nn.Module):
    """Self-attention (with memory), text cross-attention, feed-forward; pre-norm, modulated by the condition."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float, depth: int) -> None:
        super().__init__()
        d = width
        self.heads = heads
        self.norm1 = nn.LayerNorm(d, elementwise_affine=False)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.text_query = nn.Linear(d, d)
        self.text_kv = nn.Linear(d, 2 * d)
        self.text_out = nn.Linear(d, d)
        self.norm3 = nn.LayerNorm(d, elementwise_affine=False)
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)
        self.modulate = nn.Linear(d, 4 * d)
        self.drop = nn.Dropout(dropout)
        for module in (self.out, self.text_out, self.down):
            nn.init.normal_(module.weight, std=0.02 / (2 * depth) ** 0.5)
            nn.init.zeros_(module.bias)
        nn.init.zeros_(self.modulate.weight)
        nn.init.zeros_(self.modulate.bias)

    def context(
        self, condition: Float[Tensor, "b d"], text: Float[Tensor, "b s d"], memory: Sequence[Memory], index: int
    ) -> LayerContext:
        """Everything about this layer that does not depend on the motion tokens."""
        modulation = tuple(self.modulate(condition)[:, None].chunk(4, dim=-1))
        keys, values = (self._split(part) for part in self.text_kv(text).chunk(2, dim=-1))
        parts = [_layer_memory(m, index) for m in memory if m.keys]
        gates = [_gate(m.text_gate[index], m) for m in memory if m.text_gate is not None]
        return LayerContext(
            modulation,
            keys,
            values,
            text_gate=torch.stack(gates).prod(0) if gates else None,
            memory_keys=torch.cat([p[0] for p in parts], dim=2) if parts else None,
            memory_values=torch.cat([p[1] for p in parts], dim=2) if parts else None,
            memory_bias=torch.cat([p[2] for p in parts], dim=3) if parts else None,
        )

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        bias: Float[Tensor, "b 1 1 l"] | None,
        text_bias: Float[Tensor, "b 1 1 s"],
        context: LayerContext,
    ) -> Float[Tensor, "b l d"]:
        """One layer; `bias` hides padded tokens, `text_bias` absent word pieces."""
        shift1, scale1, shift2, scale2 = context.modulation
        x = x + self.drop(self._self_attention(self.norm1(x) * (1 + scale1) + shift1, bias, context))
        x = x + self.drop(self._text_attention(self.norm2(x), text_bias, context))
        hidden = F.gelu(self.up(self.norm3(x) * (1 + scale2) + shift2))
        return x + self.drop(self.down(hidden))

    def _self_attention(self, x: Tensor, bias: Tensor | None, context: LayerContext) -> Tensor:
        q, k, v = (self._split(part) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = rotate(q), rotate(k)
        if context.memory_keys is not None:
            assert context.memory_values is not None and context.memory_bias is not None
            own = torch.zeros(x.shape[0], 1, 1, x.shape[1], device=x.device) if bias is None else bias
            own = own.expand(-1, self.heads, -1, -1)
            bias = torch.cat((own, context.memory_bias), dim=-1)
            k = torch.cat((k, context.memory_keys.to(k.dtype)), dim=2)
            v = torch.cat((v, context.memory_values.to(v.dtype)), dim=2)
        heads = attend(q, k, v, bias)
        out: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return out

    def _text_attention(self, x: Tensor, text_bias: Tensor, context: LayerContext) -> Tensor:
        q = self._split(self.text_query(x))
        k, v = context.text_keys.to(q.dtype), context.text_values.to(q.dtype)
        heads = attend(q, k, v, text_bias)
        if context.text_gate is not None:
            heads = heads * context.text_gate.to(heads.dtype)
        out: Tensor = self.text_out(heads.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n dh"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _gate(gate: Float[Tensor, "h"], memory: Memory) -> Float[Tensor, "b h 1 1"]:
    present = memory.mask.any(dim=1).to(gate.dtype)
    return 1 + present[:, None, None, None] * gate[None, :, None, None]


def _layer_memory(memory: Memory, index: int) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = memory.keys[index], memory.values[index]
    if memory.memory_gate is not None:
        gate = _gate(memory.memory_gate[index], memory)
        keys, values = keys * gate, values * gate
    bias = padding_bias(memory.mask).expand(-1, keys.shape[1], -1, -1)
    if memory.bias is not None:
        bias = bias + memory.bias[index][None, :, None, None]
    return rotate(keys), values, bias
