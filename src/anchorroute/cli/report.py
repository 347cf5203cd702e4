"""`anchorroute report`: how well a motion file meets its anchors, measured on the file itself."""

from pathlib import Path

import click


@click.command()
@click.argument("motion", type=click.Path(path_type=Path))
@click.option(
    "--anchors", "anchor_file", type=click.Path(path_type=Path), help="Anchor file; default: those in the motion file."
)
@click.option("--at", "points", multiple=True, metavar="'TIME JOINT X,Y,Z'", help="An anchor; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strict", is_flag=True, help="Exit with 1 if an anchor is not met.")
@click.pass_context
def report(
    ctx: click.Context,
    motion: Path,
    anchor_file: Path | None,
    points: tuple[str, ...],
    as_json: bool,
    strict: bool,
) -> None:
    """Measure MOTION (BVH, NPZ, GLB or HTML) against anchors, in millimetres.

    BVH files hold no anchors: give them with --anchors or --at.
    """
    from anchorroute.cli.show import print_report
    from anchorroute.cli.values import anchors_from
    from anchorroute.report import measure

    given = anchors_from(anchor_file, points) if anchor_file or points else None
    measured = measure(motion, given)
    print_report(measured, as_json=as_json)
    if strict and not measured.all_met:
        ctx.exit(1)
