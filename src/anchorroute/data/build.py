"""`anchorroute data build`: takes and segments become a folder in HumanML3D's layout.

The folder: `new_joint_vecs/ID.npy` (features), `new_joints/ID.npy` (joints recovered from them), `texts/ID.txt`,
`Mean.npy`, `Std.npy`, `train.txt` `val.txt` `test.txt` `train_val.txt` `all.txt`, and three files of ours:
`index.jsonl` (where each clip comes from, and its flags), `report.json` (every stretch left out and why) and
`build.json` (options and fingerprint). Train clips also come mirrored, with an M before the id.

Takes are worked off in processes; each leaves a record in `.build/` when its files are complete, so a killed build
goes on where it was. Nothing that is written depends on time, order or the number of processes.
"""

import json
import multiprocessing
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from anchorroute.data.captions import format_line, mirrored
from anchorroute.data.cmu import KNOWN_BREAKS, Take, read_joints, read_source
from anchorroute.data.files import npy_bytes, write_atomically
from anchorroute.data.layout import (
    BUILD,
    FEATURES,
    INDEX,
    JOINTS,
    MEAN,
    REPORT,
    SPLITS,
    STD,
    TEXTS,
    Entry,
    combined,
    digest,
    index_bytes,
)
from anchorroute.data.planning import LeftOut, PlannedClip, plan
from anchorroute.data.processing import breaks, features_of, mirror_joints
from anchorroute.data.statistics import Moments, mean_std
from anchorroute.data.twins import Recording, find_twins, recordings, without_broken_promises
from anchorroute.errors import DataError, FormatError
from anchorroute.motion.features import to_joints

_VERSION = 1
_RECORDS = ".build"
_NPZ_EFFORT = 30_000
"""A take of a joints file takes about as long as a BVH file of so many packed bytes."""

Progress = Callable[[int, int], None]
"""Called with the effort done and the effort in all (packed bytes of motion)."""

Record = dict[str, Any]


@dataclass(frozen=True)
class BuildConfig:
    """What a build contains."""

    weak: bool = True
    """Cut what no segment covers into clips with the take's title for a caption."""
    mirror: bool = True
    """Add a mirrored copy of every train clip."""
    extra: tuple[str, ...] = ()
    """Folders of SOURCE/extra to take in, for training only."""


@dataclass(frozen=True)
class Built:
    """What a build came to."""

    folder: Path
    clips: int
    rows: int
    left_out: dict[str, int]
    """How many stretches were left out, by reason."""
    fingerprint: str


def build(
    source: Path, out: Path, config: BuildConfig | None = None, *, processes: int = 2, progress: Progress | None = None
) -> Built:
    """Turn `source` into a data set in `out`; goes on with an unfinished build of the same source and options."""
    config = config or BuildConfig()
    takes = read_source(source, extra=config.extra)
    key = _key(takes, config)
    if (out / BUILD).exists():
        return _already(out, key)
    _claim(out, key)
    report = _Counter(progress, 2 * sum(map(_effort, takes)))
    report.start()
    read = [take for take in takes if not _motion_path(out, take).exists()]
    report.skip([take for take in takes if take not in read])
    with _pool(processes) as pool:
        _all(pool, [(take, _Job(_read, (take, out))) for take in read], report)
        recorded = _recorded(takes, out)
        work = [
            (take, _Job(_write, (without_broken_promises(take, one), one, out, config)))
            for take, one in zip(takes, recorded)
            if not _record_path(out, take).exists()
        ]
        report.skip([take for take in takes if _record_path(out, take).exists()])
        _all(pool, work, report)
    built = _finish(out, [json.loads(_record_path(out, take).read_text()) for take in takes], config, key)
    shutil.rmtree(out / _RECORDS)
    return built


def _key(takes: Sequence[Take], config: BuildConfig) -> str:
    """Changes when the options, the source's tables or the size of a motion file change."""
    rows = [{**asdict(take), "path": take.path and take.path.name, "size": _effort(take)} for take in takes]
    return digest(json.dumps([_VERSION, asdict(config), rows], sort_keys=True).encode())


def _effort(take: Take) -> int:
    if take.path is None:
        return 0
    return _NPZ_EFFORT if take.path.suffix == ".npz" else take.path.stat().st_size


