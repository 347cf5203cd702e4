"""c_t -> H^s -> keys and values in every layer of the frozen prior: "Dual-Context Conditioning and AnchorKV".

`ScaffoldEncoder` brings c_t to one vector a token, `AnchorKV` writes low-rank keys and values from it for every layer,
the dual context adds a condition vector and gates per head. A `Conditioner` is one control family's adapter; its
product is a `Memory`, which the prior takes or leaves. Families compose: several memories stand side by side.

Surprises. Appended keys take attention even when their values are zero, so an adapter starts near the prior, not at
it; what is bit-equal to the prior is a call without memory. The finer token levels have a network of their own, of
another width: `NetworkConfig` describes its part of the adapter, without which it would undo what the anchors asked.
Beside c_t the encoder sees its continuation from the origin, where every canonical clip starts, to the first anchor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from anchorroute import scaffold
from anchorroute.anchors import FAMILIES, Family, Observed, family, split
from anchorroute.conditioning_alternatives import ControlNetReader, CrossAttentionReader
from anchorroute.errors import RequestError
from anchorroute.transformer import Backbone, Memory, TransformerConfig

Kind = Literal["anchor-kv", "cross-attention", "controlnet"]
Initial = Literal["zero-values", "noise"]

#: Frames a token, as the motion tokenizer has them.
RATIO = 4


@dataclass(frozen=True)
class NetworkConfig:
    """One network that reads the anchors: its sizes, and the rank of what is written for it."""

    width: int
    layers: int
    heads: int
    hidden: int
    rank: int = 64

    @classmethod
    def of(cls, network: TransformerConfig, rank: int = 64) -> "NetworkConfig":
        """The sizes of a token network."""
        return cls(network.width, network.layers, network.heads, network.hidden, rank)


@dataclass(frozen=True)
class ConditionerConfig:
    """An adapter's sizes and switches. `prior` and `residual` are the networks that it writes for."""

    family: str
    prior: NetworkConfig
    residual: NetworkConfig | None = None
    kind: Kind = "anchor-kv"
    hidden: int = 128
    dual: bool = True
    """AnchorKV only: the condition vector and the gates beside the keys and values."""
    initial: Initial = "zero-values"
    outside: bool = True
    """Show the encoder a straight line from the origin to the first anchor, and the last anchor held."""
    gait: bool = True
    """Show the encoder how fast the prior's path goes and turns, whichever way it heads: tokens know no more."""

    @classmethod
    def of(
        cls,
        name: str,
        prior: TransformerConfig,
        residual: TransformerConfig | None = None,
        *,
        rank: int = 64,
        fine_rank: int = 12,
        **changes: object,
    ) -> "ConditionerConfig":
        """The adapter of a family for a prior, and for the network of the finer levels if there is one."""
        fine = None if residual is None else NetworkConfig.of(residual, fine_rank)
        return cls(family(name).name, NetworkConfig.of(prior, rank), fine, **changes)  # type: ignore[arg-type]


class ScaffoldEncoder(nn.Module):
    """c_t -> H^s: convolutions that follow the tokenizer's downsampling by 4.

    Padding is set to zero after every stage, so that a clip's memory depends on nothing that shares its batch.
    """

    def __init__(self, observes: Family, width: int, hidden: int, *, outside: bool, gait: bool) -> None:
        super().__init__()
        self.observes, self.outside, self.gait = observes, outside, gait
        d = observes.dim
        channels = observes.channels + 2 * d * outside + 2 * observes.masks * gait
        self.enter = nn.Linear(channels, hidden)
        self.stages = nn.ModuleList(_Stage(hidden, dilation) for dilation in (1, 3))
        self.leave = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mean", torch.zeros(d))
        self.register_buffer("deviation", torch.ones(d))
        self.register_buffer("step", torch.full((d,), 0.05))

    mean: Tensor
    deviation: Tensor
    step: Tensor

    def forward(
        self, c: Float[Tensor, "batch frames channels"], frames: Bool[Tensor, "batch frames"]
    ) -> Float[Tensor, "batch tokens width"]:
        """H^s; frames that are not of the clip say nothing."""
        x = self.enter(self._scaled(c)) * frames[..., None]
        x, inside = x.transpose(1, 2), frames[:, None]
        for stage in self.stages:
            inside = inside[..., ::2]
            x = stage(x, inside.to(x.dtype))
        memory: Tensor = self.norm(self.leave(x.transpose(1, 2)))
        return memory

    def _scaled(self, c: Float[Tensor, "batch frames channels"]) -> Float[Tensor, "batch frames inputs"]:
        """Everything of order one; what is masked stays zero."""
        where = scaffold.layout(self.observes)
        coords = len(self.observes.coords)
        anchor_mask, prior_mask = c[..., where.anchor_mask], c[..., where.prior_mask]
        set_ = anchor_mask.repeat_interleave(coords, dim=-1)
        inside = prior_mask.repeat_interleave(coords, dim=-1)
        values = set_ * (c[..., where.values] - self.mean) / self.deviation
        prior = inside * (c[..., where.prior] - self.mean) / self.deviation
        steps = c[..., where.difference]
        parts = [values, prior, steps / self.step, prior_mask, anchor_mask]
        if self.outside:
            path, before = _outside(c[..., where.prior], inside, self.observes)
            known = inside.amax(dim=1, keepdim=True)
            parts += [(1 - inside) * known * (path - self.mean) / self.deviation, before / self.step]
            steps = steps + before
        if self.gait:
            parts.append(_gait(steps, self.observes))
        return torch.cat(parts, dim=-1)


