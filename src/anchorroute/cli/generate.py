"""`anchorroute generate`: text and anchors in, motion files out, with a report measured on the files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anchorroute.cli.options import anchor_options, json_option, model_options, shape_options, solver_options

if TYPE_CHECKING:
    from anchorroute.pipeline import AnchorRoute
    from anchorroute.report import Report


@click.command()
@click.argument("text")
@anchor_options
@click.option("--seconds", type=float, help="Length, 2 to 9.8 s; default: up to the last anchor, else 6.")
@click.option("--samples", type=click.IntRange(1, 64), default=1, show_default=True, help="How many, the best first.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same motion.")
@click.option("--guidance", type=float, help="How much the text counts; default: the value chosen on validation.")
@solver_options
@click.option(
    "--out", "-o", "outputs", multiple=True, type=click.Path(path_type=Path),
    help="Output; the ending (.bvh .glb .npz .html) says the format. May be repeated. Default: motion.bvh",
)  # fmt: skip
@shape_options
@model_options
@json_option
@click.option("--strict", is_flag=True, help="Doubts about the anchors are errors; exit with 1 if one is not met.")
@click.option("--watch", is_flag=True, help="Generate again whenever the anchor file changes, until Ctrl-C.")
def generate(**options: Any) -> None:
    """Make a motion from TEXT and anchors.

    \b
    anchorroute generate "a person walks forward and waves" --seconds 4 -o wave.glb
    anchorroute generate "a person walks" --at "0s pelvis 0,_,0" --at "4s pelvis 1.5,_,3" -o walk.bvh -o walk.html
    """
    from anchorroute.cli.outputs import checked_paths

    paths = checked_paths(options["outputs"] or (Path("motion.bvh"),))
    if options["watch"] and options["anchor_file"] is None:
        raise click.UsageError("--watch looks at an anchor file; give one with --anchors")
    _request(options)  # a wrong request is told before seconds are spent on loading
    from anchorroute.pipeline import load

    pipe = load(options["model"], device=options["device"])
    met = _once(pipe, paths, options)
    if options["watch"]:
        _watch(options["anchor_file"], lambda: _once(pipe, paths, options))
    if options["strict"] and not met:
        click.get_current_context().exit(1)


def _request(options: dict[str, Any]) -> Any:
    from anchorroute.cli.values import anchors_from
    from anchorroute.request import checked

    anchors = anchors_from(options["anchor_file"], options["points"])
    return checked(options["text"], anchors, seconds=options["seconds"], seed=options["seed"])


def _once(pipe: AnchorRoute, paths: list[Path], options: dict[str, Any]) -> bool:
    """Generate, write, report; whether every anchor of the best sample is met in its file."""
    from anchorroute.cli.outputs import Shape, write
    from anchorroute.cli.show import progress
    from anchorroute.cli.values import solver_from

    request = _request(options)
    with progress(quiet=options["as_json"]) as on_step:
        result = pipe(
            request.text,
            request.anchors,
            seconds=options["seconds"],
            seed=options["seed"],
            samples=options["samples"],
            guidance=options["guidance"],
            solver=solver_from(options["solver"], options["steps"]),
            strict=options["strict"],
            on_step=on_step,
        )
    shape = Shape(options["fps"], options["names"], options["units"], options["in_place"])
    written = write(result, paths, shape)
    _tell(written, as_json=options["as_json"])
    return written[0][1].all_met


def _tell(written: list[tuple[Path, Report]], *, as_json: bool) -> None:
    from anchorroute.cli.show import print_files, print_report

    if as_json:
        click.echo(json.dumps([{"file": str(path), **report.to_dict()} for path, report in written], indent=2))
        return
    print_report(written[0][1])
    print_files(path for path, _ in written)


def _watch(path: Path, again: Callable[[], object]) -> None:
    """Run again when the file's time changes; a file that is wrong is told and waited for."""
    from anchorroute.errors import AnchorRouteError

    click.echo(f"watching {path}; Ctrl-C ends", err=True)
    seen = path.stat().st_mtime_ns
    while True:
        time.sleep(0.3)
        now = path.stat().st_mtime_ns if path.exists() else seen
        if now == seen:
            continue
        seen = now
        try:
            again()
        except AnchorRouteError as error:
            click.echo(f"error: {error}", err=True)