def _record_path(out: Path, take: Take) -> Path:
    return out / _RECORDS / f"{take.source}.{take.name}.json"


def _motion_path(out: Path, take: Take) -> Path:
    return out / _RECORDS / f"{take.source}.{take.name}.npy"


def _already(out: Path, key: str) -> Built:
    stored = json.loads((out / BUILD).read_text())
    if stored["key"] != key:
        raise DataError(f"{out}: holds a data set of another source or other options; choose another folder")
    return Built(out, stored["clips"], stored["rows"], stored["left_out"], stored["fingerprint"])


def _claim(out: Path, key: str) -> None:
    records = out / _RECORDS
    claim = records / "key"
    if claim.exists():
        if claim.read_text() != key:
            raise DataError(f"{out}: holds an unfinished build of another source or other options; remove it first")
        return
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out}: is not empty and no build of ours; choose a new folder")
    for folder in (records, out / FEATURES, out / JOINTS, out / TEXTS):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(claim, key.encode())


class _Counter:
    """Adds up the effort of takes as they are done; every take is done twice, read and written."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def start(self) -> None:
        """Say how much there is to do."""
        if self.progress:
            self.progress(0, self.total)

    def skip(self, takes: Sequence[Take]) -> None:
        """Count takes that an earlier, interrupted build has done."""
        self.done += sum(map(_effort, takes))

    def __call__(self, take: Take) -> None:
        self.done += _effort(take)
        if self.progress:
            self.progress(self.done, self.total)


@dataclass(frozen=True)
class _Job:
    function: Callable[..., None]
    arguments: tuple[Any, ...]


def _pool(processes: int) -> AbstractContextManager[ProcessPoolExecutor | None]:
    if processes <= 1:
        return nullcontext()
    # A fresh interpreter for each worker: forking a process whose torch has started threads can hang.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,))


def _all(pool: ProcessPoolExecutor | None, work: Sequence[tuple[Take, _Job]], done: Callable[[Take], None]) -> None:
    """Run every job, here or in the pool."""
    if pool is None:
        for take, job in work:
            job.function(*job.arguments)
            done(take)
        return
    # The largest first, so that no worker starts a long one when the others are through.
    ordered = sorted(work, key=lambda item: _effort(item[0]), reverse=True)
    running = {pool.submit(job.function, *job.arguments): take for take, job in ordered}
    for finished in as_completed(running):
        finished.result()
        done(running[finished])


def _read(take: Take, out: Path) -> None:
    """Keep the take's joints; a take that cannot be read is kept as no frames, and why beside it."""
    try:
        joints = read_joints(take)
    except (DataError, FormatError) as error:
        joints = np.zeros((0, 22, 3))
        write_atomically(_motion_path(out, take).with_suffix(".error"), str(error).encode())
    write_atomically(_motion_path(out, take), npy_bytes(joints.astype(np.float32)))


def _recorded(takes: Sequence[Take], out: Path) -> list[Recording]:
    joints = [np.load(_motion_path(out, take)) for take in takes]
    return recordings(takes, find_twins(takes, joints))


def _write(take: Take, recording: Recording, out: Path, config: BuildConfig) -> None:
    """All clips of a take, then its record."""
    record: Record = {"clips": [], "left_out": [], "files": {}, "moments": []}
    joints = np.load(_motion_path(out, take)).astype(np.float64)
    if len(joints):
        broken = [*breaks(joints), *KNOWN_BREAKS.get((take.source, take.name), ())]
        clips, left = plan(take, len(joints), recording, broken, weak=config.weak)
        for clip in clips:
            _write_clip(clip, joints[clip.start : clip.end], out, config, record)
    else:
        left = _unreadable(take, _motion_path(out, take).with_suffix(".error").read_text())
    record["left_out"] = [asdict(one) for one in left]
    write_atomically(_record_path(out, take), json.dumps(record).encode())


def _unreadable(take: Take, error: str) -> list[LeftOut]:
    segments = take.segments
    if not segments:
        return [LeftOut(f"w{take.name}", take.name, take.source, 0, 0, "the take cannot be read", error)]
    return [LeftOut(s.id, take.name, take.source, s.start, s.end, "the take cannot be read", error) for s in segments]


