"""What the studio costs: writes docs/results/studio.json.

    python benchmarks/studio.py [--model open] [--sessions 8] [--seconds 6]

A server runs in a process of its own; tabs that draw nothing (`anchorroute.studio.probe`) speak its protocol. `drag`:
from sending a new place of the gizmo to the first new pose of the body on the wire, one place at a time, the body
having followed the one before. `playback`: bytes on the wire while a clip plays. `memory`: how much the server's
resident memory grows by a session with a clip of one sample.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from anchorroute.motion.files import write_checked
from anchorroute.studio.probe import Tab

ROOT = Path(__file__).resolve().parent.parent
#: How far the anchor is moved each time, in metres.
STEP = 0.03


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", default="open")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--drags", type=int, default=12)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "studio.json")
    asked = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as state, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "anchorroute.cli", "studio", "--no-open", "--model", asked.model]
        server = subprocess.Popen(
            [*command, "--port", str(port)], env={**os.environ, "ANCHORROUTE_STATE": state}, stdout=subprocess.DEVNULL
        )
        try:
            rows = measure(port, server.pid, asked)
        finally:
            server.terminate()
            server.wait(timeout=60)
    write(asked, rows)


def measure(port: int, pid: int, asked: argparse.Namespace) -> list[list[object]]:
    """All rows."""
    first = prepared(port, asked.seconds)
    base = resident(pid)
    alone = drags(first, asked.drags)
    rate = playback(first)
    others = [prepared(port, asked.seconds) for _ in range(asked.sessions - 1)]
    grown = (resident(pid) - base) / max(len(others), 1)
    for tab in (first, *others):
        tab.choose("Play / Pause")
    together = drags(first, asked.drags)
    rates = [playback(tab, playing=True) for tab in (first, *others)]
    for tab in (first, *others):
        tab.close()
    many = f"{asked.sessions} sessions, the others playing"
    return [
        ["drag to body, median", "1 session", round(1000 * float(np.median(alone))), "ms"],
        ["drag to body, slowest", "1 session", round(1000 * max(alone)), "ms"],
        ["drag to body, median", many, round(1000 * float(np.median(together))), "ms"],
        ["drag to body, slowest", many, round(1000 * max(together)), "ms"],
        ["playback", "1 session", round(rate / 1000), "kB/s"],
        ["playback, mean of all", many, round(float(np.mean(rates)) / 1000), "kB/s"],
        ["memory a session", f"{len(others)} more sessions", round(grown / 2**20, 1), "MiB"],
        ["server's memory", many, round(resident(pid) / 2**20), "MiB"],
    ]


def prepared(port: int, seconds: float) -> Tab:
    """A tab with a waypoint and a generated clip."""
    for _ in range(600):
        try:
            tab = Tab(port)
            break
        except OSError:
            time.sleep(0.5)
    else:
        raise TimeoutError("the studio did not start")
    tab.wait(lambda tab: "Speed" in tab.widgets, 600)
    tab.change("Seconds", seconds)
    tab.change("Time (s)", seconds / 2)
    tab.click("/floor/touch", (0.0, 3.0, 1.0), (0.0, -1.0, 0.0))
    tab.wait(lambda tab: "/gizmo" in tab.nodes, 600)
    tab.press("Generate")
    tab.wait(lambda tab: "/body/0" in tab.bones, 600)
    return tab


def drags(tab: Tab, count: int) -> list[float]:
    """Seconds from each new place to the body's first new pose."""
    taken = []
    for step in range(1, count + 1):
        sent = time.monotonic()
        tab.drag("/gizmo", [(STEP * step, 0.0, 1.0)])
        # The root's path is drawn anew with every new body, in one message with its pose.
        tab.wait(lambda tab, sent=sent: tab.made["/path"] > sent, 120)  # type: ignore[misc]
        taken.append(tab.made["/path"] - sent)
    return taken


def playback(tab: Tab, *, playing: bool = False, seconds: float = 5.0) -> float:
    """Bytes a second."""
    if not playing:
        tab.choose("Play / Pause")
    began, counted = time.monotonic(), tab.bytes
    time.sleep(seconds)
    rate = (tab.bytes - counted) / (time.monotonic() - began)
    if not playing:
        tab.choose("Play / Pause")
    return rate


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def write(asked: argparse.Namespace, rows: list[list[object]]) -> None:
    """The results with what is needed to read them."""
    command = f"python benchmarks/studio.py --model {asked.model} --sessions {asked.sessions}"
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True)
    load = os.getloadavg()[0]
    content = {
        "title": "Studio",
        "command": command,
        "commit": commit.strip(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "data_fingerprint": None,
        "columns": ["what", "when", "value", "unit"],
        "rows": rows,
        "notes": [
            f"A clip of {asked.seconds:g} s with one waypoint, model {asked.model}, {os.cpu_count()} cores, "
            f"load average {load:.1f} while it was measured: on a machine that is free, times are shorter.",
            "Drag: from sending the gizmo's place to the new path and pose on the wire, the solver warm.",
        ],
    }
    payload = json.dumps(content, indent=1).encode() + b"\n"
    write_checked(asked.out, payload, lambda path: json.loads(path.read_text()))
    sys.stdout.write(payload.decode())


if __name__ == "__main__":
    main()
