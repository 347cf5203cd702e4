"""GLB (binary glTF 2.0): a skinned mannequin with one animation, for engines, web viewers and Blender.

Metres, seconds, +Y up, facing +Z, as glTF asks. The joint hierarchy at rest is the standing T-pose. What the motion
says about itself (text, anchors, loop, travel, foot contacts) lies in the animation's `extras.anchorroute`.

The document is a plain dict: glTF's JSON needs no library, and one that drops empty values would drop an anchor's
free coordinates too.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from anchorroute.errors import FormatError
from anchorroute.motion import mannequin, metadata
from anchorroute.motion.bvh import check_joints
from anchorroute.motion.bvh_names import MIXAMO, Naming, recognise
from anchorroute.motion.files import write_checked
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import JOINTS, PARENTS, REST_OFFSETS

Array = np.ndarray[Any, np.dtype[Any]]

_KEY = "anchorroute"
_TYPES = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4", 16: "MAT4"}
_WIDTHS = {name: width for width, name in _TYPES.items()}
_FLOAT, _BYTE, _SHORT = 5126, 5121, 5123
_NUMPY = {_FLOAT: "<f4", _BYTE: "u1", _SHORT: "<u2"}
_VERTICES, _INDICES = 34962, 34963
_HEADER = struct.Struct("<4sII")
_CHUNK = struct.Struct("<I4s")


def save(motion: Motion, path: str | Path, *, names: Naming = "mixamo", fps: float | None = None) -> Path:
    """Write a GLB file, read its joints back, and only then put it in its place."""
    if names not in ("mixamo", "smpl"):
        raise FormatError(f"names={names!r}: joints are named for 'mixamo' or 'smpl'")
    written = motion if fps is None else motion.resample(fps)

    def check(file: Path) -> None:
        check_joints(load(file), written, file)

    return write_checked(path, _Writer(written, MIXAMO if names == "mixamo" else JOINTS).bytes(), check)


class _Writer:
    """Collects buffer views and accessors; one binary chunk holds them all."""

    def __init__(self, motion: Motion, labels: tuple[str, ...]) -> None:
        self.motion, self.labels = motion, labels
        self.views: list[dict[str, Any]] = []
        self.accessors: list[dict[str, Any]] = []
        self.binary = bytearray()

    def bytes(self) -> bytes:
        lift = np.array([0.0, mannequin.standing_height(), 0.0])
        joints = [self._joint(index, lift) for index in range(len(JOINTS))]
        document = {
            "asset": {"version": "2.0", "generator": "AnchorRoute"},
            "scene": 0,
            "scenes": [{"name": "Motion", "nodes": [0, len(joints)]}],
            "nodes": [*joints, {"name": "Mannequin", "mesh": 0, "skin": 0}],
            "meshes": [self._mesh(lift)],
            "materials": [
                {
                    "name": "Mannequin",
                    "pbrMetallicRoughness": {"metallicFactor": 0.0, "roughnessFactor": 0.65},
                }
            ],
            "skins": [self._skin(lift)],
            "animations": [self._animation()],
            "accessors": self.accessors,
            "bufferViews": self.views,
            "buffers": [{"byteLength": len(self.binary)}],
        }
        text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        text += b" " * (-len(text) % 4)
        size = _HEADER.size + 2 * _CHUNK.size + len(text) + len(self.binary)
        head = _HEADER.pack(b"glTF", 2, size) + _CHUNK.pack(len(text), b"JSON")
        return head + text + _CHUNK.pack(len(self.binary), b"BIN\0") + bytes(self.binary)

    def _joint(self, index: int, lift: Array) -> dict[str, Any]:
        at = lift if index == 0 else REST_OFFSETS[index]
        node: dict[str, Any] = {"name": self.labels[index], "translation": [float(value) for value in at]}
        children = [child for child, parent in enumerate(PARENTS) if parent == index]
        return {**node, "children": children} if children else node

    def _mesh(self, lift: Array) -> dict[str, Any]:
        body = mannequin.build()
        pad = np.zeros_like(body.bones)
        opaque = np.full((len(body.colours), 1), 255)
        attributes = {
            "POSITION": self._accessor(body.vertices + lift, _FLOAT, _VERTICES, bounds=True),
            "NORMAL": self._accessor(body.normals, _FLOAT, _VERTICES),
            "COLOR_0": self._accessor(np.hstack((body.colours, opaque)), _BYTE, _VERTICES, normalized=True),
            "JOINTS_0": self._accessor(np.hstack((body.bones, pad)), _BYTE, _VERTICES),
            "WEIGHTS_0": self._accessor(np.hstack((body.weights, pad)), _FLOAT, _VERTICES),
        }
        indices = self._accessor(body.faces.reshape(-1, 1), _SHORT, _INDICES)
        return {"name": "Mannequin", "primitives": [{"attributes": attributes, "indices": indices, "material": 0}]}

    def _skin(self, lift: Array) -> dict[str, Any]:
        inverse = np.tile(np.eye(4), (len(JOINTS), 1, 1))
        inverse[:, :3, 3] = -(mannequin.rest_joints() + lift)
        columns = inverse.transpose(0, 2, 1).reshape(-1, 16)  # glTF's matrices are column-major
        return {
            "name": "Skeleton",
            "skeleton": 0,
            "joints": list(range(len(JOINTS))),
            "inverseBindMatrices": self._accessor(columns, _FLOAT),
        }

    def _animation(self) -> dict[str, Any]:
        motion = self.motion
        times = self._accessor(np.arange(motion.frames)[:, None] / motion.fps, _FLOAT, bounds=True)
        tracks = [("translation", 0, motion.root)]
        tracks += [("rotation", joint, motion.rotations[:, joint, [1, 2, 3, 0]]) for joint in range(len(JOINTS))]
        outputs = [self._accessor(values, _FLOAT) for _, _, values in tracks]
        return {
            "name": motion.text[:60] or "Motion",
            "samplers": [{"input": times, "output": output, "interpolation": "LINEAR"} for output in outputs],
            "channels": [
                {"sampler": sampler, "target": {"node": node, "path": path}}
                for sampler, (path, node, _) in enumerate(tracks)
            ],
            "extras": {_KEY: metadata.describe(motion)},
        }

    def _accessor(
        self, values: Array, component: int, target: int | None = None, *, bounds: bool = False, **more: Any
    ) -> int:
        data = np.ascontiguousarray(values, dtype=_NUMPY[component])
        view: dict[str, Any] = {"buffer": 0, "byteOffset": len(self.binary), "byteLength": data.nbytes}
        self.views.append(view if target is None else {**view, "target": target})
        self.binary += data.tobytes()
        self.binary += b"\0" * (-len(self.binary) % 4)
        accessor = {
            "bufferView": len(self.views) - 1,
            "componentType": component,
            "count": len(data),
            "type": _TYPES[data.shape[1]],
            **more,
        }
        if bounds:
            accessor |= {"min": data.min(0).tolist(), "max": data.max(0).tolist()}
        self.accessors.append(accessor)
        return len(self.accessors) - 1


def load(path: str | Path) -> Motion:
    """The motion in a GLB file that `save` wrote; other GLB files are refused by name."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened ({error.strerror})") from error
    try:
        return _Reader(*_unpack(raw)).motion()
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, struct.error) as error:
        raise FormatError(f"{path}: damaged, or not a GLB file that AnchorRoute wrote ({error})") from error


