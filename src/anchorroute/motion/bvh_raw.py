"""Any BVH file as it stands: hierarchy, channels, numbers; and its forward kinematics.

Nothing here knows the 22 joints (`retarget` does), and nothing here needs torch. What may surprise:

- the text is read in blocks, so 200 MB need the numbers' memory and little more; `.bvh.xz` is unpacked on the way;
- position channels *replace* a joint's OFFSET, as Blender and MotionBuilder read them (the two agree at rest);
- End Sites are nodes too, named `<parent>:end`, without channels: CMU's head direction ends in one;
- every refusal names the file and the line.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float

from anchorroute.errors import FormatError
from anchorroute.motion.bvh_numbers import parse_rows

Array = np.ndarray[Any, np.dtype[Any]]

_AXES = {"x": 0, "y": 1, "z": 2}
_CHANNELS = {f"{axis}{kind}" for axis in "XYZ" for kind in ("position", "rotation")}
_BLOCK_BYTES = 1 << 20
_XZ_MAGIC = b"\xfd7zXZ\x00"
_ONE_LINE = 1 << 20


@dataclass(frozen=True, eq=False)
class RawBvh:
    """A parsed BVH file; parents come before children, so index order is a valid evaluation order."""

    source: str
    """What to call the file in messages."""
    names: tuple[str, ...]
    parents: tuple[int, ...]
    offsets: Float[np.ndarray, "nodes 3"]
    channels: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    """The line of the file where each node is declared."""
    frame_time: float
    values: Float[np.ndarray, "frames channels"]

    @property
    def frames(self) -> int:
        """How many frames the motion has."""
        return len(self.values)

    @property
    def fps(self) -> float:
        """Frames a second; six printed decimals of 1/120 still mean 120."""
        rate = 1.0 / self.frame_time
        return float(round(rate)) if abs(rate - round(rate)) < 5e-4 * rate else rate

    def index(self, name: str) -> int:
        """The node of that name; an error that names the file otherwise."""
        if name not in self.names:
            given = ", ".join(n for n in self.names if not n.endswith(":end"))
            raise FormatError(f"{self.source}: no joint is called {name!r}; the file's joints are: {given}")
        return self.names.index(name)

    def world(
        self, start: int = 0, stop: int | None = None
    ) -> tuple[Float[np.ndarray, "frames nodes 3"], Float[np.ndarray, "frames nodes 3 3"]]:
        """Global positions (file units) and rotation matrices of all nodes, for frames start..stop."""
        values = self.values[start:stop]
        positions = np.empty((len(values), len(self.names), 3))
        rotations = np.empty((len(values), len(self.names), 3, 3))
        column = 0
        for node, (parent, names) in enumerate(zip(self.parents, self.channels)):
            offset, local = _local(values[:, column : column + len(names)], names, self.offsets[node])
            column += len(names)
            if parent < 0:
                positions[:, node] = offset
                rotations[:, node] = np.eye(3) if local is None else local
                continue
            positions[:, node] = positions[:, parent] + np.einsum("tij,tj->ti", rotations[:, parent], offset)
            turned = rotations[:, parent]
            rotations[:, node] = turned if local is None else turned @ local
        return positions, rotations

    def local_rotations(self, node: int, start: int = 0, stop: int | None = None) -> Float[np.ndarray, "frames 3 3"]:
        """The joint's own rotation matrices, parent to child."""
        column = sum(len(names) for names in self.channels[:node])
        names = self.channels[node]
        values = self.values[start:stop, column : column + len(names)]
        _, local = _local(values, names, self.offsets[node])
        return np.broadcast_to(np.eye(3), (len(values), 3, 3)).copy() if local is None else local


def _local(values: Array, names: tuple[str, ...], offset: Array) -> tuple[Array, Array | None]:
    """Translation [T, 3] and rotation [T, 3, 3] (None = identity) of one node from its channels."""
    translation = np.broadcast_to(offset, (len(values), 3)).copy()
    rotation: Array | None = None
    for values_of_one, name in zip(values.T, names):
        axis = _AXES[name[0].lower()]
        if name.endswith("position"):
            translation[:, axis] = values_of_one
        else:
            turn = _axis_rotation(values_of_one, axis)
            rotation = turn if rotation is None else rotation @ turn
    return translation, rotation


