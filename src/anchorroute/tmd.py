"""Transition Masked Diffusion: a discrete flow over the motion codebook, its corruption path and its sampler.

A clean token x1 is corrupted towards codes that lie near it (`Path.corrupt`), a network learns to undo that, and the
sampler moves random tokens towards the network's proposals, only ever to codes that are nearer to the proposal than the
present one. The symbols are the paper's: d, q_t, beta, u_t, lambda_t.

Surprises:
- beta' is infinite at t = 0 and beta at t = 1. The sampler therefore uses the *integrated* rate beta(t+h) - beta(t)
  with q_t taken at the middle of the step ("midpoint"; 20 steps are as faithful as 100 explicit ones); "euler" is the
  paper's h * beta'(t), which wastes its first step. The last step copies a sampled proposal.
- every sample draws all of its random numbers from its own generator before the first step, as many as its own length
  asks. So its result depends on its seed alone, not on its batch mates (up to the last bits of the network's logits).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from anchorroute.errors import RequestError

PAD = -1
"""The id written where there is no token."""

Rule = Literal["midpoint", "integrated", "euler"]

Predictor = Callable[[Tensor, float, bool], tuple[Tensor, Tensor | None]]
"""(z [B, L], t, guided) -> logits [B, L, V] with the text and, if guided, without it."""

LevelPredictor = Callable[[Tensor, int, bool], tuple[Tensor, Tensor | None]]
"""(u [B, L, d_u], level, guided) -> logits of that level with the text and, if guided, without it."""


@dataclass(frozen=True)
class PathConfig:
    """The schedule beta(t) = c (t / (1 - t))^a; the defaults are the paper's."""

    a: float = 0.9
    c: float = 3.0
    centre: bool = False
    """Subtract the codebook's mean before taking cosines: for books whose codes lie in a cone."""


