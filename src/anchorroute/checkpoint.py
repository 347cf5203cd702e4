"""Weights on disk: a folder with `weights.safetensors` and `config.json`, and nothing that runs code when it is read.

`config.json` holds the format version, what kind of network it is, its configuration, where it comes from (provenance)
and three hashes: of the weights file (damage), of the numbers it was saved from (its `id`), and the ids of the networks
that it was trained on top of. A prior is only good with the tokenizer whose tokens it learned: `load` refuses others.

Surprises:
- `id` names the numbers before they were stored in fewer bits: `recode` keeps it, so an 8-bit tokenizer stands in for
  the one that it was made from;
- 8-bit storage keeps one scale per output channel (or per row of a stack of matrices). Only parameters of two or more
  dimensions are rounded to 8 bits; codebooks go to half precision, biases and statistics stay as they are.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from anchorroute.conditioning import Conditioner, ConditionerConfig
from anchorroute.errors import CheckpointError
from anchorroute.tokenizer import Tokenizer, TokenizerConfig
from anchorroute.transformer import ResidualTransformer, Transformer, TransformerConfig

FORMAT = 1
WEIGHTS, CONFIG = "weights.safetensors", "config.json"
_SCALE = "#scale"
_HALF_FROM = 1 << 16  # numbers; smaller tensors are not worth rounding

Storage = Literal["float32", "float16", "int8"]
Build = Callable[[Mapping[str, Any]], nn.Module]


@dataclass(frozen=True)
class Loaded:
    """A network as it was saved, in evaluation mode, and what its folder says about it."""

    module: Any
    config: Any
    provenance: dict[str, Any]
    id: str
    kind: str
    on_top_of: dict[str, str]


def save(
    path: Path,
    module: nn.Module,
    config: Any,
    provenance: Mapping[str, Any],
    *,
    on_top_of: Mapping[str, str] | None = None,
    storage: Storage = "float32",
) -> str:
    """Write `module` to the folder `path` and return its id.

    `config` is the frozen dataclass that built it, `on_top_of` the ids of what it was trained on, by role
    ({"tokenizer": ...}). The configuration is written last: a folder that has one is whole.
    """
    if not is_dataclass(config) or isinstance(config, type):
        raise TypeError(f"config must be a dataclass instance, not {type(config).__name__}")
    state = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    broken = [name for name, value in state.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise CheckpointError(f"{broken[0]} holds numbers that are not finite, so {path} was not written; retrain")
    about = {
        "format": FORMAT,
        "kind": type(module).__name__,
        "id": _identity(state),
        "on_top_of": dict(on_top_of or {}),
        "config": asdict(config),
        "provenance": dict(provenance),
    }
    return _write(path, state, {name for name, _ in module.named_parameters()}, about, storage)


def recode(source: Path, target: Path, storage: Storage, *, build: Build | None = None) -> str:
    """The same network in other bits; its id stays."""
    loaded = load(source, build=build)
    state = {name: value.contiguous() for name, value in loaded.module.state_dict().items()}
    about = {name: value for name, value in _about(source).items() if name not in ("weights", "storage")}
    return _write(target, state, {name for name, _ in loaded.module.named_parameters()}, about, storage)


def load(
    path: Path,
    *,
    kind: str | None = None,
    on_top_of: Mapping[str, str] | None = None,
    build: Build | None = None,
    device: torch.device | str = "cpu",
) -> Loaded:
    """Read the folder `path`, refusing what is damaged, of another `kind`, or made for other parts than `on_top_of`.

    `build` makes the network from its configuration, for kinds that this file does not know (the evaluator).
    """
    about = _about(path)
    if kind is not None and about["kind"] != kind:
        raise CheckpointError(f"{path} holds a {about['kind']}, not a {kind}; give the folder of a {kind}")
    for role, wanted in (on_top_of or {}).items():
        made_for = about["on_top_of"].get(role)
        if made_for != wanted:
            raise CheckpointError(
                f"{path} was trained on {role} {_short(made_for)}, not on {_short(wanted)}: their tokens mean "
                f"different things; load the {role} that belongs to it, or train it again"
            )
    state = _decode(_read_weights(path, about), path)
    module = _build(about, path) if build is None else build(about["config"])
    try:
        module.load_state_dict(state)
    except RuntimeError as problem:
        raise CheckpointError(f"{path}: the weights do not fit the configuration beside them: {problem}") from problem
    module = module.eval().requires_grad_(False).to(device)
    config = getattr(module, "config", about["config"])
    return Loaded(module, config, about["provenance"], about["id"], about["kind"], about["on_top_of"])


def _build(about: Mapping[str, Any], path: Path) -> nn.Module:
    config, kind = about["config"], about["kind"]
    if kind == "Tokenizer":
        return Tokenizer(_parse(config, TokenizerConfig, path))
    if kind == "Transformer":
        return Transformer(_parse(config, TransformerConfig, path))
    if kind == "ResidualTransformer":
        return ResidualTransformer(_parse(config, TransformerConfig, path))
    if kind == "Conditioner":
        return Conditioner(_parse(config, ConditionerConfig, path))
    raise CheckpointError(
        f"{path} holds a {kind!r}; known are Tokenizer, Transformer, ResidualTransformer and Conditioner"
    )


def _parse(values: Mapping[str, Any], into: type[Any], path: Path) -> Any:
    strange = values.keys() - {field.name for field in fields(into)}
    if strange:
        raise CheckpointError(
            f"{path / CONFIG}: {into.__name__} has no field {sorted(strange)[0]!r}; a newer version wrote it: "
            "type pip install --upgrade anchorroute"
        )
    try:
        return msgspec.convert(dict(values), into)
    except msgspec.ValidationError as problem:
        raise CheckpointError(f"{path / CONFIG}: {problem}; restore the file that was saved") from problem


def _about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise CheckpointError(
            f"{path} is no checkpoint: it has no {CONFIG}; give the folder that holds {CONFIG} and {WEIGHTS}"
        ) from problem
    except (OSError, ValueError) as problem:
        raise CheckpointError(f"{path / CONFIG} cannot be read ({problem}); restore it from a copy") from problem
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        given = about.get("format") if isinstance(about, dict) else None
        raise CheckpointError(f"{path / CONFIG} has format {given!r}, this version reads format {FORMAT}")
    needed = ("kind", "id", "on_top_of", "config", "provenance", "weights", "storage")
    if absent := [key for key in needed if key not in about]:
        raise CheckpointError(f"{path / CONFIG} lacks {absent[0]!r}; restore the file that was saved")
    return about


# -------------------------------------------------------------------------------------------------------------- weights


def _write(path: Path, state: dict[str, Tensor], parameters: set[str], about: dict[str, Any], storage: Storage) -> str:
    from safetensors.torch import save as to_bytes

    path.mkdir(parents=True, exist_ok=True)
    content = to_bytes(_encode(state, parameters, storage))
    about = about | {"storage": storage, "weights": hashlib.sha256(content).hexdigest()}
    _replace(path / WEIGHTS, content)
    _replace(path / CONFIG, (json.dumps(about, indent=2) + "\n").encode())
    identity: str = about["id"]
    return identity


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner may read; weights are meant to be shared.
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read_weights(path: Path, about: Mapping[str, Any]) -> dict[str, Tensor]:
    from safetensors.torch import load as from_bytes

    try:
        content = (path / WEIGHTS).read_bytes()
    except OSError as problem:
        raise CheckpointError(f"{path / WEIGHTS} cannot be read ({problem}); restore it from a copy") from problem
    digest = hashlib.sha256(content).hexdigest()
    if digest != about["weights"]:
        raise CheckpointError(
            f"{path / WEIGHTS} is damaged: its sha256 is {_short(digest)}, {CONFIG} says {_short(about['weights'])}; "
            "install or download it again"
        )
    return from_bytes(content)


def _encode(state: Mapping[str, Tensor], parameters: set[str], storage: Storage) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for name, value in state.items():
        if not value.is_floating_point() or storage == "float32":
            out[name] = value
        elif storage == "int8" and name in parameters and value.ndim >= 2:
            out[name], out[name + _SCALE] = quantise(value)
        else:
            out[name] = value.half() if value.numel() >= _HALF_FROM else value
    return out


def _decode(stored: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for name, value in stored.items():
        if name.endswith(_SCALE):
            continue
        if value.dtype == torch.int8:
            if name + _SCALE not in stored:
                raise CheckpointError(f"{path / WEIGHTS}: {name} is stored in 8 bits but its scales are missing")
            state[name] = value.float() * stored[name + _SCALE]
        else:
            state[name] = value.float() if value.is_floating_point() else value
    return state


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights as int8 and one float32 scale per output channel: weight = int8 * scale, within half a scale."""
    # A stack of matrices gets a scale per row; a convolution's short last dimension is its kernel.
    shared = (weight.ndim - 1,) if weight.shape[-1] >= 16 else tuple(range(1, weight.ndim))
    scale = weight.abs().amax(shared, keepdim=True).float() / 127
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scale).round().clamp(-127, 127).to(torch.int8), scale


def _identity(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def _short(digest: str | None) -> str:
    return "nothing" if digest is None else f"{digest[:12]}..."
