"""`Motion`: the value that users hold, and the one truth about where its joints are.

A motion is root positions and local rotations over fixed bones, because that is what a file can hold; `joints` is
their forward kinematics and never anything else. Times are seconds from the first frame, so they survive a change of
rate. Anchors ride along as plain JSON values (`{"at", "joint", "position", ...}`): this module knows where they are
and moves them with the body, and nothing more about them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion import body, features, rotation
from anchorroute.motion.canonical import Placement, place
from anchorroute.motion.skeleton import CONTACT_JOINTS, FPS, JOINTS, MIRROR

Array = np.ndarray[Any, np.dtype[Any]]

CONTACT_SPEED = math.sqrt(0.002) * FPS
"""Metres a second below which an ankle or foot counts as resting: HumanML3D's rule, at any rate and any height."""

#: What the file endings mean. The modules are imported when wanted: they import this one.
_MODULES = {".bvh": "bvh", ".bvh.xz": "bvh", ".glb": "glb", ".npz": "npz", ".html": "html"}

#: Long captures are worked on this many frames at a time.
_BLOCK, _OVERLAP = 4096, 64
_UNIT_TOLERANCE = 1e-3
_FLOAT_STEP = 1e-6
_TIME_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Motion:
    """A body in motion: frozen, its arrays read-only; every change returns a new one.

    Axes: Y up, metres, the body faces +Z when its rotations are the identity. Quaternions are (w, x, y, z).
    """

    root: Float[np.ndarray, "frames 3"]
    rotations: Float[np.ndarray, "frames 22 4"]
    """Local rotations: child to parent, relative to the T-pose of `skeleton.REST_OFFSETS`."""
    fps: float = FPS
    text: str = ""
    anchors: tuple[Mapping[str, Any], ...] = ()
    seed: int | None = None
    model: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    loop: bool = False
    """The last frame is the first again, so a player may jump back."""
    on_spot: bool = False
    """The horizontal travel of the pelvis has been taken out; `provenance["travel"]` says how much."""
    contacts: Bool[np.ndarray, "frames 4"] = field(default_factory=lambda: np.empty((0, 4), dtype=bool))
    """Whether left ankle, left foot, right ankle, right foot rest; left empty, it follows from the joints' speed."""

    def __post_init__(self) -> None:
        root, rotations = _finite("root", self.root, (3,)), _finite("rotations", self.rotations, (22, 4))
        norms = np.linalg.norm(rotations, axis=-1, keepdims=True)
        norms[np.abs(norms - 1.0) < _FLOAT_STEP] = 1.0  # so that storing and reading back changes no bit
        if len(root) != len(rotations):
            raise FormatError(f"{len(root)} root positions and {len(rotations)} rotations; a frame has one of each")
        if len(root) < 2:
            raise FormatError(f"a motion of {len(root)} frame does not move; it takes two frames or more")
        if np.abs(norms - 1.0).max() > _UNIT_TOLERANCE:
            worst = float(norms.flat[np.abs(norms - 1.0).argmax()])
            raise FormatError(f"rotations must be unit quaternions (w, x, y, z); one has the norm {worst:.4f}")
        if not (isinstance(self.fps, int | float) and math.isfinite(self.fps) and self.fps > 0):
            raise FormatError(f"fps is {self.fps!r}; it must be a number above 0")
        rotations /= norms
        self._put(
            root=_frozen(root.astype(np.float32, copy=False)),
            rotations=_frozen(rotations.astype(np.float32, copy=False)),
            fps=float(self.fps),
            anchors=tuple(_plain("anchors", list(self.anchors))),
            provenance=_plain("provenance", dict(self.provenance)),
        )
        given = np.array(self.contacts, dtype=bool)
        contacts = given if given.size else _resting(self.joints, self.fps)
        if contacts.shape != (len(root), 4):
            raise FormatError(f"contacts have the shape {contacts.shape}; {(len(root), 4)} is wanted")
        self._put(contacts=_frozen(contacts))

    def _put(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_joints(cls, joints: Float[np.ndarray, "frames 22 3"], fps: float = FPS, **about: Any) -> Motion:
        """The fixed-bone body nearest in pose to these joint positions; `about` takes text, anchors, seed and so on."""
        root, rotations = _posed(_finite("joints", joints, (22, 3)))
        return cls(root=root, rotations=rotations, fps=fps, **about)

    @classmethod
    def from_features(cls, values: Float[np.ndarray, "frames 263"], **about: Any) -> Motion:
        """From HumanML3D features, not normalised, at 20 fps."""
        points = features.to_joints(torch.from_numpy(_finite("features", values, (features.DIM,)).astype(np.float64)))
        return cls.from_joints(points.numpy(), FPS, **about)

    @classmethod
    def load(cls, path: str | Path) -> Motion:
        """Read `.bvh`, `.bvh.xz`, `.glb`, `.npz` or `.html`; the last three only as this package writes them."""
        return _format_of(path).load(path)  # type: ignore[no-any-return]

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write `.bvh`, `.glb`, `.npz` or `.html` by the path's ending; returns once the file has been read back.

        `options` are those of the format's own `save`: for BVH `names`, `units`, `fps`; for GLB `fps`.
        """
        return _format_of(path).save(self, path, **options)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Motion):
            return NotImplemented
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.root)

    @property
    def frames(self) -> int:
        """How many frames there are."""
        return len(self.root)

    @property
    def seconds(self) -> float:
        """Frames over rate: 80 frames at 20 fps are 4 s, the last one standing at 3.95 s."""
        return self.frames / self.fps

    @cached_property
    def joints(self) -> Float[np.ndarray, "frames 22 3"]:
        """Where the joints are: forward kinematics of the rotations on canonical bones."""
        joints = np.empty((self.frames, len(JOINTS), 3), dtype=np.float32)
        for start in range(0, self.frames, _BLOCK):
            window = slice(start, start + _BLOCK)
            root, turns = (torch.from_numpy(array[window].copy()) for array in (self.root, self.rotations))
            joints[window] = body.forward_kinematics(root, turns).numpy()
        return _frozen(joints)

    def at(self, seconds: float) -> Float[np.ndarray, "22 3"]:
        """The joints at a time, between frames by a straight line, outside of the clip its nearest end."""
        where = min(max(seconds * self.fps, 0.0), self.frames - 1.0)
        before = min(int(where), self.frames - 2)
        share = where - before
        return (1.0 - share) * self.joints[before] + share * self.joints[before + 1]  # type: ignore[no-any-return]

    def resample(self, fps: float) -> Motion:
        """The same motion at another rate: rotations by slerp, the root by straight lines, anchors' seconds untouched.

        No frame is invented after the last one, so at a lower rate up to one frame's time may fall off the end.
        """
        if not (math.isfinite(fps) and fps > 0):
            raise FormatError(f"fps is {fps!r}; it must be a number above 0")
        if fps == self.fps:
            return self
        count = int((self.frames - 1) / self.fps * fps + _TIME_TOLERANCE) + 1
        where = np.clip(np.arange(count) * (self.fps / fps), 0.0, self.frames - 1.0)
        before = np.minimum(where.astype(int), self.frames - 2)
        share = where - before
        share = np.where(np.abs(share - np.round(share)) < _TIME_TOLERANCE, np.round(share), share)
        turns = torch.from_numpy(self.rotations.astype(np.float64))
        weights = torch.from_numpy(share)[:, None].expand(-1, len(JOINTS))
        rotations = rotation.quat_slerp(turns[before], turns[before + 1], weights)
        root = (1.0 - share[:, None]) * self.root[before] + share[:, None] * self.root[before + 1]
        contacts = self.contacts[np.where(share < 0.5, before, before + 1)]
        return dataclasses.replace(self, root=root, rotations=rotations.numpy(), fps=fps, contacts=contacts)

    def trim(self, start: float = 0.0, stop: float | None = None) -> Motion:
        """Frames at start <= time < stop, in seconds; anchors outside fall away, those inside keep their moment."""
        first = max(math.ceil(start * self.fps - _TIME_TOLERANCE), 0)
        last = self.frames if stop is None else min(math.ceil(stop * self.fps - _TIME_TOLERANCE), self.frames)
        if last - first < 2:
            raise FormatError(
                f"trim({start}, {stop}) keeps {max(last - first, 0)} of {self.frames} frames; "
                f"two or more must be left of the clip's {self.seconds:.2f} s"
            )
        offset, end = first / self.fps, (last - 1) / self.fps
        kept = [a for a in self.anchors if offset - _TIME_TOLERANCE <= _time(a) <= end + _TIME_TOLERANCE]
        anchors = tuple({**a, "at": max(_time(a) - offset, 0.0)} for a in kept)
        window = slice(first, last)
        return dataclasses.replace(
            self,
            root=self.root[window],
            rotations=self.rotations[window],
            contacts=self.contacts[window],
            anchors=anchors,
            loop=self.loop and last - first == self.frames,
        )

    def mirror(self) -> Motion:
        """Left and right swapped in pose, path, anchors and words; twice is the motion itself.

        The canonical bones are not symmetric (the left leg is 10 mm longer), so the joints are the mirror image to a
        centimetre, the rotations exactly.
        """
        root = self.root * np.array([-1.0, 1.0, 1.0], dtype=np.float32)
        rotations = self.rotations[:, list(MIRROR)] * np.array([1.0, 1.0, -1.0, -1.0], dtype=np.float32)
        anchors = tuple(_mirrored(anchor) for anchor in self.anchors)
        return dataclasses.replace(
            self,
            root=root,
            rotations=rotations,
            contacts=self.contacts[:, [2, 3, 0, 1]],
            anchors=anchors,
            text=_swap_sides(self.text),
        )

    def place(self, placement: Placement) -> Motion:
        """Turned about the vertical through the origin, then shifted on the floor; anchors go with it."""
        turn = rotation.quat_about_y(torch.tensor(placement.yaw, dtype=torch.float64))
        rotations = torch.from_numpy(self.rotations.astype(np.float64))
        rotations[:, 0] = rotation.quat_multiply(turn.expand(self.frames, 4), rotations[:, 0])
        root = place(torch.from_numpy(self.root.astype(np.float64)), placement)
        anchors = tuple(_placed(anchor, placement) for anchor in self.anchors)
        return dataclasses.replace(
            self, root=root.numpy(), rotations=rotations.numpy(), contacts=self.contacts, anchors=anchors
        )

    def in_place(self) -> Motion:
        """The motion on the spot: the pelvis keeps its first x and z; anchors shift with the body they belong to."""
        if self.on_spot:
            return self
        travel = (self.root - self.root[0]) * np.array([1.0, 0.0, 1.0], dtype=np.float32)
        anchors = tuple(_shifted(anchor, -_between(travel, _time(anchor) * self.fps)) for anchor in self.anchors)
        total = [float(travel[-1, 0]), float(travel[-1, 2])]
        return dataclasses.replace(
            self,
            root=self.root - travel,
            anchors=anchors,
            on_spot=True,
            contacts=self.contacts,
            provenance={**self.provenance, "travel": total},
        )


def _posed(joints: Array) -> tuple[Array, Array]:
    """`body.rotations` of a motion of any length in bounded memory; blocks overlap by more than its filter's reach."""
    root = np.empty((len(joints), 3), dtype=np.float32)
    rotations = np.empty((len(joints), len(JOINTS), 4), dtype=np.float32)
    for start in range(0, len(joints), _BLOCK):
        stop, low = min(start + _BLOCK, len(joints)), max(start - _OVERLAP, 0)
        places, turns = body.rotations(torch.from_numpy(joints[low : stop + _OVERLAP].astype(np.float64)))
        inner = slice(start - low, stop - low)
        signs = 1.0 if start == 0 else np.sign((turns[start - low - 1].numpy() * rotations[start - 1]).sum(-1))[:, None]
        root[start:stop], rotations[start:stop] = places[inner].numpy(), signs * turns[inner].numpy()
    return root, rotations


def _finite(name: str, values: Any, tail: tuple[int, ...]) -> Array:
    """A copy as floats: float32 stays so, all else becomes float64."""
    array = np.array(values)
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    if array.ndim != len(tail) + 1 or array.shape[1:] != tail:
        wanted = ", ".join(["frames", *map(str, tail)])
        raise FormatError(f"{name} have the shape {array.shape}; [{wanted}] is wanted")
    if not np.isfinite(array).all():
        frame = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))[0])
        raise FormatError(f"{name} hold a number that is not finite, first in frame {frame}")
    return array


