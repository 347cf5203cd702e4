"""Round-trip errors of every file format, and BVH parse speed beside two libraries from PyPI on the same files.

    python benchmarks/formats.py [--takes 60] [--peer-python PY] [--blender-python PY] [--validator NODE_MODULES]

Motions are CMU takes from the reference data (ANCHORROUTE_SHARED). The peers (`pip install pybvh upc-pymotion`) and
Blender (`pip install bpy`) may live in environments of their own; what is absent is said so in the table, not left out.
Writes docs/results/formats.json and docs/results/bvh_speed.json.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from anchorroute.motion import bvh
from anchorroute.motion.bvh_raw import read_raw
from anchorroute.motion.motion import Motion

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python benchmarks/formats.py"

FORMATS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("BVH, Mixamo names, cm, 20 fps", "bvh", {}),
    ("BVH, SMPL names, m, 20 fps", "bvh", {"names": "smpl", "units": "m"}),
    ("BVH, Mixamo names, cm, 60 fps", "bvh", {"fps": 60.0}),
    ("GLB, 20 fps", "glb", {}),
    ("GLB, 60 fps", "glb", {"fps": 60.0}),
    ("NPZ", "npz", {}),
    ("HTML page", "html", {}),
)

#: Runs in the peer's interpreter: seconds of CPU for each library to read the files, best of five.
PEER = """
import json, sys, time
def best(read):
    seconds = []
    for _ in range(5):
        start = time.process_time()
        for path in sys.argv[1:]:
            read(path)
        seconds.append(time.process_time() - start)
    return min(seconds)
out = {}
try:
    import pybvh
    out["pybvh"] = best(pybvh.read_bvh_file)
except ImportError:
    out["pybvh"] = None
try:
    from pymotion.io.bvh import BVH
    out["upc-pymotion"] = best(lambda path: BVH().load(path))
except ImportError:
    out["upc-pymotion"] = None
