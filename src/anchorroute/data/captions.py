"""What people wrote about clips: HumanML3D's text files, words seen in a mirror, and CMU's take titles as sentences.

A line of a text file is `caption#word/POS word/POS ...#from#to`: from and to are seconds of the clip that the caption
is about, 0 and 0 (or NaN) for all of it. We have no part-of-speech tagger, so what we write carries `OTHER` there;
nothing in this package reads it. How a caption is spelled for the text encoder is `anchorroute.text`'s business.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from anchorroute.errors import DataError


@dataclass(frozen=True)
class Caption:
    """One sentence, and the seconds of the clip it speaks of (0, 0: the whole clip)."""

    text: str
    tokens: tuple[str, ...] = ()
    start: float = 0.0
    end: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether the caption describes the whole clip."""
        return self.start == 0.0 and self.end == 0.0


def parse_line(line: str, where: str) -> Caption:
    """One line of a text file; `where` (file and line) goes into the error."""
    parts = line.rsplit("#", 3)
    if len(parts) != 4:
        raise DataError(
            f"{where}: {line[:60]!r} has {line.count('#')} '#' signs; "
            "a caption line is 'caption#word/POS word/POS#from#to', for the whole clip 'caption##0.0#0.0'"
        )
    text, tokens, *tags = (part.strip() for part in parts)
    if not text:
        raise DataError(f"{where}: the caption is empty; delete the line or write a sentence before the first '#'")
    start, end = (_seconds(tag, where) for tag in tags)
    if end < start:
        raise DataError(f"{where}: the caption's time tags run from {start} to {end} s; the second must be later")
    return Caption(text, tuple(tokens.split()), start, end)


def _seconds(tag: str, where: str) -> float:
    try:
        value = float(tag)
    except ValueError:
        raise DataError(f"{where}: time tag {tag!r} is not a number of seconds; write 0.0 for the whole clip") from None
    if math.isnan(value):
        return 0.0
    if not 0.0 <= value < math.inf:
        raise DataError(f"{where}: time tag {tag!r}; tags are seconds from the clip's start, not negative")
    return value


def read_captions(path: Path) -> tuple[Caption, ...]:
    """All captions of a clip's text file; an empty file means a clip without captions."""
    try:
        content = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no text file for this clip; an empty file means no captions") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    lines = enumerate(content.splitlines(), 1)
    return tuple(parse_line(line, f"{path}:{number}") for number, line in lines if line.strip())


def format_line(caption: Caption) -> str:
    """The line of a text file that reads back as this caption."""
    text = " ".join(caption.text.replace("#", " ").split())
    tokens = caption.tokens or tuple(f"{word}/OTHER" for word in re.findall(r"[a-z0-9']+", text.lower()))
    return f"{text}#{' '.join(tokens)}#{caption.start!r}#{caption.end!r}"


_SWAP = {"left": "right", "right": "left", "rigth": "left"}
# 'left' and 'right' as words, also within forward-right, leftwards, right-handed, rights; never within upright.
_SIDE = re.compile(r"(?<![a-z])(left|right|rigth)(?=(?:s|ward|wards|y|most|handed|footed)?(?![a-z]))", re.IGNORECASE)
# Where 'right' is no side. 'right before' and 'right in' are left out: in captions they mostly follow a turn.
_NO_SIDE = re.compile(r"\bright[- ]?(?:angled?|angles|away|now|next to)\b|\ball right\b", re.IGNORECASE)
_TURN = re.compile(r"(?<![a-z])((?:counter|anti)[- ]?)?clock[- ]?wise(?![a-z])", re.IGNORECASE)


def mirror_words(text: str) -> str:
    """The caption of the same motion seen in a mirror: left and right, clockwise and counterclockwise change places."""
    kept = [match.span() for match in _NO_SIDE.finditer(text)]

    def swap(match: re.Match[str]) -> str:
        if any(a <= match.start() < b for a, b in kept):
            return match.group()
        return _like(match.group(), _SWAP[match.group().lower()])

    def turn(match: re.Match[str]) -> str:
        return _like(match.group(), "clockwise" if match.group(1) else "counterclockwise")

    # Sides first: the spans in `kept` are positions in the text as given.
    return _TURN.sub(turn, _SIDE.sub(swap, text))


def _like(given: str, word: str) -> str:
    if given.isupper():
        return word.upper()
    return word.capitalize() if given[0].isupper() else word


def mirrored(caption: Caption) -> Caption:
    """A caption for the mirrored clip; tokens are swapped word by word."""
    return Caption(mirror_words(caption.text), tuple(map(mirror_words, caption.tokens)), caption.start, caption.end)


# Titles of CMU's index that say nothing about what is done.
_EMPTY_SUBJECTS = {
    "motion",
    "general subject capture",
    "female general subject",
    "assorted motions",
    "sports and various activities",
    "various everyday behaviors",
    "actor everyday activities",
    "various expressions and human behaviors",
    "post pregnant woman",
    "pregnant woman",
    "human interaction",
    "human interaction and communication",
    "human interaction - at play, formations",
    "vignettes - locomotion, upper-body motions",
    "careful actions",
    "stylized motions",
    "action adventure motions running, ducking, rolling, stopping",
}
_NOISE = re.compile(
    r"cleanedgrs|\b\d+_\d+\.amc\b|\((?:human subject|2 subjects|pantomime|focus)[^)]*(?:\)|$)|0\d\d\b", re.IGNORECASE
)


def _plain(title: str) -> str:
    title = _NOISE.sub(" ", title).replace("_", " ").replace("UpRight", "Upright")
    title = re.sub(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z0-9])(?=[A-Z][a-z])", " ", title)
    return " ".join(title.replace(";", ",").lower().split()).strip(" ,-")


def weak_captions(subject: str, description: str) -> tuple[str, ...]:
    """CMU's title of a take in plain words: what the take shows, and the same after what its subject was asked for.

    Camel case is taken apart ('DefensiveRightStopToStop'), file names and remarks about the recording are dropped.
    """
    what, theme = _plain(description), _plain(subject)
    if not what:
        return (theme,) if theme and theme not in _EMPTY_SUBJECTS else ()
    if not theme or theme in _EMPTY_SUBJECTS or what in theme or theme in what:
        return (what,)
    return (what, f"{theme}, {what}")
