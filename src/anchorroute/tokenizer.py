"""Motion <-> tokens: a convolutional residual VQ autoencoder, four frames to a token.

`encode` gives token ids z [B, L, Q], `embed` sums their codes into the soft tokens u [B, L, d_u], `decode` turns any u,
quantised or not, back into features. Features go in and come out unnormalised: the mean and the deviation are buffers.

Surprises:
- padding (frames past `lengths`) is written as token -1, embeds to zero and decodes to zeros; with `pad_to = None` it
  is masked before every convolution, so a clip does not depend on its batch mates. MoMask instead always runs 49 tokens
  and lets the padding leak into the last seconds; `paper()` keeps that.
- learning the codebooks needs `vector_quantize_pytorch`, which is slow to import. Only `TokenizerTrainer` imports it;
  the tokenizer itself holds the learned codes as one buffer.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from anchorroute.errors import RequestError
from anchorroute.motion import features as feats

RATE = 4
"""Frames a token."""

PAD = -1
"""The token id of padding; it embeds to zero."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Sizes of a tokenizer. Tuples run from the frame rate over half of it to the token rate (encoder order)."""

    features: int = feats.DIM
    widths: tuple[int, int, int] = (128, 192, 384)
    """Channels at 20, 10 and 5 steps a second: wide layers belong where steps are few."""
    dilations: tuple[tuple[int, ...], tuple[int, ...]] = ((3, 1), (4, 2, 1, 1))
    """Residual blocks at half rate and at token rate, as the encoder meets them; the decoder mirrors the rates."""
    code_width: int = 128
    codes: int = 512
    levels: int = 6
    activation: Literal["relu", "silu"] = "silu"
    dropout: float = 0.0
    """In the residual blocks while training. A decoder that RouteSolver differentiates does better without."""
    pad_to: int | None = None
    """None: padding is masked exactly. A number of tokens: every clip runs at that length, unmasked (MoMask's way)."""
    keep_levels: tuple[float, ...] = (0.3, 0.04, 0.04, 0.04, 0.04, 0.54)
    """Quantizer dropout: the chance that a training sample's decoder sees only the first 1, 2, ... levels."""
    sample_temperature: float = 0.0
    """Training draws codes from softmax(-distance / temperature); 0 takes the nearest."""
    decay: float = 0.99
    dead_below: float = 0.1
    """A code used less often than this share of the mean use is thrown onto a random latent; 0 turns resets off."""
    kmeans: bool = True
    """Start the codebooks by k-means on the first batch."""

    def __post_init__(self) -> None:
        if len(self.keep_levels) != self.levels:
            raise RequestError(
                f"keep_levels has {len(self.keep_levels)} chances for {self.levels} levels; give one chance a level"
            )


def open() -> TokenizerConfig:
    """What ships: 6.4 M parameters, 0.22 GMAC to decode 196 frames, most of them spent at token rate."""
    return TokenizerConfig()


def paper() -> TokenizerConfig:
    """MoMask's sizes, which the paper builds on; the official checkpoint loads into it (`momask.load`)."""
    return TokenizerConfig(
        widths=(512, 512, 512),
        dilations=((9, 3, 1), (9, 3, 1)),
        code_width=512,
        activation="relu",
        dropout=0.2,
        pad_to=49,
        keep_levels=(0.04, 0.04, 0.04, 0.04, 0.04, 0.8),
        sample_temperature=0.5,
    )


def debug() -> TokenizerConfig:
    """Tiny: for tests that need any tokenizer at all."""
    return TokenizerConfig(
        widths=(16, 16, 32),
        dilations=((1,), (2, 1)),
        code_width=16,
        codes=32,
        levels=3,
        keep_levels=(0.4, 0.1, 0.5),
    )


