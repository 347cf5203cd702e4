"""NPZ: a motion as named arrays that say what they are (joint names, units, axes, rate, text, seed), no pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anchorroute.errors import FormatError
from anchorroute.motion.files import write_checked
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import CONTACT_JOINTS, JOINTS, PARENTS, REST_OFFSETS

FORMAT = "anchorroute-motion"
VERSION = 1
_AGREE = 1e-3


def save(motion: Motion, path: str | Path) -> Path:
    """Write every field of the motion, and the joints beside the rotations for readers that want no kinematics."""

    def check(written: Path) -> None:
        if load(written) != motion:
            raise FormatError(f"{written}: what was read back is not what was written")

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **_arrays(motion))
    return write_checked(path, buffer.getvalue(), check)


def _arrays(motion: Motion) -> dict[str, Any]:
    """Strings are unicode arrays, structured values JSON in such a string: nothing that would need pickle."""
    return {
        "format": np.array(FORMAT),
        "version": np.array(VERSION),
        "units": np.array("metres, seconds, unit quaternions (w, x, y, z)"),
        "axes": np.array("right-handed, Y up, the rest pose faces +Z"),
        "fps": np.array(motion.fps),
        "joint_names": np.array(JOINTS),
        "parents": np.array(PARENTS),
        "rest_offsets": REST_OFFSETS,
        "joints": motion.joints,
        "root_positions": motion.root,
        "local_rotations": motion.rotations,
        "contacts": motion.contacts,
        "contact_joints": np.array([JOINTS[joint] for joint in CONTACT_JOINTS]),
        "text": np.array(motion.text),
        "anchors": np.array(json.dumps(motion.anchors)),
        "seed": np.array(json.dumps(motion.seed)),
        "model": np.array(json.dumps(motion.model)),
        "provenance": np.array(json.dumps(motion.provenance)),
        "loop": np.array(motion.loop),
        "in_place": np.array(motion.on_spot),
    }


def load(path: str | Path) -> Motion:
    """Read a file that `save` wrote; anything else is refused with what is missing."""
    path = Path(path)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            values: Mapping[str, Any] = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise FormatError(f"{path}: cannot be read as NPZ ({error})") from error
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise FormatError(f"{path}: not an NPZ of plain arrays, or damaged ({error})") from error
    missing = sorted({"format", "version", "fps", "root_positions", "local_rotations", "joints"} - set(values))
    if missing or str(values["format"]) != FORMAT:
        raise FormatError(f"{path}: no {FORMAT} file (missing: {', '.join(missing) or 'nothing, but format differs'})")
    if int(values["version"]) > VERSION:
        raise FormatError(f"{path}: version {values['version']}, this program reads up to {VERSION}; update it")
    return _motion(path, values)


def _motion(path: Path, values: Mapping[str, Any]) -> Motion:
    def plain(name: str) -> Any:
        return json.loads(str(values[name]))

    try:
        motion = Motion(
            root=values["root_positions"],
            rotations=values["local_rotations"],
            fps=float(values["fps"]),
            text=str(values["text"]),
            anchors=tuple(plain("anchors")),
            seed=plain("seed"),
            model=plain("model"),
            provenance=plain("provenance"),
            loop=bool(values["loop"]),
            on_spot=bool(values["in_place"]),
            contacts=values["contacts"],
        )
    except (KeyError, ValueError, TypeError, FormatError) as error:
        raise FormatError(f"{path}: {error}") from error
    stored = np.asarray(values["joints"])
    if stored.shape != motion.joints.shape or not np.allclose(stored, motion.joints, atol=_AGREE):
        raise FormatError(f"{path}: its joints are not where its rotations put them; the file was edited or damaged")
    return motion