def _axis_rotation(degrees: Array, axis: int) -> Array:
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.zeros((len(degrees), 3, 3))
    j, k = (axis + 1) % 3, (axis + 2) % 3
    matrix[:, axis, axis] = 1.0
    matrix[:, j, j] = matrix[:, k, k] = cos
    matrix[:, k, j] = sin
    matrix[:, j, k] = -sin
    return matrix


def read_raw(source: str | Path | bytes) -> RawBvh:
    """Read a path (`.bvh` or `.bvh.xz`), the bytes of one, or a str holding the text itself (it has line breaks)."""
    if isinstance(source, str) and "\n" in source:
        return _parse(io.BytesIO(source.encode()), "<text>")
    if isinstance(source, bytes):
        return _parse(_unpacked(io.BytesIO(source)), "<bytes>")
    path = Path(source)
    try:
        with path.open("rb") as stream:
            return _parse(_unpacked(stream), str(path))
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened ({error.strerror}); give a .bvh or .bvh.xz file") from error


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    magic = stream.read(len(_XZ_MAGIC))
    stream.seek(0)
    return lzma.open(stream, "rb") if magic == _XZ_MAGIC else stream


def _parse(stream: IO[bytes], source: str) -> RawBvh:
    try:
        return _Parser(stream, source).parse()
    except (lzma.LZMAError, EOFError) as error:
        raise FormatError(f"{source}: the xz stream is damaged or cut off ({error}); copy the file again") from error


