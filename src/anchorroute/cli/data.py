"""`anchorroute data`: build, pack, check, report and show data sets in HumanML3D's layout."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anchorroute.data.check import CheckReport
    from anchorroute.data.humanml3d import Clip

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_SHOWN = 5


@click.group()
def data() -> None:
    """Build, check, pack and show data sets in HumanML3D's layout."""


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar with the time left, on standard error; nothing when nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@data.command()
@click.argument("source", type=_FOLDER)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--weak/--no-weak", default=True, show_default=True, help="Cut what no segment covers into train clips.")
@click.option("--mirror/--no-mirror", default=True, show_default=True, help="Add mirrored copies of train clips.")
@click.option("--extra", multiple=True, help="A folder of SOURCE/extra to train on as well; 'all' for every one.")
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1), help="How many work at once.")
def build(source: Path, out: Path, weak: bool, mirror: bool, extra: tuple[str, ...], processes: int) -> None:
    """Turn SOURCE (BVH files, takes.jsonl, segments.jsonl) into a data set in OUT.

    BVH files with CMU's joint names lie anywhere below SOURCE, at 20 fps or CMU's original 60 or 120, packed with xz
    or not. A build that was killed goes on where it was when called again.

    \b
    takes.jsonl, a line for each recording:
      {"take": "01_01", "fps": 120, "subject": "climb", "description": "forward jumps"}
      take is the BVH file's name, fps its true rate; the two texts caption weak clips.
    segments.jsonl, a line for each clip (frames at 20 fps, end not included):
      {"id": "000001", "take": "01_01", "start": 0, "end": 120, "use": "train",
       "strict": false, "captions": ["a person jumps."]}
      use is train, val, test or none.
    """
    from anchorroute.data.build import BuildConfig
    from anchorroute.data.build import build as run

    if "all" in extra:
        extra = tuple(sorted(path.name for path in (source / "extra").glob("*") if path.is_dir()))
    with _bar("building") as progress:
        built = run(source, out, BuildConfig(weak, mirror, extra), processes=processes, progress=progress)
    click.echo(f"{out}: {built.clips} clips, {built.rows} rows of features, fingerprint {built.fingerprint[:12]}")
    for reason, count in built.left_out.items():
        click.echo(f"  left out {count:5d}: {reason}")
    click.echo(f"every one by name: {out / 'report.json'}")


@data.command()
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def pack(folder: Path, file: Path) -> None:
    """Put the data set in DIR into one FILE of a few megabytes, which every command reads like the folder."""
    from anchorroute.data.pack import pack as run

    with _bar("packing") as progress:
        packed = run(folder, file, progress=progress)
    click.echo(
        f"{file}: {packed.clips} clips ({packed.rebuilt} of them mirrored from others) in {packed.size / 1e6:.1f} MB, "
        f"joints at most {1000 * packed.error:.2f} mm off"
    )
    for one in packed.left_out:
        click.echo(f"  left out {one.id}: {one.reason}")


@data.command()
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--all", "everything", is_flag=True, help="List every finding, not the first few of each kind.")
def check(folder: Path, everything: bool) -> None:
    """Validate any folder in HumanML3D's layout; exits with 1 if something makes scores or training wrong."""
    from anchorroute.data.check import check as run

    with _bar("checking") as progress:
        report = run(folder, progress=progress)
    _print_findings(report, None if everything else _SHOWN)
    splits = ", ".join(f"{split} {count}" for split, count in report.clips.items())
    click.echo(f"{folder}: {splits or 'no'} clips, {report.captions} captions, fingerprint {report.fingerprint[:12]}")
    click.echo(f"{len(report.errors)} errors, {len(report.findings) - len(report.errors)} warnings")
    if report.errors:
        raise SystemExit(1)


def _print_findings(report: CheckReport, shown: int | None) -> None:
    kinds = Counter((finding.severity, finding.rule) for finding in report.findings)
    for (severity, rule), count in sorted(kinds.items()):
        click.echo(f"{severity}: {rule} ({count})")
        alike = [finding for finding in report.findings if (finding.severity, finding.rule) == (severity, rule)]
        for finding in alike[:shown]:
            click.echo(f"    {finding.where}{': ' if finding.detail else ''}{finding.detail}")
        if shown is not None and count > shown:
            click.echo(f"    and {count - shown} more; --all lists them")


