"""Time, accuracy and naturalness of the solvers on real clips: writes docs/results/solver.json.

    python benchmarks/solver.py --data runs/data/open --weights open --generated [--split val] [--clips 16]
    python benchmarks/solver.py --data runs/data/open --tokenizer runs/tokenizer-open/tokenizer

Anchors are drawn from real clips (K frames, or cells of the six joints), the solver starts from soft tokens: `coarse`
are the first-level tokens of the clip itself, `generated` what the model makes of its caption and the anchors. Errors
are those of the fixed-bone body, in millimetres. All solvers of a row start from the same tokens and run one after the
other in one process; `passes` counts passes through the decoder a sample (a forward pass, or the backward pass of one
row). The Adam rows run on the first `--adam-clips` clips, because they take a hundred times as long.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorroute import checkpoint, models
from anchorroute.data import humanml3d
from anchorroute.data.layout import fingerprint
from anchorroute.evaluate.jobs import Job, anchor_jobs, subset, usable
from anchorroute.evaluate.subject import ModelSubject
from anchorroute.motion import body
from anchorroute.motion import features as feats
from anchorroute.motion.files import write_checked
from anchorroute.observation import FAMILIES
from anchorroute.report import foot_skating, mean_jerk
from anchorroute.routesolver import Adam, Decode, GaussNewton, Off, Refined, latent_covariance, refine
from anchorroute.tokenizer import Tokenizer

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


@dataclass(frozen=True)
class Decoding:
    """The fixed-bone body of a tokenizer, and the covariance of its latents."""

    tokenizer: Tokenizer
    covariance: Tensor

    def of(self, lengths: Tensor) -> Decode:
        """The decoder of a batch."""

        def decode(u: Tensor, /) -> Tensor:
            return body.fixed_bones(feats.to_joints(self.tokenizer.decode(u, lengths)))

        return decode

    def coarse(self, jobs: Sequence[Job]) -> Tensor:
        """First-level tokens of the clips themselves."""
        lengths = torch.tensor([job.length for job in jobs])
        clips = [torch.as_tensor(job.clip.features) for job in jobs]
        features = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)
        with torch.no_grad():
            return self.tokenizer.embed(self.tokenizer.encode(features, lengths)[..., :1])


def measured_covariance(tokenizer: Tokenizer, data: Path, clips: int = 150) -> Tensor:
    """Of the latents of training clips, evenly picked."""
    train = humanml3d.load(data, "train")
    picked = [train[i].features for i in range(0, len(train), max(1, len(train) // clips))]
    with torch.no_grad():
        latents = [tokenizer.latents(torch.as_tensor(f[None, : len(f) // 4 * 4]))[0] for f in picked if len(f) >= 40]
    return latent_covariance(torch.cat(latents))


def solve(decoding: Decoding, case: Case, config: Adam | GaussNewton | Off) -> tuple[Refined, float]:
    """The result and its seconds."""
    lengths = case.lengths
    began = time.perf_counter()
    result = refine(
        case.u,
        decoding.of(lengths),
        [job.observed for job in case.jobs],
        lengths,
        config,
        covariance=decoding.covariance,
        subset=lambda rows: decoding.of(lengths[rows]),
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


def lines(decoding: Decoding, case: Case, adam_clips: int, adam_steps: int) -> list[list[Any]]:
    """Every solver on one case."""
    found = []
    reference = None
    if adam_clips:
        few = replace(case, jobs=case.jobs[:adam_clips], u=case.u[:adam_clips])
        earlier = tuple(steps for steps in (100, 200) if steps < adam_steps)
        result, seconds = solve(decoding, few, Adam(steps=adam_steps, snapshots=earlier))
        reference = 1000 * seconds / len(few.jobs) * 200 / adam_steps
        for steps in (*earlier, adam_steps):
            share = steps / adam_steps
            last = steps == adam_steps
            at = result if last else solve(decoding, replace(few, u=result.snapshots[steps]), Off())[0]
            at = replace(at, decodes=round(result.decodes * share))
            found.append(row(few, f"RS{steps}", at, seconds * share, reference))
    for name, config in (("none", Off()), ("gauss-newton", GaussNewton())):
        found.append(row(case, name, *solve(decoding, case, config), reference))
    return found


def setting(options: argparse.Namespace) -> tuple[Decoding, ModelSubject | None, str]:
    """The decoder, what generates (if anything), and a name for both."""
    if options.tokenizer is None:
        parts = models.load(options.weights)
        covariance = parts.covariance
        if covariance is None:
            covariance = measured_covariance(parts.tokenizer, options.data)
        return Decoding(parts.tokenizer, covariance), ModelSubject.of(parts, "body"), parts.name
    loaded = checkpoint.load(options.tokenizer, kind="Tokenizer")
    return Decoding(loaded.module, measured_covariance(loaded.module, options.data)), None, f"tokenizer {loaded.id[:8]}"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", default="open")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer alone; the start is then coarse")
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
    if options.generated and options.tokenizer is not None:
        parser.error("--generated needs all weights: give --weights, not --tokenizer")
    return options


def main() -> None:
    """Read, solve, print; the file is written again after every case, so that a run that is cut short counts."""
    options = arguments()
    torch.set_num_threads(options.threads)
    decoding, subject, name = setting(options)
    clips = subset(usable(list(humanml3d.load(options.data, options.split))), options.clips)
    head = ["git", "rev-parse", "HEAD"]
    document: dict[str, Any] = {
        "title": "The solvers on real clips: accuracy, naturalness, time",
        "command": f"python {' '.join(sys.argv)}",
        "commit": subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "data_fingerprint": fingerprint(options.data),
        "columns": COLUMNS,
        "rows": [],
        "notes": f"Weights: {name}. {options.threads} CPU thread(s) of a machine shared with other work, so that times "
        "compare within a row only; passes are not affected. " + " ".join((__doc__ or "").split("\n\n")[2].split()),
    }
    for start, family, k in itertools.product(
        ("coarse", "generated") if options.generated else ("coarse",), options.families, options.k
    ):
        jobs = anchor_jobs(clips, FAMILIES[family], k, repeat=0)
        generated = start == "generated" and subject is not None
        u = subject.draft(jobs, anchored=True).u if generated and subject is not None else decoding.coarse(jobs)
        for line in lines(decoding, Case(start, family, k, jobs, u), options.adam_clips, options.adam_steps):
            document["rows"].append(line)
            print("  ".join(str(value) for value in line), flush=True)
        text = json.dumps(document, indent=1) + "\n"
        write_checked(options.out, text.encode(), lambda path: json.loads(path.read_bytes()))


if __name__ == "__main__":
    main()
