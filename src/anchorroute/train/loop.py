"""The one training loop: Lightning Fabric around a `Task`, whatever is learned.

Every batch is a pure function of (seed, step): a task *draws* the whole batch, indices and noise alike, and each
process keeps its share of it. So nothing about workers, processes or restarts can change what is learned: a run
killed at any moment continues bit for bit from its last checkpoint, and two processes see the batch that one
would have seen. Only dropout draws inside the forward pass; its generator is set anew at every step.

The budget is minutes or steps. Minutes count time inside this loop, over all pieces of a run, so that a run cut
in pieces ends where one piece would; the learning rate follows the share of the budget that is spent. (Minutes
measure a clock, so two runs by minutes never match bit for bit; runs by steps do.)
"""

import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from anchorroute.errors import AnchorRouteError, RequestError
from anchorroute.train.journal import Journal, Progress
from anchorroute.train.state import RunState, latest, save_state

log = logging.getLogger("anchorroute.train")

Batch = Mapping[str, Tensor]


class Task(nn.Module, ABC):
    """Something to learn: how a batch is drawn, what it costs, how well it does on validation clips.

    `model` holds all parameters and buffers; those that require no gradient are left alone and out of checkpoints'
    averages. Every tensor of a drawn batch has the *global* batch as its first dimension. A loss that is a mean
    over something that differs between samples must weigh samples by the global total, else a share of the
    batch would count differently on two processes.
    """

    model: nn.Module

    @abstractmethod
    def draw(self, step: int, size: int) -> Batch:
        """The whole batch of this step: a pure function of the task's seed and `step`."""

    @abstractmethod
    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Scalars to log; `loss` is the one that is minimised."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Figures on validation clips with averaged weights; `score` decides what is best (lower is better)."""


@dataclass(frozen=True)
class LoopConfig:
    """How a task is trained. Exactly one of `minutes` and `steps` is the budget."""

    batch: int = 64
    lr: float = 4e-4
    final_lr: float = 0.02  # share of lr left at the end of the cosine
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 1e-5
    warmup: int = 500  # steps
    minutes: float | None = None
    steps: int | None = None
    clip: float = 1.0
    ema: float = 0.999
    validations: int = 5  # spread evenly over the budget, the last at its end
    patience: int | None = None  # validations without a better score before the run stops
    save_every: int = 500  # steps
    log_every: int = 20  # steps
    precision: str = "bf16-mixed"
    compile: bool = False

    def __post_init__(self) -> None:
        """Refuse budgets that mean nothing."""
        if (self.minutes is None) == (self.steps is None):
            raise RequestError("a run needs one budget: give either --minutes or --steps, not both and not neither")
        if (self.minutes or self.steps or 0) <= 0:
            raise RequestError(f"the budget is {self.minutes or self.steps}: minutes or steps must be above zero")

    def spent(self, step: int, seconds: float) -> float:
        """Share of the budget used, from 0 to 1."""
        used = step / self.steps if self.steps else seconds / (60 * (self.minutes or math.inf))
        return min(used, 1.0)

    def rate(self, step: int, spent: float) -> float:
        """Learning rate: linear warm-up, then a cosine over the budget."""
        cosine = self.final_lr + (1 - self.final_lr) * (1 + math.cos(math.pi * spent)) / 2
        return self.lr * cosine * min(1.0, (step + 1) / max(self.warmup, 1))


class Averaged:
    """Exponential moving average of the trained parameters; young averages forget faster."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]

    def update(self, step: int) -> None:
        """Move towards the current weights."""
        keep = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - keep)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the model carries the average."""
        kept = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.average)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, kept)


@dataclass(frozen=True)
class Finished:
    """What a call of `fit` leaves behind: where the run stands and the figures of its last validation."""

    step: int
    minutes: float
    figures: dict[str, float]
    reason: str  # "budget", "patience" or "pause"


def fit(
    task: Task,
    config: LoopConfig,
    run: Path,
    *,
    fabric: Fabric,
    seed: int = 0,
    pause_after: float | None = None,
) -> Finished:
    """Train until the budget is spent, validation stops improving, or `pause_after` minutes of this call passed.

    Continues from the run folder's last checkpoint. At the end `task.model` carries the averaged weights that
    validated best.
    """
    return _Loop(task, config, run, fabric, seed).run(pause_after)


