"""HumanML3D's folder layout: what its files are called, the index we add to it, and a folder's fingerprint.

`index.jsonl` has a line for every clip (mirrored ones too) that says where it comes from. HumanML3D itself has no
such file; a folder without one is read as captioned clips of source "humanml3d", mirrored where the id begins with M.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from anchorroute.errors import DataError

FEATURES, JOINTS, TEXTS = "new_joint_vecs", "new_joints", "texts"
MEAN, STD, INDEX = "Mean.npy", "Std.npy", "index.jsonl"
BUILD = "build.json"
REPORT = "report.json"
SPLITS = ("train", "val", "test")

MIN_ROWS, MAX_ROWS = 40, 199
"""HumanML3D's rule: a clip has 40 to 199 rows of features, one row fewer than frames of joints."""


@dataclass(frozen=True)
class Entry:
    """What the index says of a clip."""

    id: str
    split: str
    source: str
    weak: bool
    """The caption is the title of the whole recording, not a description of the clip."""
    strict: bool
    """Held out, and no train clip is cut from the same recording."""
    mirrored: bool
    take: str
    start: int
    end: int
    """Frames [start, end) of the take at 20 fps."""
    rows: int
    """Rows of features: one less than frames."""
    captions: int


def index_bytes(entries: list[Entry]) -> bytes:
    """The content of an index file."""
    return "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in entries).encode()


def read_index(path: Path) -> dict[str, Entry]:
    """A folder's index by clip id; empty when the folder has none."""
    if not path.exists():
        return {}
    entries: dict[str, Entry] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = Entry(**json.loads(line))
        except (json.JSONDecodeError, TypeError) as error:
            raise DataError(f"{path}:{number}: not a line of an index ({error}); build the data set again") from None
        entries[entry.id] = entry
    return entries


def read_split(folder: Path, split: str) -> list[str]:
    """The clip ids of a split, in the file's order."""
    path = folder / f"{split}.txt"
    try:
        lines = path.read_bytes().decode("utf-8").splitlines()
    except FileNotFoundError:
        have = sorted(p.stem for p in folder.glob("*.txt"))
        raise DataError(f"{path}: no such split; the folder has {', '.join(have) or 'no split files'}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    return [line.strip() for line in lines if line.strip()]


def plain_entry(ident: str, split: str) -> Entry:
    """What is known of a clip of a folder without an index: HumanML3D's own."""
    return Entry(
        id=ident,
        split=split,
        source="humanml3d",
        weak=False,
        strict=False,
        mirrored=ident.startswith("M"),
        take="",
        start=0,
        end=0,
        rows=0,
        captions=0,
    )


def no_clip_in_two_splits(folder: Path) -> None:
    """Refuse a folder whose train, val and test lists share a clip, or a clip and its mirror image."""
    seen: dict[str, str] = {}
    for split in SPLITS:
        if not (folder / f"{split}.txt").exists():
            continue
        for ident in read_split(folder, split):
            base = ident.removeprefix("M")
            if seen.setdefault(base, split) != split:
                raise DataError(
                    f"{folder}: clip {base} is in {seen[base]}.txt and in {split}.txt (as itself or mirrored); "
                    "delete it from one, or every score on it is meaningless"
                )


def digest(content: bytes) -> str:
    """The sha256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def combined(digests: Mapping[str, str]) -> str:
    """One digest for many files: of their names and digests, in the order of the names."""
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def fingerprint(folder: Path) -> str:
    """sha256 over all that defines the data set: features, texts, splits, statistics, index; not the joints derived."""
    paths = [*folder.glob(f"{FEATURES}/*.npy"), *folder.glob(f"{TEXTS}/*.txt"), *folder.glob("*.txt")]
    paths += [folder / name for name in (MEAN, STD, INDEX) if (folder / name).exists()]
    return combined({path.relative_to(folder).as_posix(): digest(path.read_bytes()) for path in paths})