def _write_clip(
    clip: PlannedClip, joints: Float[np.ndarray, "frames 22 3"], out: Path, config: BuildConfig, record: Record
) -> None:
    versions = [(clip, torch.from_numpy(joints))]
    if config.mirror and clip.split == "train":
        twin = replace(clip, id=f"M{clip.id}", captions=tuple(map(mirrored, clip.captions)))
        versions.append((twin, mirror_joints(versions[0][1])))
    # Both at once: on so few frames the time goes into starting each operation.
    features = features_of(torch.stack([positions for _, positions in versions]))
    recovered = to_joints(features.double()).float()
    for i, (one, _) in enumerate(versions):
        rows = features[i].numpy()
        contents = {
            f"{FEATURES}/{one.id}.npy": npy_bytes(rows),
            f"{JOINTS}/{one.id}.npy": npy_bytes(recovered[i].numpy()),
            f"{TEXTS}/{one.id}.txt": "".join(format_line(c) + "\n" for c in one.captions).encode(),
        }
        for name, content in contents.items():
            write_atomically(out / name, content)
            if not name.startswith(JOINTS):
                record["files"][name] = digest(content)
        record["clips"].append(asdict(_entry(one, len(rows), mirrored=one is not clip)))
        if one.split == "train":
            moments = Moments.of(rows)
            record["moments"].append([moments.count, moments.total.tolist(), moments.squares.tolist()])


def _entry(clip: PlannedClip, rows: int, *, mirrored: bool) -> Entry:
    return Entry(
        id=clip.id,
        split=clip.split,
        source=clip.source,
        weak=clip.weak,
        strict=clip.strict,
        mirrored=mirrored,
        take=clip.take,
        start=clip.start,
        end=clip.end,
        rows=rows,
        captions=len(clip.captions),
    )


def _finish(out: Path, records: Sequence[Record], config: BuildConfig, key: str) -> Built:
    """Write what needs all clips: splits, statistics, index, report; `build.json` comes last and marks completion."""
    entries = sorted((Entry(**clip) for record in records for clip in record["clips"]), key=lambda e: e.id)
    _no_id_twice(entries)
    moments = Moments.merged(
        Moments(count, np.array(total), np.array(squares))
        for record in records
        for count, total, squares in record["moments"]
    )
    if not moments.count:
        raise DataError(f"{out}: no train clip is left, so there is nothing to learn from; see the reasons in {REPORT}")
    mean, std = mean_std(moments)
    ids = {split: [entry.id for entry in entries if entry.split == split] for split in SPLITS}
    contents = {f"{split}.txt": _lines(ids[split]) for split in SPLITS}
    contents["train_val.txt"] = _lines(ids["train"] + ids["val"])
    contents["all.txt"] = _lines([entry.id for entry in entries])
    contents |= {MEAN: npy_bytes(mean), STD: npy_bytes(std), INDEX: index_bytes(entries)}
    digests = {name: sha for record in records for name, sha in record["files"].items()}
    digests |= {name: digest(content) for name, content in contents.items()}
    left = sorted((one for record in records for one in record["left_out"]), key=lambda one: str(one["id"]))
    reasons = dict(sorted(Counter(str(one["reason"]) for one in left).items()))
    contents[REPORT] = json.dumps({"reasons": reasons, "left_out": left}, indent=1).encode()
    built = Built(out, len(entries), sum(entry.rows for entry in entries), reasons, combined(digests))
    contents[BUILD] = json.dumps(
        {
            "version": _VERSION,
            "key": key,
            "options": asdict(config),
            "clips": built.clips,
            "rows": built.rows,
            "left_out": reasons,
            "fingerprint": built.fingerprint,
        },
        indent=1,
    ).encode()
    for name, content in contents.items():
        write_atomically(out / name, content)
    return built


def _lines(ids: Sequence[str]) -> bytes:
    return "".join(f"{one}\n" for one in ids).encode()


def _no_id_twice(entries: Sequence[Entry]) -> None:
    twice = [a.id for a, b in pairwise(entries) if a.id == b.id]
    if twice:
        raise DataError(f"clip id {twice[0]!r} is used twice in the source's segments; ids must differ")
