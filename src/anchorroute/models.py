"""The trained parts that a pipeline runs on, and where they come from: the package's assets, a folder, or nowhere.

`load` reads a folder with one checkpoint a part (tokenizer, prior, residual, control-root3d, control-planar,
control-body) and refuses parts that were not trained on top of each other. Beside them lie `latents.safetensors`
(the covariance of real latents, the solver's norm) and `settings.json` (guidance and the like, chosen on validation).
`untrained` builds the same parts, tiny and random, for tests and for trying the flow without weights: what it makes
is noise, in the right shapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute import checkpoint, tmd, tokenizer, transformer
from anchorroute.conditioning import Conditioner, ConditionerConfig
from anchorroute.errors import CheckpointError, RequestError
from anchorroute.motion import body, features
from anchorroute.motion.skeleton import JOINTS
from anchorroute.observation import FAMILIES
from anchorroute.routesolver import Adam, GaussNewton, Off
from anchorroute.text import MINILM, TextEncoder
from anchorroute.tokenizer import Tokenizer
from anchorroute.transformer import ResidualTransformer, Transformer

#: What ships inside the package.
SHIPPED = "open"
ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Settings:
    """How tokens are drawn unless a call says otherwise."""

    guidance: float = 2.5
    temperature: float = 1.0
    top_k: int | None = None
    steps: int = 20
    residual_guidance: float = 1.0
    residual_temperature: float = 1.0
    levels: Literal[1] | None = None
    """1: the prior's level alone is generated, because finer levels were measured to add noise; None: all levels."""

    @property
    def sampling(self) -> tmd.Sampling:
        """Of the first level's tokens."""
        return tmd.Sampling(self.guidance, self.temperature, self.top_k)

    @property
    def residual_sampling(self) -> tmd.Sampling:
        """Of the finer levels' tokens."""
        return tmd.Sampling(self.residual_guidance, self.residual_temperature)


@dataclass(frozen=True)
class Models:
    """Everything that was learned, and the settings chosen on validation."""

    tokenizer: Tokenizer
    prior: Transformer
    residual: ResidualTransformer | None
    control: Mapping[str, Conditioner]
    text: TextEncoder
    path: tmd.Path
    settings: Settings
    covariance: Float[Tensor, "d_u d_u"] | None = None
    """Of real latents over the code dimensions: the solver's norm."""
    name: str = ""
    card: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> "Models":
        """The same parts on another device; the modules themselves move."""
        return replace(
            self,
            tokenizer=self.tokenizer.to(device),
            prior=self.prior.to(device),
            residual=None if self.residual is None else self.residual.to(device),
            control={name: adapter.to(device) for name, adapter in self.control.items()},
            path=self.path.to(device),
            covariance=None if self.covariance is None else self.covariance.to(device),
        )

    def solver(self, name: str) -> GaussNewton | Adam | Off:
        """A solver's default settings by its name."""
        known: dict[str, GaussNewton | Adam | Off] = {
            "gauss-newton": GaussNewton(), "adam": Adam(), "none": Off(),
        }  # fmt: skip
        if name not in known:
            raise RequestError(f"solver {name!r} is unknown; there are {', '.join(known)}")
        return known[name]


