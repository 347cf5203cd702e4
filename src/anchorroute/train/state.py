"""What a run keeps on disk, so that it continues bit for bit after any kind of death.

`last.safetensors` holds weights, buffers, averages and the optimizer's moments; its metadata hold the clock, the
validation record and nothing random, since every batch is drawn from (seed, step). `best.safetensors` holds
only the averaged weights and the buffers of the best validation. `run.json` says what the run is: a run
folder is never continued with another configuration or other data.
"""

import json
import math
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from anchorroute.errors import CheckpointError, RequestError

_CODE = Path(__file__).parent


@dataclass(frozen=True)
class RunState:
    """Where a run stands: steps and seconds spent, validations made, the best score and how long ago it was."""

    step: int = 0
    seconds: float = 0.0
    validations: int = 0
    best: float = math.inf
    stale: int = 0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """A state file in memory."""

    path: Path
    at: RunState
    tensors: dict[str, Tensor]

    def restore(self, task: nn.Module, optimizer: torch.optim.Optimizer, average: list[Tensor]) -> RunState:
        """Put everything back where it was."""
        self._restore_weights(task, "model.")
        with torch.no_grad():
            for i, tensor in enumerate(average):
                tensor.copy_(self._tensor(f"average.{i}"))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self.tensors.items():
            if key.startswith("moment."):
                _, index, name = key.split(".", 2)
                moments.setdefault(int(index), {})[name] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
        return self.at

    def restore_average(self, task: nn.Module) -> None:
        """Put the averaged weights of a best file into the task."""
        self._restore_weights(task, "model.")

    def _restore_weights(self, task: nn.Module, prefix: str) -> None:
        with torch.no_grad():
            for name, tensor in _weights(task).items():
                tensor.copy_(self._tensor(prefix + name))

    def _tensor(self, key: str) -> Tensor:
        if key not in self.tensors:
            raise CheckpointError(
                f"{self.path} has no {key}: it was written by another model; start in a new run folder"
            )
        return self.tensors[key]


def _weights(task: nn.Module) -> dict[str, Tensor]:
    """Trained parameters and every stored buffer; frozen parameters come from their own checkpoint."""
    trained = {name for name, p in task.named_parameters() if p.requires_grad}
    frozen = {name for name, p in task.named_parameters() if not p.requires_grad}
    state = task.state_dict(keep_vars=True)
    return {k: v for k, v in state.items() if isinstance(v, Tensor) and (k in trained or k not in frozen)}


def save_state(
    run: Path, task: nn.Module, optimizer: torch.optim.Optimizer, average: list[Tensor], at: RunState, *, best: bool
) -> None:
    """Write the last (or best) state atomically: a reader sees the old file or the new one, never half of one."""
    weights = {f"model.{k}": v.detach() for k, v in _weights(task).items()}
    if best:
        trained = [name for name, p in task.named_parameters() if p.requires_grad]
        weights |= {f"model.{name}": tensor for name, tensor in zip(trained, average)}
    else:
        weights |= {f"average.{i}": tensor for i, tensor in enumerate(average)}
        for index, values in optimizer.state_dict()["state"].items():
            weights |= {f"moment.{index}.{k}": v for k, v in values.items() if isinstance(v, Tensor)}
    tensors = {k: v.detach().cpu().clone().contiguous() for k, v in weights.items()}
    path = run / ("best.safetensors" if best else "last.safetensors")
    temporary = path.with_suffix(".part")
    save_file(tensors, temporary, {"at": json.dumps(asdict(at))})
    temporary.replace(path)


def latest(run: Path, *, best: bool = False) -> Saved | None:
    """The run's last (or best) state, or None for a run that has none yet."""
    path = run / ("best.safetensors" if best else "last.safetensors")
    if not path.exists():
        return None
    with safe_open(path, "pt") as file:
        at = RunState(**json.loads(file.metadata()["at"]))
        return Saved(path, at, {key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118 - not a dict


def claim(run: Path, config: Mapping[str, Any]) -> None:
    """Make `run` the folder of this configuration, or refuse it if it is the folder of another one."""
    run.mkdir(parents=True, exist_ok=True)
    path = run / "run.json"
    wanted = json.loads(json.dumps(config))
    if path.exists():
        found = json.loads(path.read_text())
        differing = [k for k in sorted(wanted.keys() | found.keys()) if wanted.get(k) != found.get(k) and k != "commit"]
        if differing:
            key = differing[0]
            raise RequestError(
                f"{run} holds a run with {key} = {_short(found.get(key))}, this one has {_short(wanted.get(key))}:"
                " continue it with the same options, or name a new run folder"
            )
        return
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({**wanted, "commit": commit()}, indent=2) + "\n")
    temporary.replace(path)


def commit() -> str:
    """The commit of the code that runs, "+changes" if it differs, or "unknown" outside a repository."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=_CODE, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "HEAD")
        return f"{head}+changes" if head and git("status", "--porcelain", "--", ".") else head or "unknown"
    except FileNotFoundError:
        return "unknown"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
