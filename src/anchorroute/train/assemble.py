"""From run folders to one model folder, as `anchorroute.load` reads it and as the package ships it.

Checkpoints are stored in few bits (`checkpoint.recode`; ids stay, so parts still fit together), and the covariance of
real latents, the solver's norm, is measured on training clips and written beside them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save as to_bytes
from torch import Tensor

from anchorroute import checkpoint
from anchorroute.errors import RequestError
from anchorroute.observation import FAMILIES
from anchorroute.routesolver import latent_covariance
from anchorroute.tokenizer import RATE, Tokenizer
from anchorroute.train.corpus import Corpus, rng

_CHUNK = 32


@dataclass(frozen=True)
class Parts:
    """Checkpoint folders of a model."""

    tokenizer: Path
    prior: Path
    residual: Path | None = None
    control: Mapping[str, Path] = field(default_factory=dict)


def assemble(
    parts: Parts,
    corpus: Corpus,
    out: Path,
    *,
    storage: checkpoint.Storage = "int8",
    settings: Mapping[str, Any] | None = None,
    clips: int = 1500,
) -> dict[str, int]:
    """Write the model folder `out`; returns its files' sizes in bytes."""
    strange = [name for name in parts.control if name not in FAMILIES]
    if strange:
        raise RequestError(f"no control family {strange[0]!r}: there are {', '.join(FAMILIES)}")
    checkpoint.recode(parts.tokenizer, out / "tokenizer", storage)
    checkpoint.recode(parts.prior, out / "prior", storage)
    if parts.residual is not None:
        checkpoint.recode(parts.residual, out / "residual", storage)
    for name, folder in parts.control.items():
        checkpoint.recode(folder, out / f"control-{name}", storage)
    tokenizer = checkpoint.load(out / "tokenizer", kind="Tokenizer").module
    covariance = latent_covariance(latents(tokenizer, corpus, clips))
    _replace(out / "latents.safetensors", to_bytes({"covariance": covariance.contiguous()}))
    if settings is not None:
        _replace(out / "settings.json", (json.dumps(dict(settings), indent=2) + "\n").encode())
    return {str(path.relative_to(out)): path.stat().st_size for path in sorted(out.rglob("*")) if path.is_file()}


@torch.no_grad()
def latents(tokenizer: Tokenizer, corpus: Corpus, clips: int, seed: int = 0) -> Float[Tensor, "tokens code"]:
    """What the encoder says of so many training clips, end to end."""
    chosen = rng(seed, 0, 5).permutation(len(corpus))[:clips]
    chosen = chosen[np.argsort(corpus.lengths[chosen], kind="stable")]
    found: list[Tensor] = []
    for first in range(0, len(chosen), _CHUNK):
        group = chosen[first : first + _CHUNK]
        frames = corpus.lengths[group] // RATE * RATE
        u = tokenizer.latents(corpus.padded(group, np.zeros(len(group), np.int64), frames), torch.from_numpy(frames))
        found += [row[:tokens] for row, tokens in zip(u, (frames // RATE).tolist())]
    return torch.cat(found)


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(path)
