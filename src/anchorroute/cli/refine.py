"""`anchorroute refine`: make a motion that this program did not generate meet anchors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anchorroute.cli.options import anchor_options, json_option, model_options, shape_options, solver_options


@click.command()
@click.argument("motion", type=click.Path(path_type=Path))
@anchor_options
@solver_options
@click.option(
    "--out", "-o", "outputs", multiple=True, type=click.Path(path_type=Path),
    help="Output (.bvh .glb .npz .html). May be repeated. Default: MOTION-refined.bvh",
)  # fmt: skip
@shape_options
@model_options
@json_option
@click.option("--strict", is_flag=True, help="Doubts about the anchors are errors; exit with 1 if one is not met.")
def refine(motion: Path, **options: Any) -> None:
    """Make MOTION (BVH, NPZ, GLB, HTML, or .npy features) meet anchors; what no anchor asks for stays as it was.

    \b
    anchorroute refine take.bvh --at "1.5s right_wrist 0.4,1.3,0.6" -o take-fixed.bvh
    """
    from anchorroute.cli.generate import _tell
    from anchorroute.cli.outputs import Shape, checked_paths, write
    from anchorroute.cli.show import progress
    from anchorroute.cli.values import anchors_from, read_motion, solver_from

    paths = checked_paths(options["outputs"] or (motion.with_name(f"{motion.stem.split('.')[0]}-refined.bvh"),))
    anchors = anchors_from(options["anchor_file"], options["points"])
    if not len(anchors) and not anchors.loop:
        raise click.UsageError("nothing to refine: give anchors with --anchors or --at")
    source = read_motion(motion)
    from anchorroute.pipeline import load

    pipe = load(options["model"], device=options["device"])
    with progress(quiet=options["as_json"]) as on_step:
        result = pipe.refine(
            source,
            anchors,
            solver=solver_from(options["solver"], options["steps"]),
            strict=options["strict"],
            on_step=on_step,
        )
    shape = Shape(options["fps"], options["names"], options["units"], options["in_place"])
    written = write(result, paths, shape)
    _tell(written, as_json=options["as_json"])
    if options["strict"] and not written[0][1].all_met:
        click.get_current_context().exit(1)
