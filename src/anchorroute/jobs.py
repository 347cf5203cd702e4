"""Many requests from one file: read, checked line by line, run on one process or many, resumable.

A job file is JSONL: {"text": ..., "id"?, "anchors"? (an anchor file's content, or its path), "seconds"?, "seed"?,
"samples"?, "solver"?, "formats"?}. Every job writes its files and then `ID.json`, the line of the manifest: a job whose
`ID.json` names the same request is done, so the same command continues after any kind of death.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from anchorroute.anchor_file import write_atomically
from anchorroute.anchors import AnchorSet
from anchorroute.errors import AnchorRouteError, FormatError
from anchorroute.request import checked

Format = Literal["bvh", "glb", "npz", "html"]


class Job(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One line of a job file."""

    text: str
    id: str = ""
    anchors: dict[str, Any] | str | None = None
    seconds: float | None = None
    seed: int = 0
    samples: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    solver: Literal["gauss-newton", "adam", "none"] = "gauss-newton"
    guidance: float | None = None
    formats: tuple[Format, ...] = ("bvh",)

    def anchor_set(self, beside: Path) -> AnchorSet:
        """The job's anchors; a path is taken from the job file's folder."""
        if self.anchors is None:
            return AnchorSet()
        if isinstance(self.anchors, str):
            return AnchorSet.load(beside / self.anchors)
        return AnchorSet.from_json(self.anchors)

    def key(self, beside: Path) -> str:
        """What makes two runs of a job the same job: everything that it asks for."""
        asked = msgspec.to_builtins(self) | {"anchors": self.anchor_set(beside).to_json()}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Bad:
    """A line that is no job, and why."""

    line: int
    why: str


@dataclass
class JobFile:
    """The jobs of a file and its bad lines."""

    path: Path
    jobs: list[Job] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "JobFile":
        """Every line checked: its JSON, its fields, its anchors, its length, its id."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise FormatError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
        found, seen = cls(path), set()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                job = _job(line, number)
                checked(job.text, job.anchor_set(path.parent), seconds=job.seconds, seed=job.seed)
                if job.id in seen:
                    raise FormatError(f"the id {job.id!r} is used twice; ids name the files")
            except (AnchorRouteError, msgspec.ValidationError, msgspec.DecodeError) as error:
                found.bad.append(Bad(number, str(error)))
                continue
            seen.add(job.id)
            found.jobs.append(job)
        return found

    def open_jobs(self, folder: Path) -> Iterator[Job]:
        """The jobs whose results are not there yet."""
        for job in self.jobs:
            line = _done(folder / f"{job.id}.json")
            if line is None or line.get("key") != job.key(self.path.parent):
                yield job


def _job(line: str, number: int) -> Job:
    job = msgspec.json.decode(line, type=Job)
    name = job.id or f"{number:06d}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise FormatError(f"the id {name!r} must be letters, digits, '.', '_' or '-': it names the files")
    return msgspec.structs.replace(job, id=name)


def _done(path: Path) -> dict[str, Any] | None:
    try:
        line = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return line if isinstance(line, dict) and "key" in line else None


def perform(pipe: Any, job: Job, folder: Path, beside: Path) -> dict[str, Any]:
    """Run one job: its files, then its line of the manifest. An error of the job is a line, too."""
    anchors = job.anchor_set(beside)
    line: dict[str, Any] = {"id": job.id, "key": job.key(beside), "text": job.text, "seed": job.seed}
    try:
        result = pipe(
            job.text, anchors, seconds=job.seconds, seed=job.seed, samples=job.samples, solver=job.solver,
            guidance=job.guidance,
        )  # fmt: skip
        reports = {f"{job.id}.{ending}": result.save(folder / f"{job.id}.{ending}") for ending in job.formats}
    except AnchorRouteError as error:
        return {**line, "error": str(error)}
    first = next(iter(reports.values()))
    line |= {"files": list(reports), "met": first.met, "of": len(first.anchors), "worst_mm": first.worst_mm}
    write_atomically(json.dumps(line) + "\n", folder / f"{job.id}.json")
    return line


def manifest(folder: Path, jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """Write `manifest.jsonl` from the jobs' own lines, in the job file's order."""
    lines = [line for job in jobs if (line := _done(folder / f"{job.id}.json")) is not None]
    write_atomically("".join(json.dumps(line) + "\n" for line in lines), folder / "manifest.jsonl")
    return lines
