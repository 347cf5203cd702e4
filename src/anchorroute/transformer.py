"""The token networks: `Transformer` predicts clean first-level tokens, `ResidualTransformer` the finer levels.

Both are pre-norm transformers with rotary positions. Text enters twice, as the paper asks: the pooled vector moves
every layer's norms (AdaLN), the token states are read by cross-attention. Anchors enter as `Memory`: extra keys and
values that are handed in as tensors, so this file knows nothing of anchors, and without memory the network *is* the
prior, bit for bit.

Surprises:
- a dropped text (`drop`) becomes one learned null token and a learned null vector, not zeros;
- what depends on text and memory alone is computed once (`context`) and reused in every sampling step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from anchorroute.layers import Branch, Layer, LayerContext, Memory, TextContext, padding_bias, rotate

__all__ = [
    "Backbone",
    "Branch",
    "Layer",
    "LayerContext",
    "Memory",
    "ResidualTransformer",
    "TextContext",
    "Transformer",
    "TransformerConfig",
    "padding_bias",
    "rotate",
]


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a token network."""

    vocabulary: int = 512
    width: int = 256
    layers: int = 8
    heads: int = 8
    hidden: int = 1024
    text_width: int = 384
    dropout: float = 0.1
    time_input: bool = False
    """Tell the network the time t of the path. The paper's p(z1 | zt, text) is not told."""
    levels: int = 1
    """ResidualTransformer only: all levels of the tokenizer, the first included."""
    code_width: int = 128
    """ResidualTransformer only: width of the tokenizer's codes."""


def open() -> TransformerConfig:
    """The prior that ships: 10.6 M parameters."""
    return TransformerConfig()


def paper() -> TransformerConfig:
    """The paper's scale: 512 x 8."""
    return TransformerConfig(width=512, hidden=2048)


def debug() -> TransformerConfig:
    """Tiny, for the debug tokenizer's 32 codes."""
    return TransformerConfig(vocabulary=32, width=32, layers=2, heads=2, hidden=64, dropout=0.0)


def residual_open() -> TransformerConfig:
    """The finer levels' network that ships: 2.7 M parameters."""
    return TransformerConfig(width=192, layers=3, heads=6, hidden=768, levels=6)


def residual_paper() -> TransformerConfig:
    """The finer levels at MoMask's scale."""
    return TransformerConfig(width=384, heads=6, levels=6, code_width=512)


def residual_debug() -> TransformerConfig:
    """Tiny, for the debug tokenizer's 3 levels."""
    return replace(debug(), levels=3, code_width=16)


@dataclass(frozen=True)
class Context:
    """Everything that text, time and memory say, ready for any number of passes over tokens."""

    layers: tuple[LayerContext, ...]
    final: tuple[Float[Tensor, "b 1 d"], ...]
    text_bias: Float[Tensor, "b 1 1 s"]
    branches: tuple[Branch, ...] = ()