def _frozen(array: Array) -> Array:
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


def _plain(name: str, value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise FormatError(f"{name} must be plain JSON values: {error}") from error


def _resting(joints: Array, fps: float) -> Array:
    feet = joints[:, CONTACT_JOINTS]
    slow: Array = np.linalg.norm(np.diff(feet, axis=0), axis=-1) * fps < CONTACT_SPEED
    return np.concatenate((slow, slow[-1:]))


def _format_of(path: str | Path) -> Any:
    name = Path(path).name.lower()
    for ending, module in _MODULES.items():
        if name.endswith(ending):
            return import_module(f"anchorroute.motion.{module}")
    raise FormatError(f"{path}: the ending says the format and must be one of {', '.join(_MODULES)}")


def _time(anchor: Mapping[str, Any]) -> float:
    try:
        return float(anchor["at"])
    except (KeyError, TypeError, ValueError) as error:
        raise AnchorError(f"the anchor {dict(anchor)} has no 'at' in seconds") from error


def _position(anchor: Mapping[str, Any]) -> Sequence[float | None]:
    position = anchor.get("position")
    if not isinstance(position, list) or len(position) != 3:
        raise AnchorError(f"the anchor {dict(anchor)} has no 'position' of three coordinates")
    return position


def _shifted(anchor: Mapping[str, Any], by: Array) -> dict[str, Any]:
    moved = [None if value is None else value + float(step) for value, step in zip(_position(anchor), by)]
    return {**anchor, "position": moved}


def _between(rows: Array, where: float) -> Array:
    """Row `where` of an array, by a straight line between rows."""
    where = min(max(where, 0.0), len(rows) - 1.0)
    before = min(int(where), len(rows) - 2)
    return rows[before] + (where - before) * (rows[before + 1] - rows[before])  # type: ignore[no-any-return]


def _placed(anchor: Mapping[str, Any], placement: Placement) -> dict[str, Any]:
    x, y, z = _position(anchor)
    heading = {} if anchor.get("heading") is None else {"heading": anchor["heading"] + placement.yaw}
    if x is None and z is None:
        return {**anchor, **heading}
    if (x is None or z is None) and placement.yaw != 0.0:
        raise AnchorError(
            f"the anchor {dict(anchor)} leaves x or z free alone; such a line cannot be turned, free both"
        )
    point = torch.tensor([0.0 if value is None else value for value in (x, y, z)], dtype=torch.float64)
    moved = place(point, placement).tolist()
    free = [None if value is None else new for value, new in zip((x, y, z), moved)]
    return {**anchor, **heading, "position": free}


def _mirrored(anchor: Mapping[str, Any]) -> dict[str, Any]:
    x, y, z = _position(anchor)
    swapped: dict[str, Any] = {**anchor, "position": [None if x is None else -x, y, z]}
    joint = anchor.get("joint")
    if joint in JOINTS:
        swapped["joint"] = JOINTS[MIRROR[JOINTS.index(joint)]]
    if anchor.get("heading") is not None:
        swapped["heading"] = -anchor["heading"]
    return swapped


def _swap_sides(text: str) -> str:
    other = {"left": "right", "right": "left", "Left": "Right", "Right": "Left"}
    return re.sub(r"\b(left|right|Left|Right)\b", lambda match: other[match.group()], text)
