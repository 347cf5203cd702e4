"""Reader of a data set: a folder in HumanML3D's layout, or one packed file (`anchorroute.data.pack`).

HumanML3D's rules, kept: a clip has 40 to 199 rows; a caption with time tags is about a part of its clip, and that part
becomes a clip of its own (id with a letter and `_` before it) under the same rule. What cannot be used is set aside in
`Dataset.quarantine`, each with its reason; the same clip in two splits is an error, since no score would mean anything.

    train = load("runs/data/open", "train")
    train[0].features       # [frames, 263], metres, not normalised
    train.normalise(train[0].features)
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.captions import Caption, read_captions
from anchorroute.data.layout import (
    BUILD,
    FEATURES,
    MAX_ROWS,
    MEAN,
    MIN_ROWS,
    STD,
    TEXTS,
    Entry,
    no_clip_in_two_splits,
    plain_entry,
    read_index,
    read_split,
)
from anchorroute.data.layout import fingerprint as fingerprint_of
from anchorroute.errors import DataError
from anchorroute.motion.features import DIM
from anchorroute.motion.skeleton import FPS


@dataclass(frozen=True, eq=False)
class Clip:
    """One motion with what people wrote about it."""

    id: str
    features: Float[Tensor, "frames 263"]
    """In metres, not normalised."""
    captions: tuple[str, ...]
    weak: bool = False
    """The captions are the title of the whole recording."""
    source: str = "humanml3d"
    strict: bool = False
    """Held out, and training saw nothing of the same recording."""
    mirrored: bool = False
    take: str = ""
    start: int = 0
    """First frame within the take, at 20 fps."""

    @property
    def frames(self) -> int:
        """Rows of features."""
        return len(self.features)


@dataclass(frozen=True)
class Quarantined:
    """A clip that cannot be used, and why."""

    id: str
    reason: str


class Dataset(Sequence[Clip]):
    """The clips of one split with the training statistics, the same whether read from a folder or from a pack."""

    def __init__(
        self,
        clips: Sequence[Clip],
        *,
        split: str,
        mean: Float[Tensor, "263"],
        std: Float[Tensor, "263"],
        quarantine: Sequence[Quarantined],
        fingerprint: Callable[[], str],
    ) -> None:
        self.clips = tuple(clips)
        self.split = split
        self.mean = mean
        self.std = std
        self.quarantine = tuple(quarantine)
        self._fingerprint = fingerprint

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the whole data set (all splits), carried by every checkpoint and result."""
        return self._fingerprint()

    def __len__(self) -> int:
        return len(self.clips)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> "Dataset": ...
    def __getitem__(self, index: int | slice) -> "Clip | Dataset":
        return self._with(self.clips[index]) if isinstance(index, slice) else self.clips[index]

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.clips)

    def where(self, keep: Callable[[Clip], bool]) -> "Dataset":
        """The same data set with only some of its clips; `data.where(lambda clip: clip.strict)`."""
        return self._with([clip for clip in self.clips if keep(clip)])

    def _with(self, clips: Sequence[Clip]) -> "Dataset":
        return Dataset(
            clips,
            split=self.split,
            mean=self.mean,
            std=self.std,
            quarantine=self.quarantine,
            fingerprint=lambda: self.fingerprint,
        )

    def find(self, ident: str) -> Clip:
        """The clip of that id."""
        for clip in self.clips:
            if clip.id == ident:
                return clip
        set_aside = [q.reason for q in self.quarantine if q.id == ident]
        if set_aside:
            raise DataError(f"clip {ident} is set aside: {set_aside[0]}")
        near = get_close_matches(ident, [clip.id for clip in self.clips], n=1, cutoff=0.0)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DataError(f"no clip {ident!r} among the {len(self)} read of split {self.split!r}{hint}")

    def normalise(self, features: Float[Tensor, "*batch 263"]) -> Float[Tensor, "*batch 263"]:
        """Features in units of the training material's deviation."""
        return (features - self.mean.to(features)) / self.std.to(features)

    def denormalise(self, features: Float[Tensor, "*batch 263"]) -> Float[Tensor, "*batch 263"]:
        """The inverse of `normalise`."""
        return features * self.std.to(features) + self.mean.to(features)


@dataclass(frozen=True)
class Selection:
    """Which clips of a split to read."""

    weak: bool = True
    """Take clips whose only caption is their recording's title."""
    mirrored: bool = True
    """Take mirrored copies."""
    sources: tuple[str, ...] | None = None
    """Only clips from these sources ("cmu", "cmu-long", "rocketbox"); None: from all."""
    captioned: bool = False
    """Leave out clips without any caption."""
    ids: frozenset[str] | None = None
    """Only these clips, or these parts of clips."""

    def wants(self, entry: Entry) -> bool:
        """Whether the index alone lets the clip in (captions are counted later)."""
        return (
            (self.ids is None or any(one == entry.id or one.endswith(f"_{entry.id}") for one in self.ids))
            and (self.weak or not entry.weak)
            and (self.mirrored or not entry.mirrored)
            and (self.sources is None or entry.source in self.sources)
        )