def _outside(
    prior: Float[Tensor, "batch frames dims"], inside: Float[Tensor, "batch frames dims"], observes: Family
) -> tuple[Float[Tensor, "batch frames dims"], Float[Tensor, "batch frames dims"]]:
    """Where the interpolation prior is not defined: from the origin to the first anchor, after the last one held.

    A canonical clip starts with the pelvis above the origin, so x and z start from 0; a height starts as it arrives.
    """
    frames = prior.shape[1]
    time = torch.arange(frames, device=prior.device, dtype=prior.dtype)[None, :, None]
    first = torch.argmax(inside, dim=1, keepdim=True)
    last = frames - 1 - torch.argmax(inside.flip(1), dim=1, keepdim=True)
    horizontal = torch.tensor([axis != 1 for axis in observes.coords] * len(observes.joints), device=prior.device)
    share = torch.where(horizontal, time / first.clamp(min=1), 1.0)
    start, end = prior.gather(1, first), prior.gather(1, last)
    before = (time < first) & inside.bool().any(dim=1, keepdim=True)
    path = torch.where(time < first, share * start, end)
    steps = torch.where(before, horizontal * start / first.clamp(min=1), 0.0)
    return path, steps


def _gait(
    steps: Float[Tensor, "batch frames dims"], observes: Family
) -> Float[Tensor, "batch frames speeds_and_turns"]:
    """Speed over the floor in steps of 5 cm a frame, and the turn since the frame before in steps of .1 rad."""
    flat = [axis for axis, coordinate in enumerate(observes.coords) if coordinate != 1]
    x, z = steps.unflatten(-1, (len(observes.joints), -1))[..., flat].unbind(-1)
    speed = (x.square() + z.square() + 1e-12).sqrt()
    earlier_x, earlier_z = F.pad(x, (0, 0, 1, -1)), F.pad(z, (0, 0, 1, -1))
    # The sine of the turn; the constant fades it out where hardly anything moves (less than 1 cm a frame).
    turn = (earlier_z * x - earlier_x * z) / (speed * F.pad(speed, (0, 0, 1, -1)) + 1e-4)
    return torch.cat((speed / 0.05, turn / 0.1), dim=-1)


class _Stage(nn.Module):
    """Half the frames, then a residual block."""

    def __init__(self, hidden: int, dilation: int) -> None:
        super().__init__()
        self.down = nn.Conv1d(hidden, hidden, 4, stride=2, padding=1)
        self.wide = nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation)
        self.narrow = nn.Conv1d(hidden, hidden, 1)

    def forward(
        self, x: Float[Tensor, "batch hidden frames"], inside: Float[Tensor, "batch 1 half"]
    ) -> Float[Tensor, "batch hidden half"]:
        x = F.gelu(self.down(x)) * inside
        return x + self.narrow(F.gelu(self.wide(x))) * inside


