"""What one motion is asked to be: text, anchors, length and seed, checked before anything runs.

The model makes clips of 2 to 9.8 s in steps of four frames, from English text. What lies outside of that is refused
by name here, never bent into something that happens to work.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.errors import RequestError
from anchorroute.motion.skeleton import FPS

TOKEN = 4
SHORTEST, LONGEST = 40, 196
DEFAULT_SECONDS = 6.0
LONGEST_TEXT = 500
LARGEST_SEED = 2**62


@dataclass(frozen=True)
class Request:
    """A checked request. `frames` is what the model makes, `kept` what the motion has (see `clip`)."""

    text: str
    anchors: AnchorSet
    frames: int
    kept: int
    seed: int

    @property
    def seconds(self) -> float:
        """The motion's length."""
        return self.kept / FPS


def checked(
    text: str, anchors: AnchorSet | None, *, seconds: float | None = None, frames: int | None = None, seed: int = 0
) -> Request:
    """The request, or the error that says what to change."""
    chosen = AnchorSet() if anchors is None else anchors
    made, kept = clip(chosen, seconds=seconds, frames=frames)
    chosen.observed(made)  # an anchor beyond the clip is told now, not after the networks have run
    if not 0 <= seed < LARGEST_SEED:
        raise RequestError(f"seed {seed}: give a whole number from 0 to {LARGEST_SEED - 1}")
    return Request(checked_text(text), chosen, made, kept, int(seed))


def checked_text(text: str) -> str:
    """The text with plain spaces; an empty, endless or foreign one is an error."""
    plain = " ".join(text.split())
    if not plain:
        raise RequestError("the text is empty; say the action, for example 'a person walks forward and waves'")
    if len(plain) > LONGEST_TEXT:
        raise RequestError(
            f"the text has {len(plain)} characters; one clip is one sentence or two, at most {LONGEST_TEXT} characters"
        )
    foreign = next((letter for letter in plain if not _latin(letter)), None)
    if foreign is not None:
        name = unicodedata.name(foreign, f"U+{ord(foreign):04X}").lower()
        raise RequestError(f"the text holds {foreign!r} ({name}); the model reads English: use Latin letters alone")
    if not any(letter.isalpha() for letter in plain):
        raise RequestError(f"the text {plain!r} holds no word; say the action in English")
    return plain


def _latin(letter: str) -> bool:
    kind = unicodedata.category(letter)
    if kind.startswith("L"):
        return "LATIN" in unicodedata.name(letter, "")
    return kind[0] in "NPZM" or letter in "+<=>|~$^`°"


def clip(anchors: AnchorSet, *, seconds: float | None, frames: int | None) -> tuple[int, int]:
    """(frames that the model makes, frames that the motion keeps).

    Without a length the last anchor decides, or six seconds. A clip of `seconds` has its last frame a twentieth of
    a second before them; an anchor exactly at the end gets the frame it needs, and only that one.
    """
    if seconds is not None and frames is not None:
        raise RequestError("seconds and frames are both given; give one")
    last = max((anchor.at for anchor in anchors.anchors), default=None)
    needed = 0 if last is None else math.ceil(round(last * FPS, 3)) + 1
    if frames is not None:
        wanted = frames
    elif seconds is not None:
        if not math.isfinite(seconds):
            raise RequestError(f"seconds is {seconds}; give a number of seconds")
        wanted = round(seconds * FPS)
    else:
        wanted = max(needed, SHORTEST) if last is not None else round(DEFAULT_SECONDS * FPS)
    said = f"{wanted / FPS:g} s ({wanted} frames)"
    if wanted < SHORTEST or wanted > LONGEST:
        raise RequestError(
            f"a clip of {said} is asked for; this model makes {SHORTEST / FPS:g} to {LONGEST / FPS:g} s "
            f"({SHORTEST} to {LONGEST} frames): join clips for a longer motion"
        )
    made = _tokens(wanted) * TOKEN
    if needed == wanted + 1 and not anchors.loop and _tokens(needed) * TOKEN <= LONGEST:
        return _tokens(needed) * TOKEN, needed
    return made, made


def _tokens(frames: int) -> int:
    return -(-frames // TOKEN)


def each(given: Any, count: int, name: str) -> list[Any]:
    """One value a request: a list as it is, anything else for all."""
    if given is None or isinstance(given, int | float):
        return [given] * count
    values = list(given)
    if len(values) != count:
        raise RequestError(f"{count} texts and {len(values)} {name} given; give one a text, or a single value for all")
    return values


def anchor_set(anchors: Any) -> AnchorSet | None:
    """Anchors however they were given: a set, a list of anchors, or none."""
    if anchors is None or isinstance(anchors, AnchorSet):
        return anchors
    if isinstance(anchors, Sequence) and all(isinstance(one, Anchor) for one in anchors):
        return AnchorSet(tuple(anchors))
    raise RequestError(f"anchors is a {type(anchors).__name__}; give an AnchorSet, or for several texts a list of them")