class _Loop:
    """The state of one call of `fit`."""

    def __init__(self, task: Task, config: LoopConfig, run: Path, fabric: Fabric, seed: int) -> None:
        if config.batch % fabric.world_size:
            raise RequestError(
                f"a batch of {config.batch} cannot be shared by {fabric.world_size} processes:"
                f" take a multiple, such as {math.ceil(config.batch / fabric.world_size) * fabric.world_size}"
            )
        self.task, self.config, self.folder, self.fabric, self.seed = task, config, run, fabric, seed
        trained = [p for p in task.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, config.lr, config.betas, weight_decay=config.weight_decay)
        module: nn.Module = _compiled(task, fabric.device) if config.compile else task
        self.module, self.optimizer = fabric.setup(module, optimizer)
        self.averaged = Averaged(task, config.ema)
        self.journal = Journal(run, main=fabric.is_global_zero)
        self.at = RunState()
        saved = latest(run)
        if saved is not None:
            self.at = saved.restore(task, self.optimizer, self.averaged.average)
        self.journal.rewind(self.at.step)

    def run(self, pause_after: float | None) -> Finished:
        """Steps, validations and checkpoints until one of the three ends."""
        config, began, before = self.config, time.monotonic(), self.at.seconds
        reason = "patience" if self._impatient() else "budget"
        with Progress(self.fabric.is_global_zero) as progress:
            while not self._impatient() and config.spent(self.at.step, self.at.seconds) < 1:
                lost = self._agreed(time.monotonic() - began)
                if pause_after is not None and lost > 60 * pause_after:
                    reason = "pause"
                    break
                logged = self._step()
                seconds = before + self._agreed(time.monotonic() - began)
                self.at = replace(self.at, step=self.at.step + 1, seconds=seconds)
                spent = config.spent(self.at.step, self.at.seconds)
                if self.at.step % config.log_every == 0 or spent == 1:
                    row = self.journal.step(self.at.step, self.at.seconds, self._mean(logged))
                    progress.show(spent, self.at.step, self.at.seconds, row)
                if spent >= (self.at.validations + 1) / config.validations or spent == 1:
                    self._validate(spent)
                    self.at = replace(self.at, seconds=before + self._agreed(time.monotonic() - began))
                    reason = "patience" if self._impatient() else "budget"
                    self._save()
                elif self.at.step % config.save_every == 0:
                    self._save()
        if reason == "pause":
            self._save()
        else:
            self._take_best()
        return Finished(self.at.step, self.at.seconds / 60, dict(self.at.figures), reason)

    def _agreed(self, seconds: float) -> float:
        """All processes must stop at the same step, so the first one's clock rules."""
        if self.fabric.world_size == 1:
            return seconds
        return float(self.fabric.broadcast(seconds))

    def _mean(self, scalars: dict[str, Tensor | float]) -> dict[str, Tensor | float]:
        """Each process sees its share of the batch; the log shows the whole."""
        if self.fabric.world_size == 1:
            return scalars
        reduced = self.fabric.all_reduce({k: torch.as_tensor(v) for k, v in scalars.items()}, reduce_op="mean")
        return cast("dict[str, Tensor | float]", reduced)

    def _impatient(self) -> bool:
        return self.config.patience is not None and self.at.stale >= self.config.patience

    def _step(self) -> dict[str, Tensor | float]:
        config, step = self.config, self.at.step
        rate = config.rate(step, config.spent(step, self.at.seconds))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        whole = self.task.draw(step, config.batch)
        share = {k: v[self.fabric.global_rank :: self.fabric.world_size] for k, v in whole.items()}
        seed_step(self.seed, step, self.fabric.global_rank)
        self.task.train()
        scalars = self.module(self.fabric.to_device(share))
        self.optimizer.zero_grad()
        self.fabric.backward(scalars["loss"])
        norm = self.fabric.clip_gradients(self.module, self.optimizer, max_norm=config.clip, error_if_nonfinite=False)
        if norm is None or not bool(torch.isfinite(norm)):
            raise AnchorRouteError(
                f"loss or gradient is not finite at step {step} (loss {float(scalars['loss'].detach()):g}):"
                " resume from the last checkpoint with a lower --lr"
            )
        self.optimizer.step()
        self.averaged.update(step)
        return {"lr": rate, "norm": norm, **{k: v.detach() for k, v in scalars.items()}}

    def _validate(self, spent: float) -> None:
        figures: dict[str, float] = {}
        self.task.eval()
        if self.fabric.is_global_zero:
            with self.averaged.applied(), torch.no_grad():
                figures = self.task.validate()
        if self.fabric.world_size > 1:
            figures = self.fabric.broadcast(figures)
        better = figures["score"] < self.at.best
        count = max(self.at.validations + 1, math.floor(spent * self.config.validations))
        self.at = replace(
            self.at,
            validations=count,
            best=min(figures["score"], self.at.best),
            stale=0 if better else self.at.stale + 1,
            figures=figures,
        )
        self.journal.validation(self.at.step, self.at.seconds, figures)
        if better:
            self._save(best=True)

    def _save(self, *, best: bool = False) -> None:
        if self.fabric.is_global_zero:
            save_state(self.folder, self.task, self.optimizer, self.averaged.average, self.at, best=best)

    def _take_best(self) -> None:
        """Leave the best averaged weights in the model."""
        self.fabric.barrier()  # the first process writes them
        best = latest(self.folder, best=True)
        if best is not None:
            best.restore_average(self.task)


def _compiled(task: Task, device: torch.device) -> nn.Module:
    """Fused kernels; on a GPU replayed as CUDA graphs, since small models wait for launches there."""
    compiled: nn.Module = torch.compile(task, mode="reduce-overhead" if device.type == "cuda" else None)  # type: ignore[assignment]
    return compiled


def leave(fabric: Fabric) -> None:
    """End the process group; without this, gloo can hang when the interpreter shuts down."""
    if fabric.world_size > 1:
        fabric.barrier()
        torch.distributed.destroy_process_group()


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set what dropout and a library's own draws use: the one place that touches global generators."""
    random.seed(seed * 1_000_003 + step)
    torch.manual_seed(((seed * 1_000_003 + step) * 4099 + rank) % (1 << 63))