def load(name: str | Path = SHIPPED) -> Models:
    """The parts by name: "open" (in the package), "debug" (`untrained`), or a folder of checkpoints."""
    if name == "debug":
        return untrained()
    folder = ASSETS if name == SHIPPED else Path(name)
    if not (folder / "tokenizer" / checkpoint.CONFIG).is_file():
        raise CheckpointError(
            f"{folder} holds no weights (tokenizer/{checkpoint.CONFIG} is missing); give 'open', 'debug' or the folder "
            "that training wrote"
        )
    motion = checkpoint.load(folder / "tokenizer", kind="Tokenizer")
    below = {"tokenizer": motion.id}
    prior = checkpoint.load(folder / "prior", kind="Transformer", on_top_of=below)
    settings = _settings(folder / "settings.json")
    residual = None if settings.levels == 1 else _optional(folder / "residual", "ResidualTransformer", below)
    control = {
        name: _optional(folder / f"control-{name}", "Conditioner", {**below, "prior": prior.id}) for name in FAMILIES
    }
    adapters = {name: loaded for name, loaded in control.items() if loaded is not None}
    if residual is None and motion.config.levels > 1 and settings.levels != 1:
        raise CheckpointError(
            f"{folder} lacks 'residual': its tokenizer has {motion.config.levels} levels and the prior writes one; "
            'train it with `anchorroute train residual`, or write "levels": 1 into settings.json'
        )
    parts = {
        "tokenizer": motion,
        "prior": prior,
        "residual": residual,
        **{f"control-{n}": a for n, a in adapters.items()},
    }
    return Models(
        tokenizer=motion.module,
        prior=prior.module,
        residual=None if residual is None else residual.module,
        control={name: loaded.module for name, loaded in adapters.items()},
        text=TextEncoder(_encoder_name(prior.provenance)),
        path=tmd.Path(motion.module.codebooks[0], tmd.PathConfig(**prior.provenance.get("path", {}))),
        settings=settings,
        covariance=_covariance(folder / "latents.safetensors", motion.config.code_width),
        name=f"{name}-{prior.id[:8]}",
        card={part: loaded.provenance for part, loaded in parts.items() if loaded is not None},
    )


def _optional(path: Path, kind: str, on_top_of: Mapping[str, str]) -> checkpoint.Loaded | None:
    return checkpoint.load(path, kind=kind, on_top_of=on_top_of) if path.is_dir() else None


def _encoder_name(provenance: Mapping[str, Any]) -> str:
    """The name under which the text encoder is found, from the id that the prior was trained with."""
    told = str(provenance.get("text_encoder", MINILM))
    return MINILM if told.startswith(MINILM) else told


def _settings(path: Path) -> Settings:
    if not path.is_file():
        return Settings()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CheckpointError(f"{path}: {error}; restore the file that belongs to the weights") from error


def _covariance(path: Path, width: int) -> Float[Tensor, "d_u d_u"] | None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        return None
    try:
        table = load_file(path)["covariance"].float()
    except (SafetensorError, KeyError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); install the package again") from error
    if table.shape != (width, width):
        raise CheckpointError(f"{path} is {tuple(table.shape)}; this tokenizer's codes have {width} dimensions")
    return table


def untrained(seed: int = 0) -> Models:
    """Tiny random parts in the right shapes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        motion = Tokenizer(tokenizer.debug())
        motion.codebooks.normal_(std=0.5)
        motion.set_statistics(*_standing())
        prior = Transformer(transformer.debug())
        residual = ResidualTransformer(transformer.residual_debug())
        control = {
            name: Conditioner(ConditionerConfig.of(name, prior.config, residual.config, hidden=16)) for name in FAMILIES
        }
    parts = [motion, prior, residual, *control.values()]
    for part in parts:
        part.eval().requires_grad_(False)
    path = tmd.Path(motion.codebooks[0])
    card = {"debug": {"data": "none: random weights"}}
    loose = 100.0 * torch.eye(motion.config.code_width)  # random decoders hardly move: let the solver go far
    return Models(motion, prior, residual, control, TextEncoder(), path, Settings(), loose, "debug", card)


def _standing() -> tuple[Float[np.ndarray, "263"], Float[np.ndarray, "263"]]:
    """Mean and deviation that make random features a body that stands and trembles."""
    still = torch.zeros(2, 3)
    turns = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(2, len(JOINTS), 4)
    joints = body.forward_kinematics(still, turns)
    joints = joints - torch.tensor([0.0, float(joints[..., 1].min()), 0.0])
    return features.from_joints(joints)[0].numpy(), np.full(features.DIM, 0.03, dtype=np.float32)
