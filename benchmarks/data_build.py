"""How long building, packing and reading the open data set take, and what is kept of the source and what is not.

    python benchmarks/data_build.py SOURCE [--keep DIR]

Builds SOURCE with all extras into a temporary folder (or DIR) on two cores, packs it, reads both back. Times are wall
clock and processor seconds, so that a busy machine can be told from slow code. Writes docs/results/data.json.
"""

import argparse
import datetime
import json
import os
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from anchorroute.data.build import BuildConfig, Built, build
from anchorroute.data.humanml3d import load
from anchorroute.data.layout import read_index
from anchorroute.data.pack import Packed, pack

ROOT = Path(__file__).resolve().parents[1]
Row = list[str | float | int]


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What the work returns, its wall clock seconds, and the processor seconds of it and its processes."""

    def spent() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))

    start, before = time.perf_counter(), spent()
    result = work()
    return result, time.perf_counter() - start, spent() - before


def contents(folder: Path) -> list[Row]:
    """Clips and minutes by split, source and text; mirrored copies aside."""
    clips: Counter[str] = Counter()
    frames: Counter[str] = Counter()
    for entry in read_index(folder / "index.jsonl").values():
        if not entry.mirrored:
            text = "title only" if entry.weak and entry.captions else "captioned" if entry.captions else "no text"
            kind = f"{entry.split}, {entry.source}, {text}" + (", strict" if entry.strict else "")
            clips[kind] += 1
            frames[kind] += entry.rows
    return [[f"kept: {kind}", f"{clips[kind]} clips, {frames[kind] / 1200:.1f} min"] for kind in sorted(clips)]


def main() -> None:
    """Measure and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--keep", type=Path, help="leave the data set here")
    options = parser.parse_args()
    torch.set_num_threads(2)
    extra = tuple(sorted(path.name for path in (options.source / "extra").glob("*") if path.is_dir()))
    with tempfile.TemporaryDirectory() as scratch:
        folder, file = options.keep or Path(scratch) / "open", Path(scratch) / "open.pack"
        built, wall, cpu = timed(lambda: build(options.source, folder, BuildConfig(extra=extra)))
        rows: list[Row] = [["build, 2 processes", f"{wall:.0f} s ({cpu:.0f} s of processor time)"]]
        packed, wall, cpu = timed(lambda: pack(folder, file))
        rows.append(["pack", f"{wall:.0f} s ({cpu:.0f} s of processor time)"])
        for name, path in (("pack", file), ("folder", folder)):
            train, wall, cpu = timed(lambda path=path: load(path, "train"))
            detail = f"{len(train)} clips in {wall:.1f} s ({cpu:.1f} s of processor time)"
            rows.append([f"read the train split from the {name}, 2 threads", detail])
            del train
        rows += summary(built, packed) + contents(folder)
        rows += [[f"left out: {reason}", count] for reason, count in built.left_out.items()]
    write(rows, built, os.getloadavg()[0])


def summary(built: Built, packed: Packed) -> list[Row]:
    """Sizes and errors."""
    return [
        ["clips, mirrored copies included", built.clips],
        ["hours of motion, mirrored copies included", round(built.rows / 72000, 2)],
        ["pack, MB", round(packed.size / 1e6, 2)],
        ["pack, largest error of a joint, mm", round(1000 * packed.error, 3)],
        ["pack, mirrored clips rebuilt instead of stored", packed.rebuilt],
    ]


def write(rows: list[Row], built: Built, load_average: float) -> None:
    """The results file that docs/results.md is made from."""
    commit = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    result = {
        "title": "The open data set: built, packed, read",
        "command": "python benchmarks/data_build.py SOURCE",
        "commit": commit.stdout.strip(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "data_fingerprint": built.fingerprint,
        "columns": ["what", "figure"],
        "rows": rows,
        "notes": [
            f"Two cores, shared with other work: load average {load_average:.0f} at the end; processor seconds are "
            "what an idle machine would need in all, divided by the cores it uses.",
            "A second build, and one by a single process, give the same bytes (a test compares every file).",
        ],
    }
    (ROOT / "docs" / "results").mkdir(parents=True, exist_ok=True)
    (ROOT / "docs" / "results" / "data.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
