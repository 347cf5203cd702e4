"""The same recording under two names: CMU's database holds some 320 takes twice or three times.

HumanML3D gave the copies to different splits, so a model can have been trained on the very frames it is tested on
(91_16 and 105_16, for instance). Copies are found by content: equal poses throughout, possibly at twice the rate
where the tables disagree on the capture rate. A clip of one copy counts as a clip of all: train clips
that share a frame with any copy's held-out clip are left out, and weak clips are cut from one copy only.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from anchorroute.data.cmu import Segment, Take

_SAME = 1e-4
"""Metres: copies differ by rounding alone."""
_RATES = (Fraction(1), Fraction(2), Fraction(1, 2))


@dataclass(frozen=True)
class Twin:
    """Another take of the same recording: its frame `rate * t` is this take's frame t."""

    take: str
    source: str
    rate: Fraction


@dataclass(frozen=True)
class Shadow:
    """Frames that show what a segment of a twin shows."""

    start: int
    end: int
    segment: Segment


def find_twins(takes: Sequence[Take], joints: Sequence[Float[np.ndarray, "_frames 22 3"]]) -> list[tuple[Twin, ...]]:
    """For each take, the others that hold the same recording."""
    first_pose: dict[bytes, list[int]] = defaultdict(list)
    for i, positions in enumerate(joints):
        if len(positions):
            first_pose[np.round(positions[0] - positions[0, 0], 3).tobytes()].append(i)
    twins: list[list[Twin]] = [[] for _ in takes]
    for group in first_pose.values():
        for a in group:
            for b in group:
                rate = None if a == b else _rate(joints[a], joints[b])
                if rate is not None:
                    twins[a].append(Twin(takes[b].name, takes[b].source, rate))
    return [tuple(others) for others in twins]


def _rate(a: Float[np.ndarray, "_frames 22 3"], b: Float[np.ndarray, "_frames 22 3"]) -> Fraction | None:
    for rate in _RATES:
        own, other = a[:: rate.denominator], b[:: rate.numerator]
        count = min(len(own), len(other))
        if abs(len(own) - len(other)) <= 1 and np.allclose(own[:count], other[:count], rtol=0.0, atol=_SAME):
            return rate
    return None


@dataclass(frozen=True)
class Recording:
    """What a take's plan has to know of its twins."""

    shadows: tuple[Shadow, ...] = ()
    strict: bool = False
    """A strict held-out clip lies in the take or a twin, and its promise holds: no train segment is left in any."""
    weak_elsewhere: str = ""
    """The twin from which weak clips are cut, if not from this take."""


def recordings(takes: Sequence[Take], twins: Sequence[tuple[Twin, ...]]) -> list[Recording]:
    """For each take, its recording; `takes` and `twins` go together."""
    by_name = {(take.source, take.name): i for i, take in enumerate(takes)}
    shadows = [
        tuple(
            _shadow(segment, twin.rate) for twin in own for segment in takes[by_name[twin.source, twin.take]].segments
        )
        for own in twins
    ]
    trained = [
        any(s.use == "train" and shadow_of(s, shade) is None for s in take.segments)
        for take, shade in zip(takes, shadows)
    ]
    result: list[Recording] = []
    for i, own in enumerate(twins):
        group = [i, *(by_name[twin.source, twin.take] for twin in own)]
        promised = any(segment.strict for k in group for segment in takes[k].segments)
        # The copy whose rate was established, not assumed, is the one to cut from.
        chief = min(group, key=lambda k: (takes[k].fps_source != "inferred", takes[k].source, takes[k].name))
        result.append(
            Recording(
                shadows=shadows[i],
                strict=promised and not any(trained[k] for k in group),
                weak_elsewhere="" if chief == i else takes[chief].name,
            )
        )
    return result


def _shadow(segment: Segment, rate: Fraction) -> Shadow:
    """Rounded outwards: a frame that is shared in part is shared."""
    return Shadow(int(segment.start / rate), -int(-segment.end // rate), segment)


def shadow_of(segment: Segment, shadows: Sequence[Shadow]) -> Shadow | None:
    """The held-out clip of a twin that this segment shares a frame with, if there is one."""
    for shadow in shadows:
        if shadow.segment.use in ("val", "test") and shadow.start < segment.end and segment.start < shadow.end:
            return shadow
    return None


def without_broken_promises(take: Take, recording: Recording) -> Take:
    """The take with `strict` taken from its segments where training did see the recording under another name."""
    if recording.strict or not any(segment.strict for segment in take.segments):
        return take
    return replace(take, segments=tuple(replace(segment, strict=False) for segment in take.segments))
