"""The numbers of a BVH file: blocks of text lines to rows of float64, every line checked.

Decimals of up to 15 digits are read column by character column, all numbers of a block at once: the digits make an
integer below 2^53 and the point a power of ten, both exact, so their quotient is the correctly rounded number, the same
that `float` gives. Blocks with longer numbers or exponents go through numpy's own reader, several times slower.
"""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from anchorroute.errors import FormatError

Array = np.ndarray[Any, np.dtype[Any]]

_KNOWN = b"0123456789+-.eE \t\r\n"
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)
_ZERO, _POINT, _MINUS, _PLUS, _BLANK = (ord(character) for character in "0.-+ ")


def parse_rows(block: bytes, width: int, source: str, line: int) -> Float[np.ndarray, "rows width"]:
    """The rows of `block`, whole lines of which the first is line `line` + 1 of `source`; blank lines are skipped."""
    if block.translate(None, _KNOWN):
        _explain(block, width, source, line)
    text = np.frombuffer(b"\n" + block + b"\n", dtype=np.uint8)
    blank = text <= _BLANK
    edges = np.flatnonzero(blank[:-1] != blank[1:]) + 1
    starts, ends = edges[::2], edges[1::2]
    per_line = np.diff(np.searchsorted(starts, np.flatnonzero(text == ord("\n"))))
    if not np.isin(per_line, (0, width)).all():
        _explain(block, width, source, line)
    values = _decimals(text, starts, ends)
    if values is None:
        values = _any_numbers(block)
    if len(values) != len(starts) or not np.isfinite(values).all():
        _explain(block, width, source, line)
    return values.reshape(-1, width)


def _decimals(text: Array, starts: Array, ends: Array) -> Array | None:
    """The numbers between starts and ends; None if one is not a plain decimal of few digits."""
    if not len(starts):
        return np.empty(0)
    first = text[starts]
    minus = first == _MINUS
    begins = starts + (minus | (first == _PLUS))
    lengths = ends - begins
    longest = int(lengths.max())
    if longest > _MOST_DIGITS + 1:
        return None
    padded = np.concatenate((text, np.full(longest, _BLANK, dtype=np.uint8)))
    whole = np.zeros(len(starts), dtype=np.int64)
    digits, points, after = (np.zeros(len(starts), dtype=np.uint8) for _ in range(3))
    for column in range(longest):
        character = padded[begins + column]
        inside = lengths > column
        value = character - np.uint8(_ZERO)  # what stands before "0" wraps round to above 9
        digit = inside & (value < 10)
        whole = np.where(digit, whole * 10 + value, whole)
        digits += digit
        after += digit & (points > 0)
        points += inside & (character == _POINT)
    if (digits + points != lengths).any() or points.max() > 1 or not digits.all() or digits.max() > _MOST_DIGITS:
        return None
    numbers: Array = whole / _POWERS[after]
    return np.where(minus, -numbers, numbers)


def _any_numbers(block: bytes) -> Array:
    """All numbers of the block up to the first that is malformed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy warns where it stops; the count tells as much
        try:
            return np.fromstring(block, dtype=np.float64, sep=" ")
        except ValueError:
            return np.empty(0)


def _explain(block: bytes, width: int, source: str, line: int) -> NoReturn:
    """Find the first bad line of a block that is known to hold one, and say what is wrong with it."""
    for number, text in enumerate(block.split(b"\n"), line + 1):
        words = text.split()
        for column, word in enumerate(words, 1):
            try:
                finite = bool(np.isfinite(float(word))) and b"_" not in word
            except ValueError:
                finite = False
            if not finite:
                shown = word[:24].decode(errors="replace")
                raise FormatError(f"{source}, line {number}: value {column} is {shown!r}, not a finite number")
        if words and len(words) != width:
            raise FormatError(
                f"{source}, line {number}: {len(words)} values, but the hierarchy has {width} channels; "
                "a frame is one line with one value a channel"
            )
    raise FormatError(f"{source}, line {line + 1} and after: the numbers cannot be read")
