"""`anchorroute train`: one subcommand for every part that is learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from anchorroute.train.loop import Finished
    from anchorroute.train.presets import Options

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--preset", type=click.Choice(["open", "paper", "debug"]), default="open", show_default=True),
    click.option("--minutes", type=float, help="Budget in minutes of training, over all pieces of the run."),
    click.option("--steps", type=int, help="Budget in steps, instead of minutes; bit-exact across restarts."),
    click.option("--pause-after", type=float, help="Stop after so many minutes; the same command continues."),
    click.option("--batch", type=int, help="Samples a step, over all processes."),
    click.option("--lr", type=float, help="Peak learning rate."),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--validations", type=int, help="How many, spread evenly over the budget."),
    click.option("--save-every", type=int, help="Steps between checkpoints."),
    click.option("--precision", type=click.Choice(["32-true", "bf16-mixed"]), help="Default: the preset's."),
    click.option("--accelerator", default="auto", show_default=True, help="cpu, cuda, mps or auto."),
    click.option("--devices", type=int, default=1, show_default=True, help="Processes (GPUs) on each node."),
    click.option("--nodes", type=int, default=1, show_default=True, help="Machines; start the command on each."),
    click.option("--compile", is_flag=True, help="Compile the step (CUDA graphs on a GPU)."),
    click.option("--threads", type=int, help="CPU threads; 1 is often fastest on a shared machine."),
)


def options(command: Command) -> Command:
    """What every subcommand takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    run = click.argument("run", type=click.Path(file_okay=False, path_type=Path))
    data = click.argument("data", type=click.Path(exists=True, path_type=Path))
    return data(run(command))


def _prepare(chosen: dict[str, Any]) -> Options:
    import logging

    import torch

    from anchorroute.train.presets import Options

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for noisy in ("matplotlib", "lightning_fabric"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    threads = chosen.pop("threads")
    if threads:
        torch.set_num_threads(threads)
    return Options(**chosen)


def _report(finished: Finished, run: Path) -> None:
    figures = ", ".join(f"{k} {v:.4g}" for k, v in finished.figures.items())
    state = "paused" if finished.reason == "pause" else f"done ({finished.reason})"
    click.echo(f"{run}: {state} after {finished.step} steps, {finished.minutes:.1f} minutes. {figures}")


@click.group()
def train() -> None:
    """Train a tokenizer, a prior, its residual levels, an anchor adapter or an evaluator.

    DATA is a built data set or a pack; RUN is the run's folder. A run that was stopped, or killed, continues
    when the same command is given again.
    """


_START = click.option(
    "--start",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Begin with the best weights of this run instead of from nothing.",
)


@train.command()
@_START
@options
def tokenizer(data: Path, run: Path, preset: Any, start: Path | None, **chosen: Any) -> None:
    """Motion tokenizer: residual vector quantisation of 4-frame pieces."""
    prepared = _prepare(chosen)
    from anchorroute.train import presets

    _report(presets.tokenizer(preset, data, run, prepared, start), run)


_TOKENIZER = click.option(
    "--tokenizer",
    "tokens",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Checkpoint of the tokenizer (RUN/tokenizer of its run).",
)


@train.command()
@_TOKENIZER
@options
def decoder(data: Path, run: Path, preset: Any, tokens: Path, **chosen: Any) -> None:
    """Tune a tokenizer's decoder; its tokens, and what was trained on them, stay valid."""
    prepared = _prepare(chosen)
    from anchorroute.train import presets

    _report(presets.decoder(preset, data, run, tokens, prepared), run)


@train.command()
@_TOKENIZER
@options
def prior(data: Path, run: Path, preset: Any, tokens: Path, **chosen: Any) -> None:
    """Text to first-level tokens: Transition Masked Diffusion."""
    prepared = _prepare(chosen)
    from anchorroute.train import presets

    _report(presets.prior(preset, data, run, tokens, prepared), run)


@train.command()
@_TOKENIZER
@options
def residual(data: Path, run: Path, preset: Any, tokens: Path, **chosen: Any) -> None:
    """The finer token levels, one pass a level."""
    prepared = _prepare(chosen)
    from anchorroute.train import presets

    _report(presets.residual(preset, data, run, tokens, prepared), run)


@train.command()
@click.option("--family", type=click.Choice(["root3d", "planar", "body"]), required=True)
@_TOKENIZER
@click.option(
    "--prior",
    "on",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Checkpoint of the prior (RUN/prior of its run).",
)
@click.option(
    "--residual",
    "finer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Checkpoint of the finer levels' network; without it the adapter leaves them alone.",
)
@_START
@options
def control(
    data: Path,
    run: Path,
    preset: Any,
    family: str,
    tokens: Path,
    on: Path,
    finer: Path | None,
    start: Path | None,
    **chosen: Any,
) -> None:
    """One family's anchor adapter; everything else stays frozen."""
    prepared = _prepare(chosen)
    from anchorroute.train import presets

    _report(presets.control(preset, data, run, family, tokens, on, finer, prepared, start), run)


@train.command()
@options
def evaluator(data: Path, run: Path, preset: Any, **chosen: Any) -> None:
    """The open evaluator: text and motion in one space, for judging what is generated."""
    prepared = _prepare(chosen)
    from anchorroute.train import evaluator_preset

    _report(evaluator_preset.evaluator(preset, data, run, prepared), run)


_PART = click.Path(exists=True, file_okay=False, path_type=Path)


@train.command()
@click.option("--tokenizer", "tokens", type=_PART, required=True, help="Checkpoint of the tokenizer.")
@click.option("--prior", "on", type=_PART, required=True, help="Checkpoint of the prior.")
@click.option("--residual", "finer", type=_PART, help="Checkpoint of the finer levels' network.")
@click.option("--control", "adapters", type=_PART, multiple=True, help="Checkpoint folder control-FAMILY; repeatable.")
@click.option("--storage", type=click.Choice(["int8", "float16", "float32"]), default="int8", show_default=True)
@click.option("--guidance", type=float, help="Written to settings.json; choose it on validation clips.")
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
def assemble(
    data: Path,
    out: Path,
    tokens: Path,
    on: Path,
    finer: Path | None,
    adapters: tuple[Path, ...],
    storage: Any,
    guidance: float | None,
) -> None:
    """Put trained parts into one model folder OUT, stored in few bits, with the solver's norm measured on DATA."""
    from anchorroute.data.humanml3d import load
    from anchorroute.train import assemble as assembling
    from anchorroute.train.corpus import Corpus

    control = {folder.name.removeprefix("control-"): folder for folder in adapters}
    settings: dict[str, float] = {} if guidance is None else {"guidance": guidance}
    if finer is None:
        settings["levels"] = 1  # what the prior writes is then all there is
    corpus = Corpus.of(load(data, "train", mirrored=True))
    sizes = assembling.assemble(
        assembling.Parts(tokens, on, finer, control), corpus, out, storage=storage, settings=settings
    )
    for name, size in sizes.items():
        click.echo(f"{size / 2**20:8.2f} MiB  {name}")
    click.echo(f"{sum(sizes.values()) / 2**20:8.2f} MiB  {out}")


if __name__ == "__main__":
    train()
