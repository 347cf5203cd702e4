"""The anchor file: JSON with a version, units that are said, joints by name.

    {"version": 1, "time": "seconds", "units": "m", "angles": "radians",
     "start": {"position": [0, 0], "heading": 0}, "loop": false,
     "anchors": [{"at": 1.5, "joint": "left_wrist", "position": [0.4, null, 0.8], "tolerance": 0.005}]}

Reading is strict: an unknown version, field or joint is an error that says what is known. Written files always say
seconds, metres and radians. `schema()` is generated from the same classes that read the file.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from anchorroute.anchors import Anchor, AnchorSet, Placement
from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion.skeleton import JOINTS

VERSION = 1
#: An anchor takes about a hundred bytes, a fully anchored ten-second clip half a megabyte.
LARGEST = 8 * 2**20

_METRES = {"m": 1.0, "cm": 0.01, "mm": 0.001}
_Coordinate = Annotated[float | None, Meta(description="a number, or null to leave the coordinate free")]


class AnchorEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One joint, at one time, at one place."""

    at: Annotated[float, Meta(ge=0, description="when: seconds or frames, as the file's 'time' says")]
    joint: Annotated[str, Meta(description=f"one of: {', '.join(JOINTS)}")]
    position: Annotated[
        tuple[_Coordinate, _Coordinate, _Coordinate],
        Meta(description="x, y (up), z in the file's units"),
    ] = (None, None, None)
    heading: Annotated[
        float | None, Meta(description="pelvis only: where the body faces, 0 along +Z, turning towards +X")
    ] = None
    tolerance: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="a miss of at most this counts as met; 5 mm if left out"),
    ] = None


class Start(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where the first frame stands and faces."""

    position: Annotated[tuple[float, float], Meta(description="x and z of the pelvis")] = (0.0, 0.0)
    heading: Annotated[float, Meta(description="0 faces +Z, a quarter turn faces +X")] = 0.0


class Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Anchors of one motion: which point of the body is where, and when. Y is up."""

    version: Annotated[Literal[1], Meta(description="the version of this format")]
    anchors: list[AnchorEntry]
    time: Annotated[Literal["seconds", "frames"], Meta(description="what 'at' counts")] = "seconds"
    fps: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="frames a second, needed when 'time' is frames"),
    ] = None
    units: Annotated[Literal["m", "cm", "mm"], Meta(description="of positions and tolerances")] = "m"
    angles: Annotated[Literal["radians", "degrees"], Meta(description="of headings")] = "radians"
    start: Start | None = None
    loop: Annotated[bool, Meta(description="the last pose is to be the first one")] = False


_KNOWN = {
    "": Document.__struct_fields__,
    "start": Start.__struct_fields__,
    "anchors": AnchorEntry.__struct_fields__,
}


def schema() -> dict[str, Any]:
    """The format as a JSON Schema."""
    described = msgspec.json.schema(Document)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AnchorRoute anchors",
        **described,
    }


def load(path: Path) -> AnchorSet:
    """Read an anchor file."""
    return read_document(path, from_json)


def save(anchors: AnchorSet, path: Path) -> None:
    """Write an anchor file; a file that exists is replaced whole or not at all."""
    write_atomically(json.dumps(to_json(anchors), indent=2) + "\n", path)


def from_json(document: object) -> AnchorSet:
    """The anchors that a JSON text, or the plain values of one, describes."""
    if isinstance(document, str | bytes):
        document = decode(document)
    if isinstance(document, list):
        raise FormatError(
            "an anchor file is an object with 'version' and 'anchors', not a list; a list with 'type' and "
            "'frame_indices' is a KIMODO constraint file: `anchorroute convert` reads it"
        )
    if isinstance(document, dict) and document.get("version") != VERSION:
        given = document.get("version", "no version")
        raise FormatError(f'anchor file of version {given!r}: this program knows version {VERSION}; write "version": 1')
    try:
        return _meaning(msgspec.convert(document, Document))
    except msgspec.ValidationError as error:
        raise FormatError(_explained(str(error))) from None


def to_json(anchors: AnchorSet) -> dict[str, object]:
    """Plain JSON values of an anchor file, in seconds, metres and radians."""
    entries: list[dict[str, object]] = []
    for anchor in anchors.anchors:
        if anchor.axes:
            raise AnchorError(
                f"{anchor}: its free coordinate lies along turned axes, which a file cannot say; "
                "save the set in the world's frame, before `canonicalise` (or after `moved`)"
            )
        entry: dict[str, object] = {"at": anchor.at, "joint": anchor.joint, "position": list(anchor.position)}
        if anchor.heading is not None:
            entry["heading"] = anchor.heading
        entries.append({**entry, "tolerance": anchor.tolerance})
    document: dict[str, object] = {"version": VERSION, "time": "seconds", "units": "m", "angles": "radians"}
    if anchors.start is not None:
        document["start"] = {"position": list(anchors.start.xz), "heading": anchors.start.yaw}
    return {**document, "loop": anchors.loop, "anchors": entries}


def _meaning(document: Document) -> AnchorSet:
    """Every number in seconds, metres and radians."""
    if document.time == "frames" and document.fps is None:
        raise FormatError("'time' is frames, so the file must say how many there are a second: add e.g. \"fps\": 20")
    if document.time == "seconds" and document.fps is not None:
        raise FormatError("'fps' is given but 'time' is seconds; add \"time\": \"frames\", or remove 'fps'")
    second = document.fps or 1.0
    metre = _METRES[document.units]
    radian = math.pi / 180 if document.angles == "degrees" else 1.0
    anchors = []
    for index, entry in enumerate(document.anchors):
        x, y, z = (None if value is None else value * metre for value in entry.position)
        tolerance = {} if entry.tolerance is None else {"tolerance": entry.tolerance * metre}
        heading = None if entry.heading is None else entry.heading * radian
        try:
            anchors.append(Anchor(entry.at / second, entry.joint, (x, y, z), heading, **tolerance))
        except AnchorError as error:
            raise AnchorError(f"anchors[{index}]: {error}") from None
    start = None
    if document.start is not None:
        x, z = document.start.position
        start = Placement(document.start.heading * radian, (x * metre, z * metre))
    return AnchorSet(tuple(anchors), start, document.loop)


def _explained(message: str) -> str:
    """A reader's complaint with what would have been right."""
    unknown = re.search(r"unknown field `(.*?)`(?: - at `\$\.?(\w*))?", message)
    if unknown is None:
        return f"anchor file: {message}"
    name, place = unknown.group(1), unknown.group(2) or ""
    where = f" in {place}" if place else ""
    return f"anchor file: field {name!r}{where} is unknown; known there: {', '.join(_KNOWN[place])}"


def read_document(path: Path, meaning: Any) -> Any:
    """A small JSON file, given to `meaning`; complaints carry the file's name."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise FormatError(
                f"{size / 2**20:.0f} MB are too much: a file of anchors has at most {LARGEST // 2**20} MB (a fully "
                "anchored ten-second clip has half of one); is it the right file?"
            )
        return meaning(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    except (AnchorError, FormatError) as error:
        raise type(error)(f"{path}: {error}") from None


def decode(text: str | bytes) -> object:
    """JSON text as plain values; NaN and Infinity are no JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise FormatError(f"this is no JSON: {error} (NaN and Infinity are no JSON numbers)") from None
    except RecursionError:
        raise FormatError("the JSON is nested too deeply to be a file of anchors") from None


def write_atomically(text: str, path: Path) -> None:
    """Write beside the file, then put the new one in its place."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FormatError(f"{path}: cannot be written ({error.strerror})") from None