def load(
    path: str | Path,
    split: str = "train",
    *,
    weak: bool = True,
    mirrored: bool = True,
    sources: Sequence[str] | None = None,
    captioned: bool = False,
    ids: Sequence[str] | None = None,
) -> Dataset:
    """Read one split ("train", "val", "test", "all") of a folder or of a packed file; `Selection` has the options."""
    path = Path(path)
    wanted = None if ids is None else frozenset(ids)
    selection = Selection(weak, mirrored, None if sources is None else tuple(sources), captioned, wanted)
    if path.is_file():
        from anchorroute.data.pack import read_pack

        return read_pack(path, split, selection)
    if not path.is_dir():
        raise DataError(f"{path}: no such data set; build one with `anchorroute data build SOURCE {path}`")
    return _read_folder(path, split, selection)


def clip_ids(path: str | Path, split: str = "all") -> list[str]:
    """The ids of a split's clips, without reading any motion."""
    path = Path(path)
    if path.is_file():
        from anchorroute.data.pack import pack_ids

        return pack_ids(path, split)
    return read_split(path, split)


def _read_folder(folder: Path, split: str, selection: Selection) -> Dataset:
    ids = read_split(folder, split)
    no_clip_in_two_splits(folder)
    index = read_index(folder / "index.jsonl")
    mean, std = (read_statistics(folder / name) for name in (MEAN, STD))
    clips: list[Clip] = []
    aside: list[Quarantined] = []
    for ident in ids:
        entry = index.get(ident) or plain_entry(ident, split)
        if not selection.wants(entry):
            continue
        try:
            rows, captions = read_folder_clip(folder, ident)
        except DataError as error:
            aside.append(Quarantined(ident, str(error)))
            continue
        more, problems = clips_of(entry, rows, captions)
        clips += [clip for clip in more if clip.captions or not selection.captioned]
        aside += problems
    return Dataset(
        clips, split=split, mean=mean, std=std, quarantine=aside, fingerprint=lambda: stored_fingerprint(folder)
    )


def read_statistics(path: Path) -> Float[Tensor, "263"]:
    """Mean or deviation of a folder."""
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); a data set needs it to normalise features") from None
    if values.shape != (DIM,) or not np.isfinite(values).all():
        raise DataError(f"{path}: must hold {DIM} finite numbers, has shape {values.shape}")
    return torch.from_numpy(values.astype(np.float32))


def read_folder_clip(folder: Path, ident: str) -> tuple[Float[Tensor, "frames 263"], tuple[Caption, ...]]:
    """A clip's features and all its captions."""
    rows = read_features(folder / FEATURES / f"{ident}.npy")
    return torch.from_numpy(rows), read_captions(folder / TEXTS / f"{ident}.txt")


def read_features(path: Path) -> Float[np.ndarray, "frames 263"]:
    """A clip's features; anything that is not [frames, 263] finite numbers is an error."""
    try:
        rows = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: missing, though a split lists the clip") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not a readable .npy file ({error})") from None
    if rows.ndim != 2 or rows.shape[1] != DIM:
        raise DataError(f"{path}: shape {rows.shape}; features are [frames, {DIM}]")
    if not np.isfinite(rows).all():
        raise DataError(f"{path}: not finite at row {int(np.argmin(np.isfinite(rows).all(1)))}")
    return rows.astype(np.float32, copy=False)


def clips_of(
    entry: Entry, features: Float[Tensor, "frames 263"], captions: Sequence[Caption]
) -> tuple[list[Clip], list[Quarantined]]:
    """The clip with the captions that are about all of it, and a clip of its own for every part that is captioned."""
    parts: list[tuple[str, int, Tensor, tuple[str, ...]]] = []
    whole = tuple(caption.text for caption in captions if caption.whole)
    tagged = [caption for caption in captions if not caption.whole]
    if whole or not tagged:
        parts.append((entry.id, 0, features, whole))
    for number, caption in enumerate(tagged):
        first, last = int(caption.start * FPS), int(caption.end * FPS)
        parts.append((f"{_letters(number)}_{entry.id}", first, features[first:last], (caption.text,)))
    clips: list[Clip] = []
    aside: list[Quarantined] = []
    for ident, first, rows, texts in parts:
        if not MIN_ROWS <= len(rows) <= MAX_ROWS:
            aside.append(Quarantined(ident, f"{len(rows)} rows; clips have {MIN_ROWS} to {MAX_ROWS}"))
            continue
        clips.append(
            Clip(
                id=ident,
                features=rows,
                captions=texts,
                weak=entry.weak,
                source=entry.source,
                strict=entry.strict,
                mirrored=entry.mirrored,
                take=entry.take,
                start=entry.start + first,
            )
        )
    return clips, aside


def _letters(number: int) -> str:
    """A, B, ... Z, AA, AB ..."""
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def stored_fingerprint(folder: Path) -> str:
    """The folder's fingerprint: as its build noted it, else computed from the files."""
    if (folder / BUILD).exists():
        return str(json.loads((folder / BUILD).read_text())["fingerprint"])
    return fingerprint_of(folder)
