"""Options that several subcommands share, so that they mean the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _together(*options: Decorator) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


anchor_options = _together(
    click.option(
        "--anchors",
        "-a",
        "anchor_file",
        type=click.Path(path_type=Path),
        help="Anchor file (see `anchorroute schema`).",
    ),
    click.option(
        "--at",
        "points",
        multiple=True,
        metavar="'TIME JOINT X,Y,Z'",
        help="An anchor, as '2.0s pelvis 1.0,_,2.0'; _ leaves a coordinate free. May be repeated.",
    ),
)

solver_options = _together(
    click.option(
        "--solver",
        type=click.Choice(["gauss-newton", "adam", "none"]),
        default="gauss-newton",
        show_default=True,
        help="What makes the motion meet its anchors.",
    ),
    click.option("--steps", type=click.IntRange(1), help="Steps of the solver (adam: 200; gauss-newton: at most 24)."),
)

shape_options = _together(
    click.option("--fps", type=click.FloatRange(1, 240), help="Frame rate of the files; 20 if not given."),
    click.option(
        "--names", type=click.Choice(["mixamo", "smpl"]), default="mixamo", show_default=True, help="Joint names."
    ),
    click.option(
        "--units", type=click.Choice(["cm", "m"]), default="cm", show_default=True, help="Length unit of BVH files."
    ),
    click.option("--in-place", is_flag=True, help="Take the travel out; the file's metadata say how much."),
)

model_options = _together(
    click.option("--model", default="open", show_default=True, help="open, debug (random weights), or a folder."),
    click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps."),
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
