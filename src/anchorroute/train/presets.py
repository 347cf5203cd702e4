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
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from lightning_fabric import Fabric

from anchorroute import checkpoint, conditioning, tmd
from anchorroute import tokenizer as tokenizers
from anchorroute import transformer as transformers
from anchorroute.data.humanml3d import load
from anchorroute.errors import RequestError
from anchorroute.motion.features import to_joints
from anchorroute.observation import family as family_of
from anchorroute.text import TextEncoder
from anchorroute.train.control import ControlTask, ControlTaskConfig, Frozen
from anchorroute.train.corpus import Corpus, rng
from anchorroute.train.loop import Finished, LoopConfig, Task, fit, leave
from anchorroute.train.prior import Captioned, DrawConfig, PriorTask, PriorTaskConfig, ResidualTask
from anchorroute.train.state import claim, commit, latest
from anchorroute.train.texts import TextStore
from anchorroute.train.tokenizer import DecoderTask, DecoderTaskConfig, TokenizerTask, TokenizerTaskConfig
from anchorroute.train.tokens import TokenStore, encoder_hash

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
    """The data of a run: both corpora, the statistics and the fingerprint that checkpoints carry."""

    train: Corpus
    validation: Corpus
    mean: Float[np.ndarray, "263"]
    std: Float[np.ndarray, "263"]
    fingerprint: str

    @staticmethod
    def read(data: Path, *, captioned: bool, minimum: int = 40) -> "Material":
        """Train with mirrored, weak and extra clips; validation on captioned clips as recorded."""
        dataset = load(data, "train", captioned=captioned)
        held_out = load(data, "val", weak=False, mirrored=False, captioned=True)
        return Material(
            Corpus.of(dataset, minimum=minimum),
            Corpus.of(held_out, minimum=minimum),
            dataset.mean.numpy(),
            dataset.std.numpy(),
            dataset.fingerprint,
        )

    def captioned(self, tokenizer: tokenizers.Tokenizer, encoder: TextEncoder) -> tuple[Captioned, Captioned]:
        """Both corpora as tokens and encoded texts; slow the first time, cached on disk after it."""
        both = (self.train, self.validation)
        texts = TextStore.of(encoder, [text for corpus in both for clip in corpus.captions for text in clip])
        train, validation = (Captioned(corpus, TokenStore.of(tokenizer, corpus), texts) for corpus in both)
        return train, validation


def run(
    stage: str,
    preset: Preset,
    folder: Path,
    loop: LoopConfig,
    options: Options,
    identity: dict[str, Any],
    build: Callable[[], Task],
) -> tuple[Task, Finished, Fabric]:
    """Launch, claim the folder, train."""
    loop = options.apply(loop)
    fabric = options.fabric(loop.precision)
    if fabric.is_global_zero:
        claim(folder, {"stage": stage, "preset": preset, "seed": options.seed, "loop": asdict(loop)} | identity)
    fabric.barrier()
    torch.manual_seed(options.seed)  # initial weights
    task = build()
    finished = fit(task, loop, folder, fabric=fabric, seed=options.seed, pause_after=options.pause_after)
    return task, finished, fabric


def export(
    folder: Path,
    result: tuple[Task, Finished, Fabric],
    module: torch.nn.Module,
    config: Any,
    provenance: dict[str, Any],
    on_top_of: dict[str, str] | None = None,
) -> Finished:
    """Write the finished network's checkpoint."""
    _, finished, fabric = result
    if fabric.is_global_zero and finished.reason != "pause":
        about = provenance | {
            "commit": commit(),
            "steps": finished.step,
            "minutes": round(finished.minutes, 2),
            "validation": {k: round(v, 6) for k, v in finished.figures.items()},
        }
        checkpoint.save(folder, module, config, about, on_top_of=on_top_of)
    leave(fabric)
    return finished


def begin_with(task: Task, start: Path) -> None:
    """Take the best averaged weights of another run of the same networks."""
    best = latest(start, best=True)
    if best is None:
        raise RequestError(f"{start} holds no best.safetensors: name the folder of a run that validated at least once")
    best.restore_average(task)


# ---------------------------------------------------------------------------------------------------------- tokenizer

_TOKENIZER_LOOPS: dict[Preset, LoopConfig] = {
    "open": LoopConfig(batch=32, lr=5e-4, warmup=300, ema=0.998, minutes=50, validations=10),
    "paper": LoopConfig(batch=256, lr=4e-4, warmup=500, steps=10_000),
    "debug": LoopConfig(batch=8, lr=1e-3, warmup=5, steps=20, validations=2, log_every=5, precision="32-true"),
}