print(json.dumps(out))
"""

#: Runs in this interpreter but a process of its own: peak memory is a process's figure.
LARGE = """
import json, resource, sys, time
from anchorroute.motion import bvh, bvh_raw
start = time.process_time()
found = {"read_raw": bvh_raw.read_raw, "load": bvh.load}[sys.argv[2]](sys.argv[1])
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"frames": found.frames, "seconds": seconds, "peak_mb": peak}))
"""


def main() -> None:
    """Measure, print, write the JSON."""
    options = _options()
    folder = Path(os.environ.get("ANCHORROUTE_SHARED", ROOT / "../shared")) / "data" / "open-cmu" / "bvh"
    takes = sorted(folder.glob("*.bvh.xz"))
    if not takes:
        sys.exit(f"no takes in {folder}: point ANCHORROUTE_SHARED at the reference data")
    chosen = takes[:: max(len(takes) // options.takes, 1)][: options.takes]
    fingerprint = hashlib.sha256(b"".join(take.name.encode() + take.read_bytes() for take in chosen)).hexdigest()[:16]
    with tempfile.TemporaryDirectory() as scratch:
        rows = round_trips(chosen, Path(scratch), options)
        write("formats", "Round-trip errors of the file formats", fingerprint, FORMAT_COLUMNS, rows, [
            f"{len(chosen)} CMU takes of up to 196 frames; the error of a joint is the distance between where it was "
            "and where the written file puts it, over all joints and frames; bytes are the largest file's, "
            "seconds wall-clock on two cores busy with other work.",
            "BVH and GLB in Blender: bone heads after Blender's own importers (benchmarks/blender_check.py).",
        ])  # fmt: skip
        rows = speeds(chosen, Path(scratch), options)
        write("bvh_speed", "BVH parse speed", fingerprint, SPEED_COLUMNS, rows, [
            f"The same {len(chosen)} whole takes for every reader, unpacked, one process, CPU seconds, best of five.",
            "The large file is one take repeated to 200 MB; memory is the process's peak, libraries included.",
        ])  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=60)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--blender-python", default=None)
    parser.add_argument("--validator", type=Path, default=None, help="a node_modules folder with gltf-validator")
    return parser.parse_args()


FORMAT_COLUMNS = ["format", "motions", "max mm", "mean mm", "largest file, kB", "write and read back, s"]
SPEED_COLUMNS = ["reader", "MB", "s", "MB/s", "peak memory, MB"]


def round_trips(takes: list[Path], scratch: Path, options: argparse.Namespace) -> list[list[Any]]:
    """One row a format; the written files stay in `scratch` for Blender and the validator."""
    motions = [_clipped(bvh.load(take)) for take in takes]
    rows: list[list[Any]] = []
    for label, ending, more in FORMATS:
        away, size, start = [], 0, time.perf_counter()
        for number, motion in enumerate(motions):
            path = motion.save(scratch / f"{number}.{ending}", **more)
            size = max(size, path.stat().st_size)
            wanted = motion.resample(more.get("fps", motion.fps))
            away.append(1000 * np.linalg.norm(Motion.load(path).joints - wanted.joints, axis=-1).ravel())
        seconds = (time.perf_counter() - start) / len(motions)
        every = np.concatenate(away)
        rows.append(
            [label, len(motions), _round(every.max()), _round(every.mean()), round(size / 1e3), round(seconds, 3)]
        )
        print(rows[-1])
    return (
        rows
        + _in_blender(motions[0], scratch, options.blender_python)
        + _validated(motions, scratch, options.validator)
    )


def _clipped(motion: Motion) -> Motion:
    return motion if motion.frames <= 196 else motion.trim(0.0, 196 / motion.fps)


def _in_blender(motion: Motion, scratch: Path, python: str | None) -> list[list[Any]]:
    if python is None:
        return [["Blender's importers", "not run: give --blender-python", None, None, None, None]]
    np.save(scratch / "joints.npy", motion.joints)
    files = [motion.save(scratch / f"blender.{ending}") for ending in ("glb", "bvh")]
    script = ROOT / "benchmarks" / "blender_check.py"
    run = subprocess.run([python, script, scratch / "joints.npy", *files], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout.strip().split("\n")[-1])
    label = f"in Blender {found['blender']}"
    rows = [
        [f"{ending[1:].upper()} {label}", 1, found[ending]["max_mm"], found[ending]["mean_mm"], None, None]
        for ending in (".glb", ".bvh")
    ]
    again = bvh.load(scratch / "blender.blender.bvh")
    away = 1000 * np.linalg.norm(again.joints - motion.joints, axis=-1)
    row = ["BVH into Blender, out of it as BVH, and read here", 1, _round(away.max()), _round(away.mean()), None, None]
    return [*rows, row]


def _validated(motions: list[Motion], scratch: Path, modules: Path | None) -> list[list[Any]]:
    node = shutil.which("node")
    if modules is None or node is None:
        return [["Khronos glTF validator", "not run: give --validator, and node", None, None, None, None]]
    script = (
        "const v = require('gltf-validator'), fs = require('fs'); Promise.all(process.argv.slice(1).map(p => "
        "v.validateBytes(new Uint8Array(fs.readFileSync(p))))).then(all => console.log(JSON.stringify("
        "all.map(r => [r.issues.numErrors, r.issues.numWarnings]).reduce((a, b) => [a[0] + b[0], a[1] + b[1]]))));"
    )
    files = [motion.save(scratch / f"{number}.glb") for number, motion in enumerate(motions)]
    environment = {**os.environ, "NODE_PATH": str(modules)}
    run = subprocess.run([node, "-e", script, *files], capture_output=True, text=True, check=True, env=environment)
    errors, warnings = json.loads(run.stdout)
    return [[f"Khronos glTF validator: {errors} errors, {warnings} warnings", len(files), None, None, None, None]]


def speeds(takes: list[Path], scratch: Path, options: argparse.Namespace) -> list[list[Any]]:
    """One row a reader, and one for a file of 200 MB."""
    files = []
    for take in takes:
        files.append(scratch / take.name.removesuffix(".xz"))
        files[-1].write_bytes(lzma.decompress(take.read_bytes()))
    size = sum(file.stat().st_size for file in files) / 1e6
    rows = [_speed("anchorroute", size, min(_seconds(files) for _ in range(3)))]
    run = subprocess.run([options.peer_python, "-c", PEER, *files], capture_output=True, text=True, check=True)
    rows += [_speed(name, size, seconds) for name, seconds in json.loads(run.stdout).items()]
    large = _large(files[0], scratch / "large.bvh")
    for what in ("read_raw", "load"):
        run = subprocess.run([sys.executable, "-c", LARGE, large, what], capture_output=True, text=True, check=True)
        found = json.loads(run.stdout)
        label = f"anchorroute, {what} of one file of {found['frames']:,} frames"
        row = _speed(label, large.stat().st_size / 1e6, found["seconds"])
        rows.append([*row[:-1], round(found["peak_mb"])])
    return rows


def _seconds(files: list[Path]) -> float:
    start = time.process_time()
    for file in files:
        read_raw(file)
    return time.process_time() - start


def _speed(reader: str, size: float, seconds: float | None) -> list[Any]:
    if seconds is None:
        return [f"{reader}: not installed", None, None, None, None]
    row = [reader, round(size, 1), round(seconds, 2), round(size / seconds, 1), None]
    print(row)
    return row


def _large(source: Path, path: Path) -> Path:
    head, _, rows = source.read_text().partition("Frame Time: 0.0500000\n")
    count = int(200e6 / len(rows)) + 1
    frames = rows.count("\n")
    with path.open("w") as stream:
        stream.write(head.replace(f"Frames: {frames}\n", f"Frames: {frames * count}\n") + "Frame Time: 0.0500000\n")
        for _ in range(count):
            stream.write(rows)
    return path


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def write(name: str, title: str, fingerprint: str, columns: list[str], rows: list[list[Any]], notes: list[str]) -> None:
    """A table for docs/results.md, with what it takes to repeat it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    table = {
        "title": title,
        "command": COMMAND,
        "commit": commit.stdout.strip(),
        "date": datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
        "data_fingerprint": fingerprint,
        "columns": columns,
        "rows": rows,
        "notes": notes,
    }
    path = ROOT / "docs" / "results" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
