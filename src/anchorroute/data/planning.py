"""Which clips a take gives: its segments, and weak clips from what lies between them.

Held-out clips are sacred. A train clip that shares a frame with one is left out, under whatever name the frame goes
(`twins`); a weak clip is cut only where no segment of any copy of the recording lies, and never from the recording of
a `strict` held-out clip, whose promise is that training saw nothing of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorroute.data.captions import Caption, weak_captions
from anchorroute.data.cmu import Segment, Take
from anchorroute.data.layout import MAX_ROWS, MIN_ROWS
from anchorroute.data.twins import Recording, shadow_of


@dataclass(frozen=True)
class PlannedClip:
    """A clip to be written: frames [start, end) of a take at 20 fps, and what the data set will say of it."""

    id: str
    take: str
    start: int
    end: int
    split: str
    source: str
    weak: bool
    strict: bool
    captions: tuple[Caption, ...]


@dataclass(frozen=True)
class LeftOut:
    """A stretch that did not become a clip, and why."""

    id: str
    take: str
    source: str
    start: int
    end: int
    reason: str
    detail: str = ""


def plan(
    take: Take, frames: int, recording: Recording, breaks: Sequence[int], *, weak: bool
) -> tuple[list[PlannedClip], list[LeftOut]]:
    """The clips of a take of that many frames, whose motion does not go on from frame b to b + 1 for each break b."""
    clips: list[PlannedClip] = []
    left: list[LeftOut] = []
    for segment in take.segments:
        reason, detail = _objection(take, segment, frames, recording, breaks)
        if reason:
            left.append(LeftOut(segment.id, take.name, take.source, segment.start, segment.end, reason, detail))
        else:
            clips.append(_from_segment(take, segment, frames))
    if weak:
        more, skipped = _weak_clips(take, frames, recording, breaks)
        clips += more
        left += skipped
    return clips, left


def _objection(
    take: Take, segment: Segment, frames: int, recording: Recording, breaks: Sequence[int]
) -> tuple[str, str]:
    if segment.use == "none":
        return "shares frames with a held-out clip", ""
    if take.source != "cmu" and segment.use != "train":
        return "held out of an extra source, which is for training only", ""
    shadow = shadow_of(segment, recording.shadows) if segment.use == "train" else None
    if shadow:
        detail = f"clip {shadow.segment.id} ({shadow.segment.use}) of take {shadow.segment.take}"
        return "shares frames with a held-out clip of the same recording under another name", detail
    rows = min(segment.end, frames) - segment.start - 1
    if rows < MIN_ROWS:
        return f"shorter than {MIN_ROWS} rows of features", f"{max(rows, 0)} rows"
    if rows > MAX_ROWS:
        return f"longer than {MAX_ROWS} rows of features", f"{rows} rows"
    inside = [b for b in breaks if segment.start <= b < segment.start + rows]
    if inside:
        return "the capture breaks within the clip", f"after frame {inside[0] - segment.start}"
    return "", ""


def _from_segment(take: Take, segment: Segment, frames: int) -> PlannedClip:
    texts, is_weak = segment.captions, False
    if not texts and segment.use == "train":
        texts, is_weak = weak_captions(take.subject, take.description), True
    return PlannedClip(
        id=segment.id,
        take=take.name,
        start=segment.start,
        end=min(segment.end, frames),
        split=segment.use,
        source=take.source,
        weak=is_weak,
        strict=segment.strict,
        captions=tuple(Caption(text) for text in texts),
    )


def _weak_clips(
    take: Take, frames: int, recording: Recording, breaks: Sequence[int]
) -> tuple[list[PlannedClip], list[LeftOut]]:
    clips: list[PlannedClip] = []
    left: list[LeftOut] = []
    captions = tuple(Caption(text) for text in weak_captions(take.subject, take.description))
    taken = [(s.start, s.end) for s in take.segments] + [(s.start, s.end) for s in recording.shadows]
    for start, end in unbroken(uncovered(frames, taken), breaks):
        reason, detail = "", ""
        if recording.strict:
            reason = "lies in the recording of a strict held-out clip"
        elif recording.weak_elsewhere:
            reason, detail = "the same recording under another name gives it", f"take {recording.weak_elsewhere}"
        elif end - start - 1 < MIN_ROWS:
            reason = "too short a rest between segments"
        if reason:
            left.append(LeftOut(_weak_id(take, start), take.name, take.source, start, end, reason, detail))
            continue
        # As few clips as the rule allows, all of about one length, so that no frame is lost.
        count = -(-(end - start) // (MAX_ROWS + 1))
        edges = [start + (end - start) * i // count for i in range(count + 1)]
        for a, b in pairwise(edges):
            ident = _weak_id(take, a)
            clips.append(PlannedClip(ident, take.name, a, b, "train", take.source, True, False, captions))
    return clips, left


def _weak_id(take: Take, start: int) -> str:
    return f"w{take.name}_{start:05d}"


def uncovered(frames: int, taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches of [0, frames) that none of the intervals touches."""
    free: list[tuple[int, int]] = []
    position = 0
    for start, end in sorted(taken):
        if min(start, frames) > position:
            free.append((position, min(start, frames)))
        position = max(position, end)
    if position < frames:
        free.append((position, frames))
    return free


def unbroken(stretches: Sequence[tuple[int, int]], breaks: Sequence[int]) -> list[tuple[int, int]]:
    """The stretches, cut between frames b and b + 1 for each break b."""
    pieces: list[tuple[int, int]] = []
    for start, end in stretches:
        cuts = sorted(b + 1 for b in set(breaks) if start <= b < end - 1)
        pieces += list(zip([start, *cuts], [*cuts, end]))
    return pieces