def tokenizer(
    preset: Preset, data: Path, folder: Path, options: Options = Options(), start: Path | None = None
) -> Finished:
    """Train a motion tokenizer; leaves the checkpoint `tokenizer` in the run folder.

    `start` is the folder of another run, whose best weights this one begins with.
    """
    config = {"open": tokenizers.open, "paper": tokenizers.paper, "debug": tokenizers.debug}[preset]()
    how = TokenizerTaskConfig() if preset != "debug" else TokenizerTaskConfig(windows=(40,), validation_clips=2)
    material = Material.read(data, captioned=False)

    def build() -> TokenizerTask:
        trainer = tokenizers.TokenizerTrainer(tokenizers.Tokenizer(config))
        trainer.tokenizer.set_statistics(material.mean, material.std)
        task = TokenizerTask(trainer, material.train, material.validation, how, options.seed)
        if start is not None:
            begin_with(task, start)
        return task

    identity = {"config": asdict(config), "task": asdict(how), "data": material.fingerprint}
    identity |= {"start": str(start)} if start is not None else {}
    result = run("tokenizer", preset, folder, _TOKENIZER_LOOPS[preset], options, identity, build)
    model = cast("TokenizerTask", result[0]).model.tokenizer
    return export(folder / "tokenizer", result, model, config, {"data": material.fingerprint})


_DECODER_LOOPS: dict[Preset, LoopConfig] = {
    "open": LoopConfig(batch=32, lr=2e-4, warmup=50, ema=0.995, minutes=25, validations=4),
    "paper": LoopConfig(batch=128, lr=2e-4, warmup=100, steps=3_000),
    "debug": LoopConfig(batch=8, lr=1e-3, warmup=2, steps=6, validations=1, log_every=2, precision="32-true"),
}


def decoder(preset: Preset, data: Path, folder: Path, tokenizer: Path, options: Options = Options()) -> Finished:
    """Tune a tokenizer's decoder behind the tokens that it has; leaves the checkpoint `tokenizer`.

    The tokens stay, so networks trained on the old checkpoint serve the new one: give it to their command once
    more, and their checkpoints are written for it.
    """
    below = checkpoint.load(tokenizer, kind="Tokenizer")
    how = DecoderTaskConfig() if preset != "debug" else DecoderTaskConfig(windows=(40,), validation_clips=2)
    material = Material.read(data, captioned=True)
    tokens = TokenStore.of(below.module, material.train)

    def build() -> DecoderTask:
        return DecoderTask(below.module, tokens, material.train, material.validation, how, options.seed)

    identity = {"task": asdict(how), "data": material.fingerprint, "tokenizer": below.id}
    result = run("decoder", preset, folder, _DECODER_LOOPS[preset], options, identity, build)
    provenance = {"data": material.fingerprint, "before_tuning": below.id}
    return export(folder / "tokenizer", result, below.module, below.config, provenance)


# -------------------------------------------------------------------------------------------------------------- prior

_PRIOR_LOOPS: dict[Preset, LoopConfig] = {
    "open": LoopConfig(batch=48, lr=6e-4, warmup=200, weight_decay=0.01, ema=0.998, minutes=30, validations=6),
    "paper": LoopConfig(batch=256, lr=2e-4, warmup=500, weight_decay=0.01, steps=3_000, validations=10, patience=4),
    "debug": LoopConfig(batch=8, lr=1e-3, warmup=5, steps=12, validations=2, log_every=4, precision="32-true"),
}


def prior(preset: Preset, data: Path, folder: Path, tokenizer: Path, options: Options = Options()) -> Finished:
    """Train the text-to-token prior on top of a tokenizer's checkpoint; leaves the checkpoint `prior`."""
    below = checkpoint.load(tokenizer, kind="Tokenizer")
    tokens: tokenizers.Tokenizer = below.module
    sizes = {"open": transformers.open, "paper": transformers.paper, "debug": transformers.debug}[preset]()
    encoder = TextEncoder()
    config = replace(sizes, vocabulary=tokens.config.codes, text_width=encoder.width)
    how = PriorTaskConfig() if preset != "debug" else PriorTaskConfig(draw=DrawConfig(validation_clips=4))
    path = tmd.PathConfig()
    material = Material.read(data, captioned=True)
    train, validation = material.captioned(tokens, encoder)

    def build() -> PriorTask:
        noise = tmd.Path(tokens.codebooks[0], path)
        return PriorTask(transformers.Transformer(config), noise, train, validation, how, options.seed)

    identity = {"config": asdict(config), "task": asdict(how), "data": material.fingerprint}
    identity["tokens"] = encoder_hash(tokens)
    result = run("prior", preset, folder, _PRIOR_LOOPS[preset], options, identity, build)
    provenance = {"data": material.fingerprint, "text_encoder": encoder.id, "path": asdict(path)}
    network = cast("PriorTask", result[0]).model
    return export(folder / "prior", result, network, config, provenance, {"tokenizer": below.id})


# ----------------------------------------------------------------------------------------------------------- residual

