"""Contact sheets in the manner of the paper's qualitative figures: one prompt and its anchors, solved step by step.

A sheet has a row for the generator, RS100, RS200, RS500 and Gauss-Newton; anchors are drawn where they are asked for.
What is shown is the fixed-bone body, as a file holds it.
"""

from collections.abc import Sequence
from pathlib import Path

from anchorroute.evaluate.jobs import Job
from anchorroute.evaluate.metrics import control_distances
from anchorroute.evaluate.protocols import GAUSS_NEWTON, GENERATOR, RS, Variant
from anchorroute.evaluate.subject import Subject
from anchorroute.motion import body, sheet
from anchorroute.motion import features as feats
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import FPS, JOINTS

FIGURES = 9
RUNS: tuple[tuple[Variant, ...], ...] = ((GENERATOR,), (RS[100], RS[200], RS[500]), (GAUSS_NEWTON,))


def progression(
    subject: Subject, job: Job, path: Path, *, title: str = "", runs: Sequence[Sequence[Variant]] = RUNS
) -> Path:
    """Draw one job through all refinements."""
    draft = subject.draft([job], anchored=True)
    motions: list[Motion] = []
    titles: list[str] = []
    for variants in runs:
        for variant, made in zip(variants, subject.finish(draft, [job], variants), strict=True):
            joints = body.fixed_bones(feats.to_joints(made.features[0, : job.length]))
            error = 1000 * float(control_distances(joints, job.observed).mean())
            motion = Motion.from_joints(joints.numpy(), fps=FPS, text=job.caption, anchors=_plain(job))
            motions.append(motion)
            titles.append(f"{title}{variant.name}: {error:.1f} mm mean error  -  {job.caption}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return sheet.save(motions, path, titles=titles, figures=FIGURES)


def _plain(job: Job) -> Sequence[dict[str, object]]:
    """Anchors as a motion file carries them; free coordinates are null."""
    seen = job.observed
    return [
        {
            "at": float(frame) / FPS,
            "joint": JOINTS[int(joint)],
            "position": [None if free else float(x) for x, free in zip(value, open_, strict=True)],
        }
        for frame, joint, value, open_ in zip(seen.frames, seen.joints, seen.values, seen.free, strict=True)
    ]
