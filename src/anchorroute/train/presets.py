"""Full runs as functions: `tokenizer("open", data, run)` is everything between a data set and trained weights.

Each takes a data set (folder or pack) and a run folder, and continues the run that the folder holds. `Options` are
what the command line may change; everything else is decided here, per preset:

- `open`: what ships; sized for a laptop's processor or a few minutes of a GPU;
- `paper`: the paper's sizes, as the yardstick of what the data allow;
- `debug`: tiny, for tests and for trying the chain.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric

from anchorroute import tokenizer as tokenizers
from anchorroute.data.humanml3d import Dataset, load
from anchorroute.errors import RequestError
from anchorroute.train.corpus import Corpus
from anchorroute.train.loop import Finished, LoopConfig, Task, fit
from anchorroute.train.state import claim, commit
from anchorroute.train.tokenizer import TokenizerTask, TokenizerTaskConfig

Preset = Literal["open", "paper", "debug"]


@dataclass(frozen=True)
class Options:
    """What a person may choose for a run; None keeps the preset's choice."""

    minutes: float | None = None
    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    seed: int = 0
    validations: int | None = None
    save_every: int | None = None
    precision: str | None = None
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    compile: bool = False
    pause_after: float | None = None  # minutes of this call; the run continues with the same command

    def fabric(self, precision: str) -> Fabric:
        """Launch the processes."""
        strategy = "ddp" if self.devices * self.nodes > 1 else "auto"
        fabric = Fabric(
            accelerator=self.accelerator,
            devices=self.devices,
            num_nodes=self.nodes,
            strategy=strategy,
            precision=precision,  # type: ignore[arg-type]
        )
        fabric.launch()
        return fabric

    def apply(self, loop: LoopConfig) -> LoopConfig:
        """The preset's loop with this run's choices."""
        names = {f.name for f in fields(LoopConfig)}
        chosen = {k: v for k, v in asdict(self).items() if k in names and v is not None}
        if "minutes" in chosen:
            chosen.setdefault("steps", None)
        if chosen.get("steps"):
            chosen.setdefault("minutes", None)
        return replace(loop, **chosen)


@dataclass(frozen=True)
class Material:
    """The data of a run: both corpora, statistics and the fingerprint that checkpoints carry."""

    train: Corpus
    validation: Corpus
    dataset: Dataset

    @staticmethod
    def read(data: Path, *, captioned: bool, minimum: int = 40) -> "Material":
        """Train with mirrored, weak and extra clips; validation on captioned clips as recorded."""
        dataset = load(data, "train", captioned=captioned)
        held_out = load(data, "val", weak=False, mirrored=False, captioned=True)
        return Material(Corpus.of(dataset, minimum=minimum), Corpus.of(held_out, minimum=minimum), dataset)


def run(
    stage: str,
    preset: Preset,
    folder: Path,
    loop: LoopConfig,
    options: Options,
    extra: dict[str, Any],
    build: Callable[[], Task],
) -> tuple[Task, Finished, Fabric]:
    """Launch, claim the folder, train."""
    if preset not in ("open", "paper", "debug"):
        raise RequestError(f"no preset {preset!r}: take open, paper or debug")
    loop = options.apply(loop)
    fabric = options.fabric(loop.precision)
    if fabric.is_global_zero:
        claim(folder, {"stage": stage, "preset": preset, "seed": options.seed, "loop": asdict(loop)} | extra)
    fabric.barrier()
    torch.manual_seed(options.seed)  # initial weights
    task = build()
    finished = fit(task, loop, folder, fabric=fabric, seed=options.seed, pause_after=options.pause_after)
    return task, finished, fabric


# -------------------------------------------------------------------------------- tokenizer

_TOKENIZER_LOOPS: dict[str, LoopConfig] = {
    "open": LoopConfig(batch=32, lr=4e-4, warmup=500, minutes=50, validations=10),
    "paper": LoopConfig(batch=256, lr=4e-4, warmup=500, steps=10_000),
    "debug": LoopConfig(batch=8, lr=1e-3, warmup=5, steps=20, validations=2, log_every=5, precision="32-true"),
}


def tokenizer(preset: Preset, data: Path, folder: Path, options: Options = Options()) -> Finished:
    """Train a motion tokenizer; leaves `tokenizer` (a checkpoint) in the run folder."""
    config = {"open": tokenizers.open, "paper": tokenizers.paper, "debug": tokenizers.debug}[preset]()
    how = TokenizerTaskConfig() if preset != "debug" else TokenizerTaskConfig(windows=(40,), validation_clips=2)
    material = Material.read(data, captioned=False)

    def build() -> TokenizerTask:
        model = tokenizers.Tokenizer(config)
        model.set_statistics(material.dataset.mean.numpy(), material.dataset.std.numpy())
        return TokenizerTask(tokenizers.TokenizerTrainer(model), material.train, material.validation, how, options.seed)

    extra = {"config": asdict(config), "task": asdict(how), "data": material.dataset.fingerprint}
    task, finished, fabric = run("tokenizer", preset, folder, _TOKENIZER_LOOPS[preset], options, extra, build)
    if fabric.is_global_zero and finished.reason != "pause":
        assert isinstance(task, TokenizerTask)
        from anchorroute import checkpoint

        provenance = _provenance(material, finished)
        checkpoint.save(folder / "tokenizer", task.trainer.tokenizer, config, provenance)
    return finished


def _provenance(material: Material, finished: Finished) -> dict[str, Any]:
    return {
        "data": material.dataset.fingerprint,
        "commit": commit(),
        "steps": finished.step,
        "minutes": round(finished.minutes, 2),
        "validation": {k: round(v, 6) for k, v in finished.figures.items()},
    }
