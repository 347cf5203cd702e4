"""Time, accuracy and naturalness of the solvers on real clips: writes docs/results/solver.json.

    python benchmarks/solver.py --data runs/data/open --weights open [--split val] [--clips 16] [--generated]

Anchors are drawn from real clips (K frames, or cells of the six joints), the solver starts from soft tokens: `coarse`
are the first-level tokens of the clip itself, `generated` what the model makes of its caption and the anchors. Errors
are those of the fixed-bone body, in millimetres. All solvers of a row start from the same tokens and run one after the
other in one process; `passes` counts passes through the decoder a sample (a forward pass, or the backward pass of one
row). The Adam rows run on the first `--adam-clips` clips, because they take a hundred times as long.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorroute import models
from anchorroute.data import humanml3d
from anchorroute.data.layout import fingerprint
from anchorroute.evaluate.jobs import Job, anchor_jobs, subset, usable
from anchorroute.evaluate.subject import ModelSubject
from anchorroute.motion.files import write_checked
from anchorroute.observation import FAMILIES
from anchorroute.report import foot_skating, mean_jerk
from anchorroute.routesolver import Adam, GaussNewton, Off, Refined, refine

COLUMNS = [
    "start", "family", "K", "solver", "clips", "mean_mm", "median_mm", "p99_mm", "within_1mm", "within_5mm",
    "skating", "jerk", "ms", "of_RS200", "passes",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One start, family and K."""

    start: str
    family: str
    k: int
    jobs: list[Job]
    u: Tensor

    @property
    def lengths(self) -> Tensor:
        """Frames of every clip."""
        return torch.tensor([job.length for job in self.jobs])


def tokens(subject: ModelSubject, jobs: Sequence[Job], start: str) -> Tensor:
    """Where the solver starts."""
    if start == "generated":
        return subject.draft(jobs, anchored=True).u
    lengths = torch.tensor([job.length for job in jobs])
    features = torch.nn.utils.rnn.pad_sequence([torch.as_tensor(job.clip.features) for job in jobs], batch_first=True)
    tokenizer = subject.models.tokenizer
    with torch.no_grad():
        return tokenizer.embed(tokenizer.encode(features, lengths)[..., :1])


def solve(subject: ModelSubject, case: Case, config: Adam | GaussNewton | Off) -> tuple[Refined, float]:
    """The result and its seconds."""
    lengths = case.lengths
    began = time.perf_counter()
    result = refine(
        case.u,
        subject.decoder(lengths),
        [job.observed for job in case.jobs],
        lengths,
        config,
        covariance=subject.models.covariance,
        subset=lambda rows: subject.decoder(lengths[rows]),
    )
    return result, time.perf_counter() - began


def row(case: Case, solver: str, result: Refined, seconds: float, reference: float | None) -> list[Any]:
    """One line of the table."""
    error = 1000 * torch.cat([item.distance for item in result.residuals])
    clips = [clip[: job.length].numpy() for clip, job in zip(result.joints, case.jobs)]
    each = 1000 * seconds / len(clips)
    figures = {
        "start": case.start, "family": case.family, "K": case.k, "solver": solver, "clips": len(clips),
        "mean_mm": round(float(error.mean()), 3), "median_mm": round(float(error.median()), 3),
        "p99_mm": round(float(error.quantile(0.99)), 2),
        "within_1mm": round(float((error <= 1).float().mean()), 4),
        "within_5mm": round(float((error <= 5).float().mean()), 4),
        "skating": round(float(np.mean([foot_skating(clip, 20.0) for clip in clips])), 4),
        "jerk": round(float(np.mean([mean_jerk(clip, 20.0) for clip in clips])), 1),
        "ms": round(each, 1), "of_RS200": None if reference is None else round(each / reference, 3),
        "passes": round(result.decodes / len(clips), 1),
    }  # fmt: skip
    return [figures[name] for name in COLUMNS]


def table(subject: ModelSubject, cases: Sequence[Case], options: argparse.Namespace) -> list[list[Any]]:
    """Every solver on every case."""
    lines = []
    for case in cases:
        few = Case(case.start, case.family, case.k, case.jobs[: options.adam_clips], case.u[: options.adam_clips])
        reference = None
        if options.adam_clips:
            config = Adam(steps=options.adam_steps, snapshots=tuple(s for s in (100, 200) if s < options.adam_steps))
            result, seconds = solve(subject, few, config)
            reference = 1000 * seconds / len(few.jobs) * 200 / options.adam_steps
            for steps in (*config.snapshots, options.adam_steps):
                at = result if steps == options.adam_steps else snapshot(subject, few, result.snapshots[steps])
                name, share = f"RS{steps}", steps / options.adam_steps
                lines.append(row(few, name, at, seconds * share, reference))
        for name, config in (("none", Off()), ("gauss-newton", GaussNewton())):
            lines.append(row(case, name, *solve(subject, case, config), reference))
        for line in lines[-4:]:
            print("  ".join(str(value) for value in line), flush=True)
    return lines


def snapshot(subject: ModelSubject, case: Case, u: Tensor) -> Refined:
    """What an earlier step of a run had reached."""
    return solve(subject, Case(case.start, case.family, case.k, case.jobs, u), Off())[0]


def main() -> None:
    """Read, solve, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", default="open")
    parser.add_argument("--split", default="val")
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--adam-clips", type=int, default=4)
    parser.add_argument("--adam-steps", type=int, default=200)
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/results/solver.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    subject = ModelSubject.of(models.load(options.weights), "body")
    clips = subset(usable(list(humanml3d.load(options.data, options.split))), options.clips)
    cases = []
    for start in ("coarse", "generated") if options.generated else ("coarse",):
        for name in options.families:
            for k in options.k:
                jobs = anchor_jobs(clips, FAMILIES[name], k, repeat=0)
                cases.append(Case(start, name, k, jobs, tokens(subject, jobs, start)))
    document = {
        "title": "The solvers on real clips: accuracy, naturalness, time",
        "command": f"python benchmarks/solver.py --split {options.split} --clips {options.clips}",
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "data_fingerprint": fingerprint(options.data),
        "columns": COLUMNS,
        "rows": table(subject, cases, options),
        "notes": f"Weights {subject.id}. {options.threads} thread(s), CPU, machine shared with other work. "
        + __doc__.split("\n\n")[2].replace("\n", " "),
    }
    write_checked(
        options.out, (json.dumps(document, indent=1) + "\n").encode(), lambda path: json.loads(path.read_bytes())
    )


if __name__ == "__main__":
    main()
