"""`anchorroute batch`: many jobs from a JSONL file, on all cores or on a Ray cluster; the same command continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anchorroute.cli.options import model_options

if TYPE_CHECKING:
    from anchorroute.jobs import Job

_pipe: Any = None


@click.command()
@click.argument("jobs", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(1), help="Processes; default: one a core.")
@click.option(
    "--ray",
    "ray_address",
    metavar="ADDRESS",
    help="Run on a Ray cluster: 'auto', its address, or 'local' to start one.",
)
@model_options
@click.pass_context
def batch(
    ctx: click.Context, jobs: Path, out: Path, workers: int | None, ray_address: str | None, model: str, device: str
) -> None:
    """Run every line of JOBS (JSONL) and write files and a manifest to OUT.

    A line: {"text": "a person walks", "id": "walk", "anchors": {...} or "file.json", "seconds": 4, "seed": 1,
    "formats": ["bvh", "glb"]}; only the text is needed. Jobs that are done are not run again. Bad lines are told and
    skipped; the exit code is then 1.
    """
    from anchorroute.jobs import JobFile, manifest

    found = JobFile.read(jobs)
    out.mkdir(parents=True, exist_ok=True)
    for bad in found.bad:
        click.echo(f"{jobs}:{bad.line}: skipped: {bad.why}", err=True)
    waiting = list(found.open_jobs(out))
    click.echo(f"{len(found.jobs)} jobs, {len(found.jobs) - len(waiting)} done before, {len(found.bad)} bad lines")
    failed = 0
    try:
        for line in _run(waiting, out, jobs.parent, workers or os.cpu_count() or 1, ray_address, model, device):
            failed += "error" in line
            click.echo(f"{line['id']}: {line.get('error') or _met(line)}", err="error" in line)
    finally:
        manifest(out, found.jobs)
    click.echo(f"{out / 'manifest.jsonl'}: {len(waiting) - failed} new, {failed} failed")
    if found.bad or failed:
        ctx.exit(1)


def _met(line: dict[str, Any]) -> str:
    anchors = f", {line['met']} of {line['of']} anchors met" if line["of"] else ""
    return ", ".join(line["files"]) + anchors


def _run(
    jobs: list[Job], out: Path, beside: Path, workers: int, ray_address: str | None, model: str, device: str
) -> Iterator[dict[str, Any]]:
    if ray_address is not None:
        yield from _on_ray(jobs, out, beside, ray_address, model, device)
    elif workers == 1 or len(jobs) < 2:
        _start(model, device, threads=None)
        for job in jobs:
            yield _perform((job, out, beside))
    else:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        many = min(workers, len(jobs))
        # Spawned, not forked: torch's threads do not survive a fork.
        with ProcessPoolExecutor(many, get_context("spawn"), _start, (model, device, 1)) as pool:
            yield from pool.map(_perform, [(job, out, beside) for job in jobs])


def _start(model: str, device: str, threads: int | None) -> None:
    """Once a process: the pipeline, and as many threads as its share of the machine."""
    global _pipe  # noqa: PLW0603 - a process pool has no other place for it
    import torch

    from anchorroute.pipeline import load

    if threads is not None:
        torch.set_num_threads(threads)
    _pipe = load(model, device=device)


def _perform(work: tuple[Job, Path, Path]) -> dict[str, Any]:
    from anchorroute.jobs import perform

    return perform(_pipe, *work)


def _perform_started(work: tuple[Job, Path, Path], model: str, device: str) -> dict[str, Any]:
    """For workers that nobody starts: the first job loads the pipeline, the others find it."""
    if _pipe is None:
        _start(model, device, 1)
    return _perform(work)


def _on_ray(
    jobs: list[Job], out: Path, beside: Path, address: str, model: str, device: str
) -> Iterator[dict[str, Any]]:
    """One worker a core of the cluster; OUT must be a folder that all nodes see. Ray retries workers that die."""
    import ray

    ray.init(address=None if address == "local" else address, log_to_driver=False)

    remote = ray.remote(num_cpus=1, max_retries=2)(_perform_started)
    waiting = [remote.remote((job, out.resolve(), beside.resolve()), model, device) for job in jobs]
    try:
        while waiting:
            done, waiting = ray.wait(waiting)
            yield from ray.get(done)
    finally:
        ray.shutdown()
