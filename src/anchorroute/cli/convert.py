"""`anchorroute convert`: one motion format into others."""

from __future__ import annotations

from pathlib import Path

import click

from anchorroute.cli.options import shape_options


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("targets", nargs=-1, required=True, type=click.Path(path_type=Path))
@shape_options
@click.option("--trim", metavar="FROM-TO", help="Keep these seconds, as 1.5-4.")
@click.option("--mirror", is_flag=True, help="Swap left and right.")
@click.option("--loop", is_flag=True, help="Mark as a loop in the file's metadata.")
def convert(
    source: Path,
    targets: tuple[Path, ...],
    fps: float | None,
    names: str,
    units: str,
    in_place: bool,
    trim: str | None,
    mirror: bool,
    loop: bool,
) -> None:
    """Convert SOURCE to one or more TARGETS (.bvh .glb .npz .html); every file is read back before it is told.

    A KIMODO constraint list (.json) becomes an anchor file (.json), and an anchor file named *.kimodo.json a list.

    \b
    anchorroute convert walk.npz walk.glb --fps 60
    anchorroute convert take.bvh take.html take.glb --in-place --loop
    anchorroute convert constraints.json anchors.json
    """
    if source.suffix.lower() == ".json":
        _anchors(source, targets)
        return
    from anchorroute.cli.outputs import Shape, checked_paths
    from anchorroute.cli.show import print_files
    from anchorroute.cli.values import read_motion, seconds_range

    paths = checked_paths(targets)
    motion = read_motion(source)
    if trim is not None:
        motion = motion.trim(*seconds_range(trim))
    motion = motion.mirror() if mirror else motion
    shape = Shape(fps, names, units, in_place, loop)
    motion = shape.applied(motion)
    for path in paths:
        motion.save(path, **shape.options(path))
    click.echo(f"{motion.frames} frames at {motion.fps:g} fps, {motion.seconds:.2f} s")
    print_files(paths)


def _anchors(source: Path, targets: tuple[Path, ...]) -> None:
    """Between anchor files and KIMODO's constraint lists; what one cannot say of the other is told."""
    import json

    from anchorroute import anchor_kimodo
    from anchorroute.anchors import AnchorSet
    from anchorroute.errors import FormatError

    listed = source.read_text(encoding="utf-8").lstrip().startswith("[")
    translated = anchor_kimodo.load(source) if listed else None
    anchors = translated.anchors if translated is not None else AnchorSet.load(source)
    dropped = list(translated.dropped) if translated is not None else []
    for target in targets:
        if target.suffix.lower() != ".json":
            raise FormatError(f"{target}: anchors are written as .json (KIMODO's list as .kimodo.json)")
        if target.name.lower().endswith(".kimodo.json"):
            dropped += anchor_kimodo.save(anchors, target)
        else:
            anchors.save(target)
        click.echo(f"{target}: {len(anchors)} anchors")
    for line in dropped:
        click.echo(f"  left out: {json.dumps(line)[1:-1]}", err=True)