class _Parser:
    """One pass over a stream: the header line by line, the numbers in blocks."""

    def __init__(self, stream: IO[bytes], source: str) -> None:
        self.stream, self.source, self.line = stream, source, 0
        self.names: list[str] = []
        self.parents: list[int] = []
        self.offsets: list[tuple[float, float, float] | None] = []
        self.channels: list[tuple[str, ...]] = []
        self.lines: list[int] = []

    def parse(self) -> RawBvh:
        self._hierarchy()
        frames, frame_time = self._motion_header()
        return RawBvh(
            source=self.source,
            names=tuple(self.names),
            parents=tuple(self.parents),
            offsets=np.array(self.offsets, dtype=np.float64).reshape(-1, 3),
            channels=tuple(self.channels),
            lines=tuple(self.lines),
            frame_time=frame_time,
            values=self._values(frames, sum(map(len, self.channels))),
        )

    def _error(self, message: str, line: int | None = None) -> FormatError:
        return FormatError(f"{self.source}, line {self.line if line is None else line}: {message}")

    def _next(self, wanted: str) -> str:
        """The next line that is not blank, stripped."""
        while raw := self.stream.readline(_ONE_LINE):
            self.line += 1
            if self.line == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
                if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise self._error("the file is UTF-16; save it as UTF-8 or plain ASCII")
            try:
                text = raw.decode().strip()
            except UnicodeDecodeError as error:
                where = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
                raise self._error(f"{where} is not UTF-8; save the file as UTF-8") from error
            if text:
                return text
        raise self._error(f"the file ends here, but {wanted} must follow; it was cut off")

    def _hierarchy(self) -> None:
        first = self._next("HIERARCHY")
        if first.upper() != "HIERARCHY":
            raise self._error(f"a BVH file begins with HIERARCHY, this one with {first[:40]!r}")
        stack: list[int] = []
        pending: int | None = None
        for word, rest in self._statements():
            if pending is not None and word != "{":
                raise self._error(f"'{{' must follow {self.names[pending]!r}, not {word!r}")
            if word in ("ROOT", "JOINT", "END"):
                pending = self._declare(word, rest, stack)
            elif word == "{":
                if pending is None:
                    raise self._error("'{' without a ROOT, JOINT or End Site before it")
                stack.append(pending)
                pending = None
            elif word == "}":
                if not stack:
                    raise self._error("'}' closes nothing; remove it")
                self._close(stack.pop())
            elif word in ("OFFSET", "CHANNELS"):
                if not stack:
                    raise self._error(f"{word} outside of a joint's braces")
                self._attribute(word, rest.split(), stack[-1])
            else:
                raise self._error(f"{word!r} is no BVH keyword; ROOT, JOINT, End Site, OFFSET, CHANNELS, {{ and }} are")
        if stack or pending is not None:
            still_open = self.names[stack[-1] if stack else pending or 0]
            raise self._error(f"MOTION begins while {still_open!r} is still open; close it with '}}'")
        if not self.names:
            raise self._error("the hierarchy has no ROOT")
        if not any(self.channels):
            raise self._error("no joint has channels, so there is nothing to read")

    def _statements(self) -> Iterator[tuple[str, str]]:
        """Keyword and the rest of its line, up to MOTION; a brace may share a line with what stands before it."""
        while (line := self._next("more of the hierarchy, then MOTION")).upper() != "MOTION":
            for part in line.replace("{", "\n{\n").replace("}", "\n}\n").split("\n"):
                if part.strip():
                    word, _, rest = part.strip().replace("\t", " ").partition(" ")
                    yield word.upper(), rest.strip()

    def _declare(self, word: str, rest: str, stack: list[int]) -> int:
        if word == "ROOT" and self.names:
            raise self._error("a second ROOT; one skeleton to a file is read, so split the file")
        if word != "ROOT" and not stack:
            raise self._error(f"{word} {rest} stands outside of any joint")
        if word == "END":
            rest = f"{self.names[stack[-1]]}:end"
        if not rest:
            raise self._error(f"{word} needs a name")
        if rest in self.names and word != "END":
            earlier = self.lines[self.names.index(rest)]
            raise self._error(f"the name {rest!r} was used on line {earlier} already; joints need names of their own")
        self.names.append(rest)
        self.parents.append(stack[-1] if stack else -1)
        self.offsets.append(None)
        self.channels.append(())
        self.lines.append(self.line)
        return len(self.names) - 1

    def _close(self, node: int) -> None:
        if self.offsets[node] is None:
            raise self._error(f"{self.names[node]!r} has no OFFSET")

    def _attribute(self, word: str, words: list[str], node: int) -> None:
        if word == "OFFSET":
            numbers = [_finite(text) for text in words]
            if len(words) != 3 or None in numbers:
                raise self._error(f"OFFSET takes three finite numbers, not {' '.join(words)!r}")
            x, y, z = (number or 0.0 for number in numbers)
            self.offsets[node] = (x, y, z)
            return
        names = tuple(name[:1].upper() + name[1:].lower() for name in words[1:])
        if not words or not words[0].isdigit() or int(words[0]) != len(names):
            count = words[0] if words else "nothing"
            raise self._error(f"CHANNELS says {count} and lists {len(names)}; the two must agree")
        unknown = [name for name in names if name not in _CHANNELS]
        if unknown or len(set(names)) != len(names):
            raise self._error(f"channels are Xposition .. Zrotation, each at most once, not {' '.join(words[1:])!r}")
        self.channels[node] = names

    def _motion_header(self) -> tuple[int, float]:
        text = self._next("Frames: N")
        key, _, value = text.partition(":")
        if key.strip().lower() != "frames" or not value.strip().isdigit():
            raise self._error(f"'Frames: N' must stand here, not {text[:60]!r}")
        frames = int(value)
        if frames == 0:
            raise self._error("the file has no frames")
        text = self._next("Frame Time: seconds")
        key, _, value = text.partition(":")
        seconds = _finite(value.strip())
        if key.strip().lower() != "frame time" or seconds is None or seconds <= 0:
            raise self._error(f"'Frame Time: seconds' with a number above 0 must stand here, not {text[:60]!r}")
        return frames, seconds

    def _values(self, frames: int, width: int) -> Array:
        try:
            values = np.empty((frames, width))
        except (MemoryError, ValueError) as error:
            raise FormatError(
                f"{self.source}, line {self.line - 1}: {frames} frames of {width} channels do not fit into memory"
            ) from error
        done = 0
        for block in self._blocks():
            rows = parse_rows(block, width, self.source, self.line)
            if done + len(rows) > frames:
                line = self._row_line(block, frames - done)
                raise self._error(f"'Frames: {frames}' is said above, but more rows follow", line)
            values[done : done + len(rows)] = rows
            done += len(rows)
            self.line += block.count(b"\n")
        if done < frames:
            raise self._error(f"'Frames: {frames}' is said above, but the file ends after {done}; it was cut off")
        return values

    def _blocks(self) -> Iterator[bytes]:
        """Whole lines, about a megabyte at a time."""
        rest = b""
        while block := self.stream.read(_BLOCK_BYTES):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut]
                rest = block[cut:]
            else:
                rest += block
        if rest.strip():
            yield rest

    def _row_line(self, block: bytes, row: int) -> int:
        filled = [number for number, line in enumerate(block.split(b"\n"), self.line + 1) if line.strip()]
        return filled[row]


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
