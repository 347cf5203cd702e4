"""`anchorroute evaluate`: the paper's tables, the evaluator's own checks, and the page that shows them."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anchorroute.evaluate.evaluator import Evaluator
    from anchorroute.evaluate.subject import ModelSubject

RESULTS = Path("docs/results")
STORE = Path("runs/evaluate")
TABLES = ("prior", "keyjoint", "families", "components", "refinement", "mechanism", "runtime", "baselines")

_DATA = click.option(
    "--data", type=click.Path(exists=True, path_type=Path), required=True, help="Data set: a built folder or a pack."
)
_OUT = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    show_default=True,
    help="Results' folder.",
)


@click.group()
def evaluate() -> None:
    """Every table of the paper, on any data set in HumanML3D's layout.

    `anchorroute evaluate families --data DIR` runs a table and writes its JSON; a run that was stopped goes on where
    it was. `anchorroute evaluate report` renders all results as a page.
    """


def _table_command(name: str) -> click.Command:
    @click.command(name, help=f"The table {name!r}.")
    @_DATA
    @click.option("--model", default="open", show_default=True, help='"open", or a folder of checkpoints.')
    @click.option(
        "--evaluator", "judge", default="open", show_default=True, help='"open", a checkpoint, or t2m:FOLDER.'
    )
    @click.option("--split", default="test", show_default=True, help="Which clips.")
    @click.option("--repeats", type=click.IntRange(1), default=1, show_default=True, help="Repeats, for intervals.")
    @click.option("--samples", type=click.IntRange(1), help="Clips of light variants.  [default: all]")
    @click.option("--heavy-samples", type=click.IntRange(1), help="Clips of Adam variants.  [default: 64, on a CPU]")
    @click.option("--counts", help='Only these K, for example "2,8,32".')
    @click.option("--mixed", is_flag=True, help="One K a clip, in turn: the mean over K for a fifth of the time.")
    @click.option("--prompts", type=click.IntRange(0), default=0, show_default=True,
                  help="Prior: prompts made ten times each, for MultiModality.")  # fmt: skip
    @click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Motions at once.")
    @click.option("--observes", type=click.Choice(["features", "body"]), default="features", show_default=True,
                  help="What the solver meets anchors on: the paper's joints or the fixed-bone body.")  # fmt: skip
    @click.option("--threads", type=click.IntRange(1), help="Processor threads.  [default: all]")
    @click.option("--share", help='Compute only a share, such as "1/4", for several processes on one store.')
    @click.option("--strict", is_flag=True, help="Only clips whose recording training never saw.")
    @click.option("--store", type=click.Path(file_okay=False, path_type=Path), default=STORE, show_default=True,
                  help="Where finished pieces are kept.")  # fmt: skip
    @_OUT
    def command(  # noqa: PLR0917 - click passes by name
        data: Path,
        model: str,
        judge: str,
        split: str,
        repeats: int,
        samples: int | None,
        heavy_samples: int | None,
        counts: str | None,
        mixed: bool,
        prompts: int,
        batch: int,
        observes: str,
        threads: int | None,
        share: str | None,
        strict: bool,
        store: Path,
        out: Path,
    ) -> None:
        import torch

        from anchorroute.data import load
        from anchorroute.evaluate.protocols import protocol
        from anchorroute.evaluate.sweep import Budget, Sweep
        from anchorroute.evaluate.tables import table

        part, chosen_counts = _share(share), _counts(counts)
        if threads is not None:
            torch.set_num_threads(threads)
        clips = load(data, split, weak=False, mirrored=False, captioned=True)
        chosen = clips.where(lambda clip: clip.strict) if strict else clips
        heavy = heavy_samples if heavy_samples is not None or torch.cuda.is_available() else 64
        budget = Budget(repeats, samples, heavy, batch, chosen_counts, prompts)
        rules = protocol(name).mixed() if mixed else protocol(name)
        sweep = Sweep.of(
            rules, _subject(model, observes), _evaluator(judge), chosen.clips, clips.fingerprint, budget, store,
        )  # fmt: skip
        _run(sweep, part)
        if share is not None:
            click.echo(f"share {share} is done; the same command without --share writes the table")
            return
        file = out / (f"{name}-strict.json" if strict else f"{name}.json")
        shown = load(data, "train", mirrored=False).clips if name == "prior" else ()
        line = _command_line(name, data, model, budget, split, mixed=mixed, strict=strict, observes=observes)
        result = table(sweep, line, shown)
        result.stamped().save(file)
        click.echo(f"{file}: {len(result.rows)} rows")

    return command


for _name in TABLES:
    evaluate.add_command(_table_command(_name))


@evaluate.command()
@_DATA
@click.option("--evaluator", "judge", default="open", show_default=True, help='"open", a checkpoint, or t2m:FOLDER.')
@click.option(
    "--model", help='Also generate with "open", or a folder of checkpoints, and with weakened versions of it.'
)
@click.option("--samples", type=click.IntRange(32), default=64, show_default=True, help="Clips to generate.")
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), default=STORE, show_default=True,
              help="Where drafts are kept.")  # fmt: skip
@_OUT
def evaluator(data: Path, judge: str, model: str | None, samples: int, store: Path, out: Path) -> None:
    """Whether the evaluator can be trusted: real against shuffled pairs, floors, known damage, known weaknesses."""
    from dataclasses import replace

    from anchorroute import models
    from anchorroute.data import load
    from anchorroute.evaluate import order
    from anchorroute.evaluate.jobs import LONGEST, SHORTEST
    from anchorroute.evaluate.trust import trust

    test = load(data, "test", weak=False, mirrored=False)
    train = load(data, "train", weak=False, mirrored=False)
    kept = [[clip for clip in part if clip.frames >= SHORTEST] for part in (test, train)]
    chosen = _evaluator(judge)
    line = f"anchorroute evaluate evaluator --data {data.name}"
    found = trust(chosen, *kept).result(line, test.fingerprint)
    if model is not None:
        placed = order.placed(chosen, models.load(model), kept[0], samples, store)
        line += f" --model {Path(model).name} --samples {samples}"
        found = replace(found, command=line, rows=(*found.rows, *order.rows(placed)))
    file = out / "evaluator.json"
    found.stamped().save(file)
    click.echo(f"{file}: clips of {SHORTEST} frames or more, embedded whole (training saw at most {LONGEST})")


@evaluate.command()
@_DATA
@click.option("--model", default="open", show_default=True, help='"open", or a folder of checkpoints.')
@click.option("--clip", help="A clip's id.  [default: the first of the tables' draw]")
@click.option("--anchors", "count", type=click.IntRange(1), default=5, show_default=True, help="How many anchors.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("docs/figures"),
              show_default=True, help="Folder of the sheets.")  # fmt: skip
def gallery(data: Path, model: str, clip: str | None, count: int, out: Path) -> None:
    """Contact sheets: generator, RS100, RS200, RS500 and Gauss-Newton, for the three control families."""
    from anchorroute.data import load
    from anchorroute.evaluate.gallery import progression
    from anchorroute.evaluate.jobs import subset, usable
    from anchorroute.evaluate.protocols import FAMILY_NAMES, Setting
    from anchorroute.evaluate.sweep import jobs_of

    clips = usable(load(data, "test", weak=False, mirrored=False, captioned=True).clips)
    chosen = subset([one for one in clips if clip in (None, one.id)], 1)
    subject = _subject(model, "body")
    for family in FAMILY_NAMES:
        (job,) = jobs_of(Setting(family, count), chosen, 0)
        click.echo(progression(subject, job, out / f"gallery-{family}.png", title=f"{family}, "))


@evaluate.command()
@click.option("--results", type=click.Path(exists=True, file_okay=False, path_type=Path), default=RESULTS,
              show_default=True, help="Folder of JSON files.")  # fmt: skip
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), default=Path("docs/results.md"),
              show_default=True, help="The page to write.")  # fmt: skip
def report(results: Path, page: Path) -> None:
    """Render every result as one page, with the published figures beside ours, and the pictures."""
    from anchorroute.evaluate.report import write

    pictures = write(results, page)
    click.echo(f"{page}: {len(list(results.glob('*.json')))} results, {len(pictures)} pictures")


def _counts(given: str | None) -> tuple[int, ...]:
    from anchorroute.errors import RequestError

    try:
        return tuple(int(part) for part in given.split(",")) if given else ()
    except ValueError:
        raise RequestError(f'--counts "{given}": write numbers with commas, for example 2,8,32.') from None


def _subject(model: str, observes: str) -> "ModelSubject":
    from anchorroute import models
    from anchorroute.evaluate.subject import ModelSubject

    return ModelSubject.of(models.load(model), "body" if observes == "body" else "features")


def _evaluator(given: str) -> "Evaluator":
    from anchorroute.evaluate.evaluator import OpenEvaluator

    if given.startswith("t2m:"):
        from anchorroute.evaluate.t2m_evaluator import T2MEvaluator

        return T2MEvaluator.load(Path(given[4:]))
    if given == "open":
        return OpenEvaluator.shipped()
    return OpenEvaluator.load(Path(given))


def _command_line(
    name: str, data: Path, model: str, budget: object, split: str, *, mixed: bool, strict: bool, observes: str
) -> str:
    from anchorroute.evaluate.sweep import Budget

    assert isinstance(budget, Budget)
    parts = [f"anchorroute evaluate {name} --data {data.name} --repeats {budget.repeats}"]
    if model != "open":
        parts.append(f"--model {Path(model).name}")
    for option, value in (("--samples", budget.samples), ("--heavy-samples", budget.heavy_samples)):
        if value is not None:
            parts.append(f"{option} {value}")
    if budget.counts:
        parts.append(f"--counts {','.join(map(str, budget.counts))}")
    if mixed:
        parts.append("--mixed")
    if budget.prompts:
        parts.append(f"--prompts {budget.prompts}")
    if split != "test":
        parts.append(f"--split {split}")
    if observes != "features":
        parts.append(f"--observes {observes}")
    return " ".join([*parts, "--strict"] if strict else parts)


def _share(given: str | None) -> tuple[int, int]:
    from anchorroute.errors import RequestError

    try:
        mine, workers = (int(part) for part in (given or "1/1").split("/"))
    except ValueError:
        mine = workers = 0
    if not 1 <= mine <= workers:
        raise RequestError(f'--share "{given}": write which of how many, for example 1/4 up to 4/4.')
    return mine - 1, workers


def _run(sweep: object, share: tuple[int, int]) -> None:
    """The sweep with a progress bar and the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from anchorroute.evaluate.sweep import Sweep

    assert isinstance(sweep, Sweep)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("", total=None)
        sweep.run(
            lambda done, total, doing: bar.update(task, completed=done, total=total, description=doing), share=share
        )