@data.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True))
@click.option("--reason", help="List the clips left out for reasons that contain this text.")
def report(folder: Path, reason: str | None) -> None:
    """What a built data set holds, split by split, and what was left out of it and why."""
    import json

    from anchorroute.data.layout import REPORT, read_index

    index = read_index(folder / "index.jsonl")
    if not index:
        raise click.UsageError(f"{folder} has no index.jsonl; `anchorroute data check {folder}` looks at any folder")
    left = json.loads((folder / REPORT).read_text())
    if reason is not None:
        for one in left["left_out"]:
            if reason in one["reason"]:
                frames = f"{one['take']} frames {one['start']} to {one['end']}"
                click.echo(f"{one['id']}  {frames}  {one['reason']}{': ' if one['detail'] else ''}{one['detail']}")
        return
    kinds: Counter[tuple[str, str, str, str]] = Counter()
    rows: Counter[tuple[str, str, str, str]] = Counter()
    for entry in index.values():
        text = "weak text" if entry.weak and entry.captions else "captioned" if entry.captions else "no text"
        kind = (entry.split, entry.source, text, "mirrored" if entry.mirrored else "strict" if entry.strict else "")
        kinds[kind] += 1
        rows[kind] += entry.rows
    for kind in sorted(kinds):
        name = "  ".join(f"{part:<9}" for part in kind)
        click.echo(f"{name}  {kinds[kind]:6d} clips  {rows[kind]:8d} rows")
    for why, count in left["reasons"].items():
        click.echo(f"left out {count:5d}: {why}")


@data.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--data", "folder", type=click.Path(path_type=Path, exists=True), envvar="ANCHORROUTE_DATA", required=True,
    help="The data set, folder or packed file; or set ANCHORROUTE_DATA.",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Where to write.")
def show(ids: tuple[str, ...], folder: Path, out: Path) -> None:
    """Draw clips: a contact sheet (PNG) with a row each, and a 3D player (HTML) for each.

    For many clips at once ID may be 'random:N'.
    """
    from anchorroute.motion import html, sheet
    from anchorroute.motion.motion import Motion

    clips = _find(folder, ids)
    out.mkdir(parents=True, exist_ok=True)
    motions = []
    for clip in clips:
        text = clip.captions[0] if clip.captions else ""
        motions.append(Motion.from_features(clip.features.numpy(), text=text, provenance={"clip": clip.id}))
        click.echo(f"{clip.id}  {clip.frames} rows  {clip.source}{'  weak' if clip.weak else ''}")
        for caption in clip.captions:
            click.echo(f"    {caption}")
        click.echo(f"    {html.save(motions[-1], out / f'{clip.id}.html')}")
    name = clips[0].id if len(clips) == 1 else "clips"
    titles = [f"{clip.id}  {motion.text}" for clip, motion in zip(clips, motions)]
    click.echo(str(sheet.save(motions, out / f"{name}.png", titles=titles)))


def _find(folder: Path, ids: tuple[str, ...]) -> list[Clip]:
    from difflib import get_close_matches

    import numpy as np

    from anchorroute.data.humanml3d import clip_ids, load
    from anchorroute.errors import DataError

    wanted: list[str] = []
    known = clip_ids(folder)
    for ident in ids:
        if not ident.startswith("random:"):
            wanted.append(ident)
            continue
        if not ident[7:].isdigit() or not 0 < int(ident[7:]) <= len(known):
            raise click.UsageError(f"{ident!r}: write random:N with N from 1 to {len(known)}")
        chosen = np.random.default_rng(0).choice(len(known), int(ident[7:]), replace=False)
        wanted += [known[int(number)] for number in chosen]
    unknown = [ident for ident in wanted if not any(ident == one or ident.endswith(f"_{one}") for one in known)]
    if unknown:
        near = get_close_matches(unknown[0], known, n=3, cutoff=0.0)
        raise DataError(f"{folder} has no clip {unknown[0]!r}; the nearest of its {len(known)} are {', '.join(near)}")
    clips = load(folder, "all", ids=wanted)
    return [clips.find(ident) for ident in wanted]