class AnchorKV(nn.Module):
    """K_l = H P_l U^K_l and V_l = H P_l U^V_l for every layer l of one network."""

    def __init__(self, width: int, config: NetworkConfig, initial: Initial) -> None:
        super().__init__()
        layers, rank, out = config.layers, config.rank, config.width
        self.config = config
        self.project = nn.Parameter(torch.randn(layers, width, rank) * width**-0.5)
        self.keys = nn.Parameter(torch.randn(layers, rank, out) * rank**-0.5)
        self.values = nn.Parameter(torch.randn(layers, rank, out))
        self.bias = nn.Parameter(torch.zeros(layers, config.heads))
        self.initialise(initial)

    def initialise(self, initial: Initial) -> None:
        """Start near the prior: silent values behind keys that win little attention, or faint ones."""
        with torch.no_grad():
            self.values.mul_(0.0 if initial == "zero-values" else 0.02)
            self.bias.fill_(-2.0 if initial == "zero-values" else 0.0)

    def forward(self, memory: Float[Tensor, "batch tokens width"]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Keys and values per layer, split over heads; not rotated."""
        low = torch.einsum("btd,ldr->lbtr", memory, self.project)
        return self._heads(low, self.keys), self._heads(low, self.values)

    def _heads(self, low: Tensor, up: Tensor) -> tuple[Tensor, ...]:
        wide = torch.einsum("lbtr,lrd->lbtd", low, up)
        return wide.unflatten(-1, (self.config.heads, -1)).transpose(2, 3).unbind(0)


class DualContext(nn.Module):
    """What anchors say to the whole clip (a change of the condition), and how loud text and anchors are per head."""

    def __init__(self, width: int, config: NetworkConfig) -> None:
        super().__init__()
        narrow = max(config.width // 16, 8)
        self.down = nn.Linear(width, narrow)
        self.up = nn.Linear(narrow, config.width)
        self.text_gate = nn.Parameter(torch.zeros(config.layers, config.heads))
        self.memory_gate = nn.Parameter(torch.zeros(config.layers, config.heads))
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(
        self, memory: Float[Tensor, "batch tokens width"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch out"]:
        """The change of the condition, from the mean over the clip; zero for a sample without anchors."""
        count = mask.sum(dim=1, keepdim=True)
        mean = (memory * mask[..., None]).sum(dim=1) / count.clamp(min=1)
        change: Tensor = self.up(F.silu(self.down(mean))) * (count > 0)
        return change


class AnchorReader(nn.Module):
    """H^s -> the memory of one network, by AnchorKV and the dual context."""

    def __init__(self, width: int, config: NetworkConfig, conditioner: ConditionerConfig) -> None:
        super().__init__()
        self.anchor_kv = AnchorKV(width, config, conditioner.initial)
        self.dual = DualContext(width, config) if conditioner.dual else None

    def start_from(self, network: Backbone) -> None:
        """Nothing of the prior is copied."""

    def forward(self, memory: Float[Tensor, "batch tokens width"], mask: Bool[Tensor, "batch tokens"]) -> Memory:
        """Keys, values, biases, gates and the change of the condition."""
        keys, values = self.anchor_kv(memory)
        bias = self.anchor_kv.bias.unbind(0)
        if self.dual is None:
            return Memory(keys, values, mask, bias)
        text, own = self.dual.text_gate.unbind(0), self.dual.memory_gate.unbind(0)
        return Memory(keys, values, mask, bias, text, own, self.dual(memory, mask))


def _reader(
    width: int, network: NetworkConfig, config: ConditionerConfig
) -> AnchorReader | CrossAttentionReader | ControlNetReader:
    sizes = (width, network.width, network.layers, network.heads)
    if config.kind == "cross-attention":
        return CrossAttentionReader(*sizes)
    if config.kind == "controlnet":
        return ControlNetReader(*sizes, network.hidden)
    return AnchorReader(width, network, config)


class Conditioner(nn.Module):
    """One family's adapter: everything that is trained on top of the frozen prior."""

    def __init__(self, config: ConditionerConfig) -> None:
        super().__init__()
        self.config = config
        self.family = family(config.family)
        width = config.prior.width
        self.encoder = ScaffoldEncoder(self.family, width, config.hidden, outside=config.outside, gait=config.gait)
        self.reader = _reader(width, config.prior, config)
        self.fine_reader = None if config.residual is None else _reader(width, config.residual, config)

    def start_from(self, prior: Backbone, residual: Backbone | None = None) -> None:
        """Take from the frozen networks what this kind of adapter starts with (ControlNet: a copy of the layers)."""
        self.reader.start_from(prior)
        if self.fine_reader is not None and residual is not None:
            self.fine_reader.start_from(residual)

    def set_statistics(self, mean: Tensor, deviation: Tensor, step: Tensor) -> None:
        """Scale values and differences as `statistics` measured them on training motion."""
        self.encoder.mean.copy_(mean)
        self.encoder.deviation.copy_(deviation)
        self.encoder.step.copy_(step)

    def encode(
        self, c: Float[Tensor, "batch frames channels"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch tokens width"], Bool[Tensor, "batch tokens"]]:
        """H^s and where it is valid; `lengths` in frames. A sample without anchors has nothing valid."""
        if c.shape[1] % RATIO:
            c = F.pad(c, (0, 0, 0, RATIO - c.shape[1] % RATIO))
        time = torch.arange(c.shape[1], device=c.device)
        frames = time < lengths.to(c.device)[:, None]
        anchored = c[..., scaffold.layout(self.family).anchor_mask].any(dim=-1).any(dim=-1, keepdim=True)
        tokens = time[::RATIO] + RATIO <= lengths.to(c.device)[:, None]
        return self.encoder(c, frames), tokens & anchored

    def forward(self, c: Float[Tensor, "batch frames channels"], lengths: Int[Tensor, " batch"]) -> Memory:
        """The memory for the prior."""
        memory: Memory = self.reader(*self.encode(c, lengths))
        return memory

    def both(
        self, c: Float[Tensor, "batch frames channels"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Memory, Memory | None]:
        """The memories for the prior and for the network of the finer levels, if the adapter writes for one."""
        encoded = self.encode(c, lengths)
        return self.reader(*encoded), None if self.fine_reader is None else self.fine_reader(*encoded)


@dataclass(frozen=True)
class Memories:
    """What the anchors of a batch say, one memory a family: to the prior, and to the finer levels' network."""

    prior: list[Memory] = field(default_factory=list)
    residual: list[Memory] = field(default_factory=list)


def remember(
    conditioners: Mapping[str, Conditioner],
    observed: Sequence[Observed],
    lengths: Int[Tensor, " batch"],
    drafts: Sequence[Float[Tensor, "frames 22 3"] | None] | None = None,
) -> Memories:
    """The anchors of a batch of clips through the adapters of their families; without anchors, no memory at all."""
    parts = [split(rows) for rows in observed]
    memories = Memories()
    for name in FAMILIES:
        if not any(name in part for part in parts):
            continue
        if name not in conditioners:
            raise RequestError(
                f"these anchors need the adapter {name!r}, and the model carries "
                f"{', '.join(conditioners) or 'none'}; train it, or fix other coordinates"
            )
        adapter = conditioners[name]
        rows = [part.get(name, whole[[]]) for part, whole in zip(parts, observed)]
        c = scaffold.batch(rows, FAMILIES[name], lengths.tolist(), drafts).to(adapter.encoder.mean)
        coarse, fine = adapter.both(c, lengths)
        memories.prior.append(coarse)
        if fine is not None:
            memories.residual.append(fine)
    return memories


def needs_draft(observed: Observed) -> bool:
    """Whether `remember` asks for a draft motion to fill a coordinate that no anchor sets."""
    return any(scaffold.needs_draft(rows, FAMILIES[name]) for name, rows in split(observed).items())


def statistics(motions: Iterable[Float[Tensor, "frames 22 3"]], observes: Family) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and deviation of what a family observes, and the deviation of its change from frame to frame."""
    seen = [observes.observe(motion).flatten(1).double() for motion in motions]
    every = torch.cat(seen)
    steps = torch.cat([path.diff(dim=0) for path in seen])
    return every.mean(0).float(), every.std(0).clamp(min=0.05).float(), steps.std(0).clamp(min=1e-3).float()


def trainable(module: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


@dataclass(frozen=True)
class Row:
    """A row of the component table: how the adapter is built, and whether training adds the anchor loss."""

    name: str
    kind: Kind
    dual: bool
    anchor_loss: bool

    def config(
        self, name: str, prior: TransformerConfig, residual: TransformerConfig | None = None
    ) -> ConditionerConfig:
        """The row's adapter for a family."""
        return ConditionerConfig.of(name, prior, residual, kind=self.kind, dual=self.dual)


#: The component progression of the paper, in its order.
COMPONENTS: tuple[Row, ...] = (
    Row("cross-attention", "cross-attention", dual=False, anchor_loss=False),
    Row("controlnet", "controlnet", dual=False, anchor_loss=False),
    Row("anchorkv", "anchor-kv", dual=False, anchor_loss=False),
    Row("+ dual context", "anchor-kv", dual=True, anchor_loss=False),
    Row("+ dual context & anchor loss", "anchor-kv", dual=True, anchor_loss=True),
)


def parameter_table(
    name: str, prior: TransformerConfig, residual: TransformerConfig | None = None
) -> list[tuple[str, int]]:
    """Every row of the component table with the trainable parameters of its adapter, for command lines to print."""
    with torch.device("meta"):  # counting needs no weights
        return [(row.name, trainable(Conditioner(row.config(name, prior, residual)))) for row in COMPONENTS]