class Backbone(nn.Module):
    """The layers and everything that feeds them but the tokens; `Transformer` and `ResidualTransformer` add ends."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        d = config.width
        self.text_in = nn.Sequential(nn.Linear(config.text_width, d), nn.LayerNorm(d))
        # Encoders' pooled vectors have unit length, so their entries are tiny: the first norm undoes that.
        self.condition = nn.Sequential(
            nn.LayerNorm(config.text_width), nn.Linear(config.text_width, d), nn.SiLU(), nn.Linear(d, d)
        )
        self.null_pooled = nn.Parameter(torch.randn(config.text_width) * 0.02)
        self.null_token = nn.Parameter(torch.randn(config.text_width) * 0.02)
        self.layers = nn.ModuleList(
            Layer(d, config.heads, config.hidden, config.dropout, config.layers) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.modulate = nn.Linear(d, 2 * d)
        self.drop = nn.Dropout(config.dropout)
        nn.init.zeros_(self.modulate.weight)
        nn.init.zeros_(self.modulate.bias)

    def context(
        self,
        text: TextContext,
        memory: Sequence[Memory] = (),
        drop: Bool[Tensor, "b"] | None = None,
        extra: Float[Tensor, "b d"] | None = None,
    ) -> Context:
        """What text and memory say to every layer. `drop`: samples whose text is withheld."""
        pooled, tokens, mask = text.pooled, text.tokens, text.mask
        if drop is not None:
            only_first = torch.arange(mask.shape[1], device=mask.device) == 0
            pooled = torch.where(drop[:, None], self.null_pooled.to(pooled.dtype), pooled)
            tokens = torch.where(drop[:, None, None], self.null_token.to(tokens.dtype), tokens)
            mask = torch.where(drop[:, None], only_first, mask)
        condition = self.condition(pooled)
        for addition in (extra, *(m.condition for m in memory)):
            condition = condition if addition is None else condition + addition
        condition, states = F.silu(condition), self.text_in(tokens)
        layers = tuple(
            layer.context(condition, states, memory, i)  # type: ignore[operator]
            for i, layer in enumerate(self.layers)
        )
        final = tuple(self.modulate(condition)[:, None].chunk(2, dim=-1))
        branches = tuple(m.branch for m in memory if m.branch is not None)
        return Context(layers, final, padding_bias(mask), branches)

    def run(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, context: Context
    ) -> Float[Tensor, "b l d"]:
        """Embedded tokens -> normalised hidden states. `mask` None: every token is valid."""
        bias = None if mask is None else padding_bias(mask)
        x = self.drop(x)
        streams = [branch.start(x) for branch in context.branches]
        for index, (layer, part) in enumerate(zip(self.layers, context.layers, strict=True)):
            x = layer(x, bias, context.text_bias, part)
            for i, branch in enumerate(context.branches):
                added, streams[i] = branch.step(index, x, streams[i], bias, part)
                x = x + added
        shift, scale = context.final
        hidden: Tensor = self.norm(x) * (1 + scale) + shift
        return hidden


class Transformer(Backbone):
    """p(z1 | zt, text, memory) over the first level's codes."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.head = nn.Linear(config.width, config.vocabulary)
        self.time = nn.Linear(_TIME_WAVES * 2, config.width) if config.time_input else None
        nn.init.normal_(self.embedding.weight, std=0.5)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        z: Int[Tensor, "b l"],
        text: TextContext,
        mask: Bool[Tensor, "b l"] | None,
        memory: Sequence[Memory] = (),
        *,
        drop: Bool[Tensor, "b"] | None = None,
        t: Float[Tensor, "b"] | None = None,
    ) -> Float[Tensor, "b l v"]:
        """Logits of the clean tokens. Negative ids are padding and must be masked."""
        return self.logits(z, mask, self.context(text, memory, drop, self.time_condition(t)))

    def time_condition(self, t: Float[Tensor, "b"] | None) -> Float[Tensor, "b d"] | None:
        """What the time adds to the condition; None for a network that is not told the time."""
        if self.time is None or t is None:
            return None
        waves = t[:, None] * 2.0 ** torch.arange(_TIME_WAVES, device=t.device) * torch.pi
        added: Tensor = self.time(torch.cat((waves.sin(), waves.cos()), dim=-1))
        return added

    def logits(
        self, z: Int[Tensor, "b l"], mask: Bool[Tensor, "b l"] | None, context: Context
    ) -> Float[Tensor, "b l v"]:
        """The same from a prepared context."""
        logits: Tensor = self.head(self.run(self.embedding(z.clamp(min=0)), mask, context))
        return logits

    def predictor(
        self, text: TextContext, mask: Bool[Tensor, "b l"] | None, memory: Sequence[Memory] = ()
    ) -> Callable[[Tensor, float, bool], tuple[Tensor, Tensor | None]]:
        """For `tmd.sample`: (z, t, guided) -> logits with the text and, if guided, without it. Memory stays in both."""
        prepared: dict[bool, Context] = {}

        def predict(z: Tensor, t: float, guided: bool) -> tuple[Tensor, Tensor | None]:
            times = 2 if guided else 1
            if guided not in prepared or self.time is not None:
                now = torch.full((times * z.shape[0],), t, device=z.device)
                prepared[guided] = self.context(*_both(text, memory, guided), self.time_condition(now))
            both = self.logits(z.repeat(times, 1), None if mask is None else mask.repeat(times, 1), prepared[guided])
            return (both[: z.shape[0]], both[z.shape[0] :]) if guided else (both, None)

        return predict


