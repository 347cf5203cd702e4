"""`anchorroute demo`: from nothing to a motion: a text, root waypoints, a hand target; four files and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anchorroute.cli.options import model_options

if TYPE_CHECKING:
    from anchorroute.anchors import AnchorSet

TEXT = "a person walks forward and reaches out with the right hand"


@click.command()
@click.option("--out", "-o", default="out", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--samples", type=click.IntRange(1, 16), default=2, show_default=True, help="How many to choose from.")
@model_options
def demo(out: Path, seed: int, samples: int, model: str, device: str) -> None:
    """Write one motion as BVH, GLB, NPZ and an HTML page, and the anchors that it meets."""
    from anchorroute.cli.show import print_files, print_report, progress
    from anchorroute.pipeline import load
    from anchorroute.report import measure

    anchors = demo_anchors()
    out.mkdir(parents=True, exist_ok=True)
    click.echo(f'text: "{TEXT}"')
    click.echo(f"anchors: {len(anchors)} (waypoints of the pelvis, one target of the right wrist)\n")
    pipe = load(model, device=device)
    with progress(quiet=False) as on_step:
        result = pipe(TEXT, anchors, seconds=5.0, seed=seed, samples=samples, on_step=on_step)
    anchors.save(out / "anchors.json")
    paths = [result.motion.save(out / f"demo{ending}") for ending in (".bvh", ".glb", ".npz", ".html")]
    print_report(measure(paths[0], anchors).noting(result.report))
    click.echo("\nWritten:")
    print_files([*paths, out / "anchors.json"])
    click.echo(f"""
What next:
  open {out / "demo.html"} in a browser (no server, no network); demo.glb and demo.bvh in Blender, Unity, Unreal
  edit {out / "anchors.json"}, then: anchorroute generate "{TEXT}" --anchors {out / "anchors.json"} -o mine.html
  author in the browser:  anchorroute studio""")


def demo_anchors() -> AnchorSet:
    """Waypoints on a gentle curve and a hand target beside its end."""
    from anchorroute.anchors import Anchor, AnchorSet

    return AnchorSet((
        Anchor(0.0, "pelvis", (0.0, None, 0.0), heading=0.0),
        Anchor(1.5, "pelvis", (0.15, None, 1.2)),
        Anchor(3.0, "pelvis", (0.5, None, 2.4)),
        Anchor(4.2, "right_wrist", (0.45, 1.25, 3.15)),
    ))  # fmt: skip
