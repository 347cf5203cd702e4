"""One self-contained HTML page that plays a motion in 3D: no network, no library, under half a megabyte.

The page holds the same numbers as the motion (float32 root and rotations), so it reads back to an equal value; the
scripts beside this file do their own forward kinematics and skinning in WebGL. Anchors carry the residual that this
motion leaves, measured here, coloured there.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion import mannequin, metadata
from anchorroute.motion.files import write_checked
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import JOINTS, PARENTS, REST_OFFSETS, joint_index

Array = np.ndarray[Any, np.dtype[Any]]

_SCRIPTS = ("pose.js", "scene.js", "player.js")
_DATA = re.compile(r'<script type="application/json" id="motion-data">(.*?)</script>', re.DOTALL)
_TOLERANCE = 0.005
_NEAR = 4.0
"""An anchor missed by up to this many tolerances is amber, beyond red."""


def save(motion: Motion, path: str | Path) -> Path:
    """Write the page, read the motion back out of it, and only then put it in its place."""

    def check(written: Path) -> None:
        if load(written) != motion:
            raise FormatError(f"{written}: what was read back is not what was written")

    return write_checked(path, page(motion).encode(), check)


def page(motion: Motion) -> str:
    """The page's text, for a server that hands it out without a file."""
    return fill(
        part("page.html"),
        title=html.escape(motion.text or "Motion"),
        style=part("style.css"),
        data=script_json(_content(motion)),
        script="\n".join(map(part, _SCRIPTS)),
    )


def part(name: str) -> str:
    """One of the files that the page is made of."""
    return (resources.files("anchorroute.motion") / "player" / name).read_text(encoding="utf-8")


def fill(template: str, **parts: str) -> str:
    """The template with its {{names}} filled in one pass, so that what is filled in is never filled itself."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], template)


def script_json(value: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def load(path: str | Path) -> Motion:
    """The motion in a page that `save` wrote; other pages are refused."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    found = _DATA.search(text)
    if found is None:
        raise FormatError(f"{path}: no page of AnchorRoute's: it holds no motion")
    try:
        content = json.loads(found.group(1))
        root = np.frombuffer(base64.b64decode(content["root"]), "<f4").reshape(-1, 3)
        rotations = np.frombuffer(base64.b64decode(content["rotations"]), "<f4").reshape(-1, len(JOINTS), 4)
        return metadata.restore(content["about"], root, rotations)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: the motion in the page is damaged ({error})") from error


def _content(motion: Motion) -> dict[str, Any]:
    return {
        "about": metadata.describe(motion),
        "joints": JOINTS,
        "parents": PARENTS,
        "rest": REST_OFFSETS.reshape(-1).tolist(),
        "root": _packed(motion.root, "<f4"),
        "rotations": _packed(motion.rotations, "<f4"),
        "anchors": sorted((_measured(motion, anchor) for anchor in motion.anchors), key=lambda a: float(a["at"])),
        "mesh": mesh(),
    }


def mesh() -> dict[str, str]:
    """The mannequin in as few bytes as the eye allows: 16-bit positions (one unit is 1/32767 m), 8-bit normals."""
    body = mannequin.build()
    return {
        "vertices": _packed(np.round(body.vertices * 32767), "<i2"),
        "normals": _packed(np.round(body.normals * 127), "i1"),
        "bones": _packed(body.bones, "u1"),
        "second": _packed(np.round(body.weights[:, 1] * 255), "u1"),
        "colours": _packed(body.colours, "u1"),
        "faces": _packed(body.faces, "<u2"),
    }


def _packed(values: Array, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _measured(motion: Motion, anchor: Mapping[str, Any]) -> dict[str, Any]:
    """An anchor with the place to draw it (free coordinates from the body) and how far the body is from it."""
    try:
        at, joint, position = float(anchor["at"]), joint_index(anchor["joint"]), anchor["position"]
        reached = motion.at(at)[joint]
        place = [float(own) if given is None else float(given) for own, given in zip(reached, position, strict=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise AnchorError(
            f"the anchor {dict(anchor)} cannot be shown: it needs 'at', 'joint' and 'position'"
        ) from error
    residual = float(np.linalg.norm(reached - place))
    tolerance = float(anchor.get("tolerance") or _TOLERANCE)
    return {
        "at": at,
        "joint": JOINTS[joint],
        "place": place,
        "reached": [float(value) for value in reached],
        "free": "".join(axis for axis, given in zip("xyz", position) if given is None),
        "heading": anchor.get("heading"),
        "residual": residual,
        "grade": "good" if residual <= tolerance else "near" if residual <= _NEAR * tolerance else "bad",
    }