def _unpack(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON and the binary chunk."""
    if raw[:4] != b"glTF":
        raise FormatError("not a GLB file: it does not begin with 'glTF'")
    _, _, size = _HEADER.unpack_from(raw)
    if size != len(raw):
        raise FormatError(f"{len(raw)} bytes, but its header says {size}; the file was cut off")
    length, _ = _CHUNK.unpack_from(raw, _HEADER.size)
    start = _HEADER.size + _CHUNK.size
    return json.loads(raw[start : start + length]), raw[start + length + _CHUNK.size :]


class _Reader:
    def __init__(self, document: dict[str, Any], binary: bytes) -> None:
        self.document, self.binary = document, binary

    def motion(self) -> Motion:
        animations = self.document.get("animations", [])
        if not animations or _KEY not in animations[0].get("extras", {}):
            raise FormatError("holds no motion of AnchorRoute's; only GLB files that it wrote are read")
        about = animations[0]["extras"][_KEY]
        joint_of = self._joints()
        root = np.zeros((about["frames"], 3))
        rotations = np.tile(np.array([1.0, 0.0, 0.0, 0.0]), (about["frames"], len(JOINTS), 1))
        for channel in animations[0]["channels"]:
            sampler = animations[0]["samplers"][channel["sampler"]]
            times, values = self._values(sampler["input"])[:, 0], self._values(sampler["output"])
            if not np.allclose(times, np.arange(about["frames"]) / about["fps"], atol=1e-4):
                raise FormatError("its key times are not those of its stated rate")
            if channel["target"]["path"] == "rotation":
                rotations[:, joint_of[channel["target"]["node"]]] = values[:, [3, 0, 1, 2]]
            else:
                root[:] = values
        return metadata.restore(about, root, rotations)

    def _joints(self) -> dict[int, int]:
        """Joint of the body by node of the document; the offsets must be this body's, or the pose means another one."""
        members = self.document["skins"][0]["joints"]
        nodes = self.document["nodes"]
        _, found, missing = recognise(tuple(nodes[node]["name"] for node in members))
        if missing:
            raise FormatError(f"its skeleton lacks {', '.join(missing)}")
        offsets = np.array([nodes[members[found[joint]]]["translation"] for joint in range(1, len(JOINTS))])
        if not np.allclose(offsets, REST_OFFSETS[1:], atol=1e-5):
            raise FormatError("its skeleton has other bones than this body's")
        return {members[node]: joint for joint, node in found.items()}

    def _values(self, index: int) -> Float[np.ndarray, "count width"]:
        accessor = self.document["accessors"][index]
        view = self.document["bufferViews"][accessor["bufferView"]]
        kind, width = _NUMPY[accessor["componentType"]], _WIDTHS[accessor["type"]]
        flat = np.frombuffer(self.binary, kind, accessor["count"] * width, view["byteOffset"])
        return flat.reshape(accessor["count"], width)