class Conv(nn.Conv1d):
    """A convolution that sees zeros wherever its mask is zero, as it does beyond the ends of an unpadded clip."""

    def __init__(self, into: int, out: int, kernel: int = 3, dilation: int = 1) -> None:
        super().__init__(into, out, kernel, padding=dilation * (kernel - 1) // 2, dilation=dilation)

    def forward(self, x: Float[Tensor, "b c t"], mask: Float[Tensor, "b 1 t"] | None = None) -> Float[Tensor, "b d t"]:
        """Convolve what the mask shows."""
        return super().forward(x if mask is None else x * mask)


class Down(nn.Conv1d):
    """Halves the rate."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(into, out, 4, stride=2, padding=1)

    def forward(self, x: Float[Tensor, "b c t"], mask: Float[Tensor, "b 1 t"] | None = None) -> Float[Tensor, "b d t2"]:
        """Convolve what the mask (at the input's rate) shows."""
        return super().forward(x if mask is None else x * mask)


class Block(nn.Module):
    """MoMask's residual block: activation, dilated convolution, activation, pointwise convolution, dropout, skip."""

    def __init__(self, width: int, dilation: int, config: TokenizerConfig) -> None:
        super().__init__()
        self.conv1 = Conv(width, width, dilation=dilation)
        self.conv2 = Conv(width, width, kernel=1)
        self.dropout = nn.Dropout(config.dropout)
        self.activation = _activation(config)

    def forward(self, x: Float[Tensor, "b c t"], mask: Float[Tensor, "b 1 t"] | None = None) -> Float[Tensor, "b c t"]:
        """x + what the block adds."""
        change = self.conv2(self.activation(self.conv1(self.activation(x), mask)))
        return x + self.dropout(change)


class Encoder(nn.Module):
    """Normalised features [B, 263, T] -> continuous latents [B, d_u, T / 4]."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        frame, half, token = config.widths
        self.input = Conv(config.features, frame)
        self.down = nn.ModuleList([Down(frame, half), Down(half, token)])
        self.blocks = nn.ModuleList(
            nn.ModuleList(Block(width, d, config) for d in dilations)
            for width, dilations in zip((half, token), config.dilations, strict=True)
        )
        self.output = Conv(token, config.code_width)
        self.activation = _activation(config)

    def forward(self, x: Float[Tensor, "b c t"], mask: Float[Tensor, "b 1 t"] | None = None) -> Float[Tensor, "b d l"]:
        """Encode."""
        h = self.activation(self.input(x, mask))
        for down, blocks in zip(self.down, self.blocks, strict=True):
            h = down(h, mask)
            mask = None if mask is None else mask[..., ::2]
            for block in blocks:  # type: ignore[attr-defined]
                h = block(h, mask)
        latents: Tensor = self.output(h, mask)
        return latents


class Decoder(nn.Module):
    """Soft tokens [B, d_u, L] -> normalised features [B, 263, 4 L]; the encoder's rates in reverse."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        frame, half, token = config.widths
        self.input = Conv(config.code_width, token)
        self.blocks = nn.ModuleList(
            nn.ModuleList(Block(width, d, config) for d in dilations)
            for width, dilations in zip((token, half), reversed(config.dilations), strict=True)
        )
        self.up = nn.ModuleList([Conv(token, half), Conv(half, frame)])
        self.middle = Conv(frame, frame)
        self.output = Conv(frame, config.features)
        self.activation = _activation(config)

    def forward(self, u: Float[Tensor, "b d l"], mask: Float[Tensor, "b 1 l"] | None = None) -> Float[Tensor, "b c t"]:
        """Decode."""
        h = self.activation(self.input(u, mask))
        for up, blocks in zip(self.up, self.blocks, strict=True):
            for block in blocks:  # type: ignore[attr-defined]
                h = block(h, mask)
            h = h.repeat_interleave(2, dim=-1)
            mask = None if mask is None else mask.repeat_interleave(2, dim=-1)
            h = up(h, mask)
        features: Tensor = self.output(self.activation(self.middle(h, mask)), mask)
        return features


class Tokenizer(nn.Module):
    """The motion tokenizer as it is used: encoder, codebooks, decoder and the statistics of its features."""

    mean: Tensor
    std: Tensor
    codebooks: Tensor

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.register_buffer("mean", torch.zeros(config.features))
        self.register_buffer("std", torch.ones(config.features))
        self.register_buffer("codebooks", torch.zeros(config.levels, config.codes, config.code_width))

    def set_statistics(self, mean: Float[np.ndarray, "263"], std: Float[np.ndarray, "263"]) -> None:
        """Take the training data's mean and deviation; both must have one finite number a feature, deviations > 0."""
        if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
            raise RequestError(
                "feature statistics hold a deviation of zero or a number that is not finite; "
                "compute them over the whole training split"
            )
        self.mean.copy_(torch.from_numpy(np.asarray(mean, dtype=np.float32)))
        self.std.copy_(torch.from_numpy(np.asarray(std, dtype=np.float32)))

    def normalise(self, features: Float[Tensor, "*b 263"]) -> Float[Tensor, "*b 263"]:
        """Features in metres -> zero mean, unit deviation."""
        return (features - self.mean) / self.std

    def denormalise(self, features: Float[Tensor, "*b 263"]) -> Float[Tensor, "*b 263"]:
        """Inverse of `normalise`."""
        return features * self.std + self.mean

    def latents(
        self, features: Float[Tensor, "b t 263"], lengths: Int[Tensor, "b"] | None = None
    ) -> Float[Tensor, "b l d"]:
        """What the encoder says before quantising. `lengths` in frames, multiples of 4; beyond them is zero."""
        frames = features.shape[1]
        if frames % RATE:
            raise RequestError(
                f"{frames} feature frames given; a token is {RATE} frames, so cut the clip to {frames - frames % RATE}"
            )
        x = self.normalise(features).transpose(1, 2)
        mask = None if lengths is None else valid(lengths, frames)[:, None].to(x.dtype)
        if self.config.pad_to is not None:
            x = F.pad(x if mask is None else x * mask, (0, max(0, RATE * self.config.pad_to - frames)))
            h = self.encoder(x)[..., : frames // RATE]
        else:
            h = self.encoder(x, mask)
        u: Tensor = h.transpose(1, 2)
        return u if mask is None else u * mask[:, 0, ::RATE, None]

    def quantize(self, latents: Float[Tensor, "b l d"]) -> Int[Tensor, "b l q"]:
        """Greedy residual quantisation: each level takes the code nearest to what the levels before it left over."""
        rest, ids = latents.float(), []
        for codebook in self.codebooks:
            ids.append(torch.cdist(rest, codebook[None]).argmin(-1))
            rest = rest - codebook[ids[-1]]
        return torch.stack(ids, dim=-1)

    def encode(
        self, features: Float[Tensor, "b t 263"], lengths: Int[Tensor, "b"] | None = None
    ) -> Int[Tensor, "b l q"]:
        """Unnormalised features -> token ids, `PAD` beyond `lengths` (in frames)."""
        z = self.quantize(self.latents(features, lengths))
        return z if lengths is None else z.masked_fill(~valid(lengths // RATE, z.shape[1])[..., None], PAD)

    def embed(self, z: Int[Tensor, "b l q"]) -> Float[Tensor, "b l d"]:
        """Sum of the codes of as many levels as z has; `PAD` adds nothing."""
        if z.shape[-1] > self.config.levels:
            raise RequestError(f"tokens of {z.shape[-1]} levels given; this tokenizer has {self.config.levels}")
        codes = torch.stack([book[ids.clamp(min=0)] for book, ids in zip(self.codebooks, z.unbind(-1))])
        return (codes * (z.movedim(-1, 0) >= 0)[..., None]).sum(0)

    def decode(self, u: Float[Tensor, "b l d"], lengths: Int[Tensor, "b"] | None = None) -> Float[Tensor, "b t 263"]:
        """Soft tokens -> unnormalised features; `lengths` in frames, and frames beyond them are zero."""
        tokens = u.shape[1]
        h = u.transpose(1, 2)
        mask = None if lengths is None else valid(lengths // RATE, tokens)[:, None].to(h.dtype)
        if self.config.pad_to is not None:
            h = F.pad(h if mask is None else h * mask, (0, max(0, self.config.pad_to - tokens)))
            x = self.decoder(h)[..., : RATE * tokens]
        else:
            x = self.decoder(h, mask)
        features = self.denormalise(x.transpose(1, 2))
        return features if lengths is None else features * valid(lengths, RATE * tokens)[..., None]


def valid(lengths: Int[Tensor, "b"], size: int) -> Bool[Tensor, "b size"]:
    """True in the first `lengths` of `size` places."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def _activation(config: TokenizerConfig) -> nn.Module:
    return nn.ReLU() if config.activation == "relu" else nn.SiLU()


# ------------------------------------------------------------------------------------------------------------ training


@dataclass(frozen=True)
class LossWeights:
    """Weights of `tokenizer_loss`. The first three are MoMask's."""

    features: float = 1.0
    positions: float = 0.5
    commitment: float = 0.02
    root: float = 0.25
    """Recovered root in metres: small velocity errors add up to metres."""
    joints: float = 0.25
    """Recovered global joints in metres. With root and joints at 1 the path crowds out the pose."""
    acceleration: float = 2.0
    """Second difference of the recovered joints in metres: the eye sees jitter first."""


@dataclass(frozen=True)
class Reconstruction:
    """One training pass: normalised features in and out, and what the quantizer said."""

    target: Float[Tensor, "b t 263"]
    output: Float[Tensor, "b t 263"]
    commitment: Float[Tensor, ""]
    z: Int[Tensor, "b l q"]


class TokenizerTrainer(nn.Module):
    """A tokenizer together with the state that learns its codebooks (a `ResidualVQ` with moving averages).

    The codes are copied into the tokenizer after every training pass, so `trainer.tokenizer` can be saved at any
    time; the `ResidualVQ`'s own state is needed only to go on training. Build it after the process group exists:
    the library then sums code statistics over processes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        from vector_quantize_pytorch import ResidualVQ  # seconds to import, and only training needs it

        config = tokenizer.config
        self.tokenizer = tokenizer
        self.quantizer = ResidualVQ(
            dim=config.code_width,
            num_quantizers=config.levels,
            codebook_size=config.codes,
            decay=config.decay,
            kmeans_init=config.kmeans,
            threshold_ema_dead_code=config.dead_below,
            stochastic_sample_codes=config.sample_temperature > 0,
            sample_codebook_temp=config.sample_temperature or 1.0,
            rotation_trick=False,
        )

    def forward(
        self, features: Float[Tensor, "b t 263"], generator: torch.Generator | None = None, *, quantize: bool = True
    ) -> Reconstruction:
        """Unpadded unnormalised windows -> reconstruction. In training mode the codebooks move.

        `quantize=False` passes the latents on as they are: a few hundred such steps, then `initialise` on a large
        batch, give the codebooks something to spread over; begun at step 0 they collapse and recover slowly.
        All randomness (dropout, levels kept, dead-code resets) follows `generator`, so a resumed run repeats it.
        """
        with _seeded(generator, features.device):
            target = self.tokenizer.normalise(features)
            latents = self.tokenizer.encoder(target.transpose(1, 2)).transpose(1, 2).float()
            with torch.autocast(latents.device.type, enabled=False):
                u, z, commitment = self._quantize(latents) if quantize else self._pass_on(latents)
            output = self.tokenizer.decoder(u.transpose(1, 2)).transpose(1, 2).float()
        return Reconstruction(target, output, commitment, z)

    @torch.no_grad()
    def initialise(self, features: Float[Tensor, "b t 263"], generator: torch.Generator | None = None) -> None:
        """Start all codebooks by k-means on the latents of one large batch (thousands of tokens)."""
        with _seeded(generator, features.device):
            parts = [self.tokenizer.encoder(self.tokenizer.normalise(x).transpose(1, 2)) for x in features.split(64)]
            for layer in self.quantizer.layers:
                layer._codebook.initted.fill_(False)
            self.quantizer(torch.cat(parts).transpose(1, 2).float())
            self.tokenizer.codebooks.copy_(self.quantizer.codebooks)

    def _quantize(self, latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._scale_resets(latents.shape[0] * latents.shape[1])
        _, z, commitment = self.quantizer(latents)
        if self.training:
            self.tokenizer.codebooks.copy_(self.quantizer.codebooks)
        u = self.tokenizer.embed(self._drop_levels(z))
        # One straight-through step over the whole sum: level by level the encoder would get the gradient Q times.
        return latents + (u - latents).detach(), z, commitment.mean()

    def _pass_on(self, latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = torch.full((*latents.shape[:2], self.tokenizer.config.levels), PAD, device=latents.device)
        return latents, z, latents.new_zeros(())

    def _drop_levels(self, z: Int[Tensor, "b l q"]) -> Int[Tensor, "b l q"]:
        if not self.training:
            return z
        chances = torch.tensor(self.tokenizer.config.keep_levels)
        kept = 1 + torch.multinomial(chances, z.shape[0], replacement=True).to(z.device)
        return z.masked_fill(~valid(kept, z.shape[-1])[:, None], PAD)

    def _scale_resets(self, tokens: int) -> None:
        """The library counts uses a batch, so what counts as dead must grow with the batch."""
        mean_use = tokens / self.tokenizer.config.codes
        for layer in self.quantizer.layers:
            layer._codebook.threshold_ema_dead_code = self.tokenizer.config.dead_below * mean_use
            layer._codebook.reset_cluster_size = mean_use


@contextlib.contextmanager
def _seeded(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """The library draws from torch's global generator; for a while that one follows `generator`."""
    where = generator.device if generator else "cpu"
    seed = int(torch.randint(2**62, (), generator=generator, device=where))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def tokenizer_loss(
    pass_: Reconstruction, tokenizer: Tokenizer, weights: LossWeights = LossWeights()
) -> dict[str, Float[Tensor, ""]]:
    """The training loss and its parts, named as their weights are."""
    ric = feats.SLICES.ric
    joints = feats.to_joints(tokenizer.denormalise(pass_.output))
    truth = feats.to_joints(tokenizer.denormalise(pass_.target))
    parts = {
        "features": F.smooth_l1_loss(pass_.output, pass_.target),
        "positions": F.smooth_l1_loss(pass_.output[..., ric], pass_.target[..., ric]),
        "commitment": pass_.commitment,
        "root": (joints[..., 0, :] - truth[..., 0, :]).norm(dim=-1).mean(),
        "joints": (joints - truth).norm(dim=-1).mean(),
        "acceleration": (joints - truth).diff(n=2, dim=1).norm(dim=-1).mean(),
    }
    loss = sum((getattr(weights, name) * part for name, part in parts.items()), torch.zeros(()).to(pass_.output))
    return {"loss": loss, **parts}


def perplexity(z: Int[Tensor, "*b q"], codes: int) -> Float[Tensor, "q"]:
    """exp(entropy) of code use at each level: `codes` when all are used alike, 1 when one takes everything."""
    flat = z.reshape(-1, z.shape[-1])
    flat = flat[(flat >= 0).all(-1)]
    share = torch.stack([torch.bincount(ids, minlength=codes) for ids in flat.unbind(-1)]) / max(1, flat.shape[0])
    return torch.exp(-torch.special.xlogy(share, share).sum(-1))
