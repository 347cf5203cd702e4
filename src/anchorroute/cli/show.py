"""What several subcommands print: the residual table, progress with the time left, the list of files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from anchorroute.pipeline import Step
    from anchorroute.report import Report


def print_report(report: Report, *, as_json: bool = False) -> None:
    """The residual table: anchor, time, joint, target, reached, mm, met or not."""
    if as_json:
        click.echo(report.to_json())
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if report.anchors:
        table = Table(title="Anchors, measured on the written file" if report.source else "Anchors")
        for name, side in zip(("anchor", "time", "joint", "target (m)", "reached (m)", "mm", ""), "rrlrrrl"):
            table.add_column(name, justify="right" if side == "r" else "left", no_wrap=True)
        for row, line in zip(report.rows(), report.anchors):
            table.add_row(*row, style="" if line.met else "red")
        console.print(table)
    console.print(str(report).splitlines()[-1])
    for line in report.anchors:
        if line.note:
            console.print(f"  anchor {line.index}: {line.note}")
    for warning in report.warnings:
        console.print(f"  warning: {warning}", style="yellow")


def print_files(paths: Iterable[Path]) -> None:
    """The files written, with their sizes."""
    for path in paths:
        click.echo(f"  {path}  ({path.stat().st_size / 1024:.0f} kB)")


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[Step], None] | None]:
    """A progress bar with the time left, on standard error; nothing when quiet or when nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, note="")

        def on_step(step: Step) -> None:
            note = f"{step.error_mm:.1f} mm" if step.error_mm is not None else ""
            bar.update(task, description=step.stage, completed=step.done, total=step.total, note=note)

        yield on_step