_RESIDUAL_LOOPS: dict[Preset, LoopConfig] = {
    "open": LoopConfig(batch=48, lr=6e-4, warmup=200, weight_decay=0.01, ema=0.998, minutes=12, validations=4),
    "paper": LoopConfig(batch=256, lr=2e-4, warmup=500, weight_decay=0.01, steps=3_000, validations=10, patience=4),
    "debug": LoopConfig(batch=8, lr=1e-3, warmup=5, steps=12, validations=2, log_every=4, precision="32-true"),
}


def residual(preset: Preset, data: Path, folder: Path, tokenizer: Path, options: Options = Options()) -> Finished:
    """Train the finer levels' network on top of a tokenizer's checkpoint; leaves the checkpoint `residual`."""
    below = checkpoint.load(tokenizer, kind="Tokenizer")
    tokens: tokenizers.Tokenizer = below.module
    sizes = {
        "open": transformers.residual_open,
        "paper": transformers.residual_paper,
        "debug": transformers.residual_debug,
    }[preset]()
    encoder = TextEncoder()
    config = replace(
        sizes,
        vocabulary=tokens.config.codes,
        text_width=encoder.width,
        levels=tokens.config.levels,
        code_width=tokens.config.code_width,
    )
    how = DrawConfig() if preset != "debug" else DrawConfig(validation_clips=4)
    material = Material.read(data, captioned=True)
    train, validation = material.captioned(tokens, encoder)

    def build() -> ResidualTask:
        network = transformers.ResidualTransformer(config)
        return ResidualTask(network, tokens, train, validation, how, options.seed)

    identity = {"config": asdict(config), "task": asdict(how), "data": material.fingerprint}
    identity["tokens"] = encoder_hash(tokens)
    result = run("residual", preset, folder, _RESIDUAL_LOOPS[preset], options, identity, build)
    provenance = {"data": material.fingerprint, "text_encoder": encoder.id}
    network = cast("ResidualTask", result[0]).model
    return export(folder / "residual", result, network, config, provenance, {"tokenizer": below.id})


# ------------------------------------------------------------------------------------------------------------ control

_CONTROL_LOOPS: dict[Preset, LoopConfig] = {
    "open": LoopConfig(batch=12, lr=2e-3, warmup=50, weight_decay=0.0, ema=0.99, minutes=20, validations=2),
    "paper": LoopConfig(batch=128, lr=5e-4, warmup=200, weight_decay=0.0, steps=3_000, validations=4),
    "debug": LoopConfig(batch=4, lr=1e-3, warmup=2, steps=6, validations=1, log_every=2, precision="32-true"),
}


def control(
    preset: Preset,
    data: Path,
    folder: Path,
    family: str,
    tokenizer: Path,
    prior: Path,
    residual: Path | None = None,
    options: Options = Options(),
    start: Path | None = None,
) -> Finished:
    """Train one family's anchor adapter on top of frozen networks; leaves the checkpoint `control-FAMILY`.

    `start` is the folder of another run, whose best weights this one begins with.
    """
    below = checkpoint.load(tokenizer, kind="Tokenizer")
    on = {"tokenizer": below.id}
    text_prior = checkpoint.load(prior, kind="Transformer", on_top_of=on)
    finer = None if residual is None else checkpoint.load(residual, kind="ResidualTransformer", on_top_of=on)
    path = tmd.PathConfig(**text_prior.provenance["path"])
    frozen = Frozen(
        below.module,
        text_prior.module,
        None if finer is None else finer.module,
        tmd.Path(below.module.codebooks[0], path),
    )
    small: dict[str, Any] = {"rank": 4, "fine_rank": 4, "hidden": 16} if preset == "debug" else {}
    fine_config = None if finer is None else finer.config
    config = conditioning.ConditionerConfig.of(family, text_prior.config, fine_config, **small)
    how = (
        ControlTaskConfig()
        if preset != "debug"
        else ControlTaskConfig(prior=PriorTaskConfig(draw=DrawConfig(validation_clips=2)), counts=(2, 4), steps=2)
    )
    material = Material.read(data, captioned=True)
    train, validation = material.captioned(frozen.tokenizer, TextEncoder())

    def build() -> ControlTask:
        model = conditioning.Conditioner(config)
        some = rng(options.seed, 0, 4).permutation(len(material.train))[:400]
        motions = (to_joints(material.train.whole(int(i), longest=400)[0]) for i in some)
        model.set_statistics(*conditioning.statistics(motions, family_of(family)))
        task = ControlTask(model, frozen, train, validation, how, options.seed)
        if start is not None:
            begin_with(task, start)
        return task

    identity = {"family": family, "config": asdict(config), "task": asdict(how), "data": material.fingerprint}
    identity |= {"start": str(start)} if start is not None else {}
    on |= {"prior": text_prior.id} | ({} if finer is None else {"residual": finer.id})
    result = run("control", preset, folder, _CONTROL_LOOPS[preset], options, identity | on, build)
    model = cast("ControlTask", result[0]).model
    return export(folder / f"control-{family}", result, model, config, {"data": material.fingerprint}, on)
