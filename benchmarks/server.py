"""Requests a second and latency of the server, with and without batching: writes docs/results/server.json.

    python benchmarks/server.py [--model open] [--clients 1 8 64] [--each 2] [--seconds 4] [--solver none]

Server and clients run in one process on one socket; every client sends its requests one after the other, all clients
at once. A request asks for one clip of `--seconds` with one anchor of the pelvis, and gets its GLB. Latency is from
connecting to the last byte; nothing may be refused or lost, or the benchmark fails. Wall time on a machine that does
other things says little: the load average before and after each row is written beside it.
"""

import argparse
import json
import os
import platform
import resource
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorroute.evaluate.results import Result, code_commit
from anchorroute.pipeline import AnchorRoute, load
from anchorroute.server.app import Server
from anchorroute.server.limits import Limits
from anchorroute.server.running import Running


def ask(url: str, seed: int, asked: argparse.Namespace) -> float:
    """One request; its latency in seconds."""
    anchor = {"at": asked.seconds / 2, "joint": "pelvis", "position": [0.1, None, 0.5 * asked.seconds]}
    body = {
        "text": "a person walks forward", "seconds": asked.seconds, "seed": seed, "solver": asked.solver,
        "anchors": {"version": 1, "anchors": [anchor]},
    }  # fmt: skip
    began = time.perf_counter()
    request = urllib.request.Request(
        f"{url}/v1/generate?answer=file", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=1200) as answer:
            if not answer.read().startswith(b"glTF"):
                raise SystemExit("an answer is no GLB")
    except urllib.error.HTTPError as error:
        raise SystemExit(f"refused: {error.read().decode()}") from error
    return time.perf_counter() - began


def row(pipe: AnchorRoute, clients: int, batch: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One line of the table: a fresh server, all clients at once."""
    server = Server(pipe, limits=Limits(batch=batch, job_seconds=3600))
    running = Running(server, "127.0.0.1", 0)
    running.config.log_level = "error"
    running.config.configure_logging()
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    load_before, began, busy = os.getloadavg()[0], time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(clients) as pool:
        chains = [range(k * asked.each, (k + 1) * asked.each) for k in range(clients)]
        latencies = [s for chain in pool.map(lambda seeds: [ask(url, s, asked) for s in seeds], chains) for s in chain]
    wall, cpu = time.perf_counter() - began, time.process_time() - busy
    running.should_exit = True
    thread.join()
    done = len(latencies)
    return {
        "clients": clients, "batch": batch, "requests": done, "batches": server.queue.batches,
        "requests_per_second": done / wall, "cpu_seconds_per_request": cpu / done,
        "p50_s": float(np.percentile(latencies, 50)), "p99_s": float(np.percentile(latencies, 99)),
        "load_before": load_before, "load_after": os.getloadavg()[0],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def main() -> None:
    """Measure every row and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="open")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--each", type=int, default=1, help="requests a client")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--solver", default="gauss-newton")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("docs/results/server.json"))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    pipe = load(asked.model)
    pipe("a person walks", seconds=2)  # what is loaded on first use is no request's cost
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {asked.threads} threads, torch {torch.__version__}"
    asked_for = f"{asked.seconds:g} s with one anchor, solver {asked.solver}, model {pipe.models.name}"
    rows: list[dict[str, Any]] = []
    for clients in asked.clients:
        for batch in asked.batches:
            rows.append(row(pipe, clients, batch, asked))
            print(json.dumps(rows[-1]))
            Result(
                title="HTTP server: latency and throughput",
                command="python benchmarks/server.py " + " ".join(sys.argv[1:]),
                columns=tuple(rows[0]),
                rows=tuple(tuple(one.values()) for one in rows),
                notes=(
                    f"{asked_for}; {machine}.",
                    "All clients start at once; `batch` is the most requests solved together.",
                ),
                commit=code_commit(),
                date=datetime.now(timezone.utc).date().isoformat(),
            ).save(asked.out)


if __name__ == "__main__":
    main()
