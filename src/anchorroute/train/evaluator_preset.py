"""The full training run of the open evaluator, from a data set to a checkpoint."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from anchorroute.evaluate.evaluator import EvaluatorConfig
from anchorroute.text import TextEncoder
from anchorroute.train.evaluator import EvaluatorTask, EvaluatorTaskConfig, build
from anchorroute.train.loop import Finished, LoopConfig
from anchorroute.train.presets import Material, Options, Preset, export, run


@dataclass(frozen=True)
class EvaluatorRun:
    """Sizes, batches and budget of one preset."""

    sizes: EvaluatorConfig
    task: EvaluatorTaskConfig
    loop: LoopConfig


#: The weight decay is a hundred times the generator's, the average short: the run is a few hundred steps.
_OPEN = LoopConfig(
    batch=64, lr=1e-3, warmup=40, weight_decay=0.05, ema=0.99, steps=700, validations=14, patience=5, save_every=50
)
PRESETS: dict[Preset, EvaluatorRun] = {
    "open": EvaluatorRun(EvaluatorConfig(), EvaluatorTaskConfig(), _OPEN),
    "paper": EvaluatorRun(
        EvaluatorConfig(width=384, layers=4, text_width=384, name="open-wide-1"),
        EvaluatorTaskConfig(),
        LoopConfig(
            batch=128, lr=5e-4, warmup=100, weight_decay=0.05, ema=0.99, steps=2_000, validations=20, patience=6
        ),
    ),
    "debug": EvaluatorRun(
        EvaluatorConfig(embed=16, width=32, layers=1, heads=2, text_width=32, name="debug"),
        EvaluatorTaskConfig(weak_share=0.0),
        LoopConfig(batch=4, lr=1e-3, warmup=2, steps=6, validations=2, log_every=2, precision="32-true"),
    ),
}


def evaluator(preset: Preset, data: Path, folder: Path, options: Options = Options()) -> Finished:  # noqa: B008
    """Train the open evaluator; leaves the checkpoint `evaluator` in the run folder."""
    chosen = PRESETS[preset]
    material = Material.read(data, captioned=True)
    identity = {"config": asdict(chosen.sizes), "task": asdict(chosen.task), "data": material.fingerprint}

    def make() -> EvaluatorTask:
        return build(
            material.train,
            material.validation,
            TextEncoder(),
            seed=options.seed,
            sizes=chosen.sizes,
            config=chosen.task,
        )

    result = run("evaluator", preset, folder, chosen.loop, options, identity, make)
    model = cast("EvaluatorTask", result[0]).evaluator
    return export(folder / "evaluator", result, model, chosen.sizes, {"data": material.fingerprint})