class Path:
    """q_t(i | x1) over one codebook; everything is looked up in its table of distances."""

    def __init__(self, codebook: Float[Tensor, "v d"], config: PathConfig = PathConfig()) -> None:
        self.config = config
        self.distances = distances(codebook - codebook.mean(0) if config.centre else codebook)

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.distances.shape[0]

    def to(self, device: torch.device | str) -> "Path":
        """The same path on another device."""
        moved = Path.__new__(Path)
        moved.config, moved.distances = self.config, self.distances.to(device)
        return moved

    def beta(self, t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """beta(t) = c (t / (1 - t))^a."""
        return self.config.c * (t / (1 - t)) ** self.config.a

    def beta_prime(self, t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """d beta / dt; infinite at t = 0 since a < 1."""
        a = self.config.a
        return self.config.c * a * (t / (1 - t)) ** (a - 1) / (1 - t) ** 2

    def q(self, x1: Int[Tensor, "*#b"], t: Float[Tensor, "*#b"]) -> Float[Tensor, "*b v"]:
        """q_t(. | x1) = softmax(-beta(t) d(., x1)); `t` broadcasts against `x1`."""
        return torch.softmax(-self.beta(t)[..., None] * self.distances[x1], dim=-1)

    def rates(
        self, xt: Int[Tensor, "*b"], x1: Int[Tensor, "*b"], t: Float[Tensor, "*b"], weight: Float[Tensor, "*b"]
    ) -> Float[Tensor, "*b v"]:
        """u(i | xt, x1) = q_t(i | x1) * weight * [d(xt, x1) - d(i, x1)]_+; the paper's weight is beta'(t).

        Summed over i it is lambda_t; `update_probability` turns that into the chance of a jump.
        """
        here = self.distances[x1, xt][..., None]
        return self.q(x1, t) * weight[..., None] * F.relu(here - self.distances[x1])

    def corrupt(
        self, z1: Int[Tensor, "b l"], t: Float[Tensor, "b"], generator: torch.Generator | None = None
    ) -> Int[Tensor, "b l"]:
        """Training's z_t ~ q_t(. | z1); padding stays padding. `t` must be below 1."""
        draws = torch.rand(z1.shape, generator=generator, device=generator.device if generator else z1.device)
        zt = _draw(self.q(z1.clamp(min=0), t[:, None]), draws.to(z1.device))
        return torch.where(z1 < 0, z1, zt)

    def clean_probability(self, t: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """P(z_t = z_1), averaged over the codebook: how much of the clean token the path leaves visible."""
        own = torch.arange(self.size, device=self.distances.device)
        return torch.stack([self.q(own, s.expand(self.size)).diagonal().mean() for s in t.to(own.device)])


def distances(codebook: Float[Tensor, "v d"]) -> Float[Tensor, "v v"]:
    """d(i, j) = (2 - 2 cos(e_i, e_j))^2 in float32; exactly 0 on the diagonal."""
    unit = F.normalize(codebook.double(), dim=-1)
    table = (2 - 2 * unit @ unit.T).clamp(min=0).square()
    return table.fill_diagonal_(0).float()


def update_probability(total: Float[Tensor, "*b"], h: float = 1.0) -> Float[Tensor, "*b"]:
    """P(update) = 1 - exp(-h lambda)."""
    return -torch.expm1(-h * total)


def calibrated(
    codebook: Float[Tensor, "v d"], *, at: float = 0.5, target: float = 0.1, a: float = 0.9, centre: bool = True
) -> PathConfig:
    """The c with which P(z_t = z_1) is `target` at t = `at`, for codebooks that the paper's c = 3 does not fit."""
    low, high = 1e-3, 1e6
    when = torch.tensor([at])

    def clean(c: float) -> float:
        return float(Path(codebook, PathConfig(a, c, centre)).clean_probability(when))

    if not clean(low) < target < clean(high):
        raise RequestError(
            f"no c makes P(z_t = z_1) = {target} at t = {at}: "
            f"this codebook allows {clean(low):.3g} to {clean(high):.3g}"
        )
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if clean(middle) < target else (low, middle)
    return PathConfig(a, (low * high) ** 0.5, centre)


def transition(
    path: Path,
    xt: Int[Tensor, "b l"],
    x1: Int[Tensor, "b l"],
    t: float,
    h: float,
    draws: Float[Tensor, "b l 2"],
    rule: Rule = "midpoint",
) -> Int[Tensor, "b l"]:
    """One step from t to t + h towards the proposal x1; `draws` uniform in [0, 1), for the jump and for its goal."""
    start, end = torch.tensor(t, device=xt.device), torch.tensor(t + h, device=xt.device)
    if rule == "euler":
        weight = h * path.beta_prime(start) if t > 0 else torch.zeros_like(start)
        when = start
    else:
        weight = path.beta(end) - path.beta(start)
        when = (start + end) / 2 if rule == "midpoint" else start
    rates = path.rates(xt, x1, when.expand(xt.shape), weight.expand(xt.shape))
    jump = draws[..., 0] < update_probability(rates.sum(-1))
    return torch.where(jump, _draw(rates, draws[..., 1]), xt)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from logits."""

    guidance: float = 1.0
    """Logits become without + guidance * (with - without); 1 runs the network once."""
    temperature: float = 1.0
    """0 takes the most likely token."""
    top_k: int | None = None


def sample(
    predict: Predictor,
    path: Path,
    lengths: Int[Tensor, "b"],
    *,
    generators: Sequence[torch.Generator],
    steps: int = 20,
    sampling: Sampling = Sampling(),
    rule: Rule = "midpoint",
    keep: Bool[Tensor, "b l"] | None = None,
    tokens: Int[Tensor, "b l"] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Int[Tensor, "b l"]:
    """Random tokens -> clean tokens of `lengths` (in tokens), `PAD` after each sample's end.

    `keep` with `tokens` holds some tokens fixed from start to end (editing). `on_step(done, steps)` may raise to stop.
    """
    if steps < 1:
        raise RequestError(f"{steps} sampling steps given; at least one is needed (the default is 20)")
    if (keep is None) != (tokens is None):
        raise RequestError("keep and tokens go together: keep says where, tokens says what; give both or neither")
    size = int(lengths.max())
    present = torch.arange(size, device=lengths.device) < lengths[:, None]
    # Three numbers a token and step (the proposal, the jump, its goal), and one for the token it starts from.
    draws = _uniforms(generators, lengths, size, 3 * steps + 1)
    z = (draws[..., 0] * path.size).long().clamp(max=path.size - 1)
    draws = draws[..., 1:].unflatten(-1, (steps, 3))
    z = _hold(z, present, keep, tokens)
    for k in range(steps):
        t = k / steps
        x1 = draw_tokens(predict(z, t, sampling.guidance != 1), draws[:, :, k, 0], sampling)
        last = k == steps - 1
        z = x1 if last else transition(path, z.clamp(min=0), x1, t, 1 / steps, draws[:, :, k, 1:], rule)
        z = _hold(z, present, keep, tokens)
        if on_step is not None:
            on_step(k + 1, steps)
    return z


def sample_levels(
    predict: LevelPredictor,
    embed: Callable[[Tensor], Tensor],
    z: Int[Tensor, "b l"],
    levels: int,
    *,
    generators: Sequence[torch.Generator],
    sampling: Sampling = Sampling(),
) -> Int[Tensor, "b l q"]:
    """First-level tokens -> tokens of all `levels`, one pass a level; `embed` is the tokenizer's."""
    present = z >= 0
    draws = _uniforms(generators, present.sum(1), z.shape[1], levels - 1)
    out = z[..., None]
    for level in range(1, levels):
        logits = predict(embed(out), level, sampling.guidance != 1)
        ids = draw_tokens(logits, draws[..., level - 1], sampling)
        out = torch.cat((out, ids.masked_fill(~present, PAD)[..., None]), dim=-1)
    return out


def draw_tokens(
    logits: tuple[Float[Tensor, "b l v"], Float[Tensor, "b l v"] | None],
    draws: Float[Tensor, "b l"],
    sampling: Sampling,
) -> Int[Tensor, "b l"]:
    """One token a place from guided, tempered, filtered logits."""
    conditional, unconditional = logits
    scores = conditional.float()
    if unconditional is not None:
        scores = unconditional.float() + sampling.guidance * (scores - unconditional.float())
    if sampling.temperature == 0:
        return scores.argmax(-1)
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        threshold = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < threshold, -torch.inf)
    return _draw(torch.softmax(scores / sampling.temperature, dim=-1), draws)


def _draw(weights: Float[Tensor, "*b v"], draws: Float[Tensor, "*b"]) -> Int[Tensor, "*b"]:
    """The place where the running sum of `weights` passes `draws` of its total.

    Rows of zeros give 0 (nobody may use it: their chance is 0 too). Double precision, so that a weight of
    1e-8 in a long row still counts, and rounding hardly ever moves a draw across an edge.
    """
    running = weights.double().cumsum(-1)
    goal = draws.double()[..., None] * running[..., -1:]
    place = torch.searchsorted(running, goal, right=True)[..., 0]
    # A draw that rounds up to the total must still land on a weight that is not zero.
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).to(torch.uint8).argmax(-1)
    return torch.minimum(place, last)


def _uniforms(
    generators: Sequence[torch.Generator], lengths: Int[Tensor, "b"], size: int, each: int
) -> Float[Tensor, "b size each"]:
    if len(generators) != len(lengths):
        raise RequestError(f"{len(generators)} generators given for {len(lengths)} samples; each sample takes one")
    draws = torch.zeros(len(lengths), size, each)
    for row, generator, length in zip(draws, generators, lengths.tolist(), strict=True):
        row[:length] = torch.rand(length, each, generator=generator, device=generator.device).cpu()
    return draws.to(lengths.device)


def _hold(z: Tensor, present: Tensor, keep: Tensor | None, tokens: Tensor | None) -> Tensor:
    if keep is not None and tokens is not None:
        z = torch.where(keep, tokens, z)
    return z.masked_fill(~present, PAD)
