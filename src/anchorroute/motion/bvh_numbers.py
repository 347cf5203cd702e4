"""The numbers of a BVH file: blocks of text lines to rows of float64, every line checked."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from anchorroute.errors import FormatError

Array = np.ndarray[Any, np.dtype[Any]]

_PLAIN = b"0123456789+-.eE \t\r\n"


def parse_rows(block: bytes, width: int, source: str, line: int) -> Float[np.ndarray, "rows width"]:
    """The rows of `block`, whole lines of which the first is line `line` + 1 of `source`; blank lines are skipped."""
    if block.translate(None, _PLAIN):
        _explain(block, width, source, line)
    text = np.frombuffer(b"\n" + block + b"\n", dtype=np.uint8)
    space = text <= ord(" ")
    starts = np.flatnonzero(space[:-1] & ~space[1:])
    per_line = np.diff(np.searchsorted(starts, np.flatnonzero(text == ord("\n"))))
    if not np.isin(per_line, (0, width)).all():
        _explain(block, width, source, line)
    values = _numbers(block)
    if len(values) != len(starts) or not np.isfinite(values).all():
        _explain(block, width, source, line)
    return values.reshape(-1, width)


def _numbers(block: bytes) -> Array:
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
                finite = bool(np.isfinite(float(word)))
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