_TIME_WAVES = 8


class ResidualTransformer(Backbone):
    """p(z_q | levels before q, text, memory): one pass a level, from the summed codes of the levels before it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        if config.levels < 2:
            raise ValueError(f"a tokenizer of {config.levels} level leaves nothing to refine; leave this network out")
        self.input = nn.Linear(config.code_width, config.width)
        self.level = nn.Embedding(config.levels - 1, config.width)
        self.heads_weight = nn.Parameter(torch.randn(config.levels - 1, config.vocabulary, config.width) * 0.02)
        self.heads_bias = nn.Parameter(torch.zeros(config.levels - 1, config.vocabulary))
        # Codes have the scale of the tokenizer's latents, which training decides: set by `set_scale`.
        self.register_buffer("scale", torch.ones(()))

    scale: Tensor

    def set_scale(self, codebooks: Float[Tensor, "q v d"]) -> None:
        """Divide inputs by the root mean square of the first level's codes."""
        self.scale.copy_(codebooks[0].square().mean().sqrt())

    def forward(
        self,
        u: Float[Tensor, "b l du"],
        level: int | Int[Tensor, "b"],
        text: TextContext,
        mask: Bool[Tensor, "b l"] | None,
        memory: Sequence[Memory] = (),
        *,
        drop: Bool[Tensor, "b"] | None = None,
    ) -> Float[Tensor, "b l v"]:
        """Logits of `level` (1 = the second; one for all samples or one each) from u = the summed codes before it."""
        told = self.level.weight[torch.as_tensor(level, device=u.device) - 1].expand(u.shape[0], -1)
        context = self.context(text, memory, drop, told)
        hidden = self.run(self.input(u / self.scale), mask, context)
        if isinstance(level, int):
            return F.linear(hidden, self.heads_weight[level - 1], self.heads_bias[level - 1])
        weight, bias = self.heads_weight[level - 1], self.heads_bias[level - 1]
        return torch.einsum("bld,bvd->blv", hidden, weight) + bias[:, None]

    def predictor(
        self, text: TextContext, mask: Bool[Tensor, "b l"] | None, memory: Sequence[Memory] = ()
    ) -> Callable[[Tensor, int, bool], tuple[Tensor, Tensor | None]]:
        """For `tmd.sample_levels`: (u, level, guided) -> logits with the text and, if guided, without it."""

        def predict(u: Tensor, level: int, guided: bool) -> tuple[Tensor, Tensor | None]:
            times, b = (2 if guided else 1), u.shape[0]
            text_, memory_, drop = _both(text, memory, guided)
            masks = None if mask is None else mask.repeat(times, 1)
            both = self(u.repeat(times, 1, 1), level, text_, masks, memory_, drop=drop)
            return (both[:b], both[b:]) if guided else (both, None)

        return predict


@dataclass(frozen=True)
class _Doubled:
    pooled: Tensor
    tokens: Tensor
    mask: Tensor


def _both(
    text: TextContext, memory: Sequence[Memory], guided: bool
) -> tuple[TextContext, Sequence[Memory], Tensor | None]:
    """The batch twice, its second half without text; or the batch as it is."""
    if not guided:
        return text, memory, None
    b = text.pooled.shape[0]
    doubled = _Doubled(text.pooled.repeat(2, 1), text.tokens.repeat(2, 1, 1), text.mask.repeat(2, 1))
    return doubled, [m.repeat(2) for m in memory], torch.arange(2 * b, device=text.mask.device) >= b
