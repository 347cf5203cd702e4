"""What stands in the 3D view of one browser: bodies, path, contacts, ghosts and anchor handles.

The stage draws a document; it never changes one. What a person does in it comes out through `Hands`, which the
client's view connects to the session. Bodies are skinned in the browser: a frame costs 22 small poses a body. Nodes
are made once and moved after that; a mesh is the one thing that is big, so ghosts no longer needed are hidden and
used again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import viser

from anchorroute.motion import mannequin
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import JOINTS
from anchorroute.studio import poses
from anchorroute.studio.document import Document, Mark, Point, Take
from anchorroute.studio.room import furnish, raised
from anchorroute.studio.verdicts import reached

Colour = tuple[int, int, int]

_MET, _MISSED, _UNKNOWN, _CHOSEN = (46, 160, 67), (218, 54, 51), (110, 118, 129), (255, 160, 20)
_BODY, _SIBLING, _GHOST = (176, 186, 202), (120, 140, 170), (60, 110, 200)
_PATH, _CONTACT = (47, 111, 222), (255, 160, 20)
_HANDLE = 0.045
#: Siblings of the chosen sample stand beside it.
_SPACING = 1.6
#: Ankle and toe, left and right: the joints that a motion's contacts speak of.
_FEET = (7, 10, 8, 11)


@dataclass
class Hands:
    """What a person does on the stage. Called on the server's loop, in order: hand on, do not work."""

    floor: Callable[[float, float], None]
    joint: Callable[[int, Point], None]
    sample: Callable[[int], None]
    select: Callable[[int], None]
    drag: Callable[[int, Point, str], None]
    path: Callable[[list[tuple[float, float]]], None]


@dataclass
class _Body:
    handle: Any
    motion: Motion
    offset: float = 0.0


@dataclass
class _Ghost:
    handle: Any
    shown: tuple[Motion, int] | None = None


@dataclass
class Stage:
    """The 3D view of one client."""

    client: viser.ClientHandle
    hands: Hands
    time: float = 0.0
    _bodies: list[_Body] = field(default_factory=list)
    _chosen: int = 0
    _ghosts: list[_Ghost] = field(default_factory=list)
    _marks: dict[int, Any] = field(default_factory=dict)
    _gizmo: Any = None
    _gizmo_of: tuple[int, bool] | None = None
    _dragging: bool = False
    _path: tuple[Any, Motion] | None = None
    _contacts: list[Any] = field(default_factory=list)

    def furnish(self) -> None:
        """The room, and the discs under resting feet."""
        furnish(self.client, self.hands.floor, self.hands.path)
        self._contacts = [self._disc(side) for side in range(len(_FEET))]

    # ------------------------------------------------------------------------------------------------------ drawing

    def draw(self, document: Document, selected: int | None) -> None:
        """Bring the view up to date with a document."""
        take = document.take
        with self.client.atomic():
            self._draw_bodies(take)
            self._draw_path(take)
            self._draw_ghosts(document)
            self._draw_marks(document, selected)
        self.show(self.time)

    def _draw_bodies(self, take: Take | None) -> None:
        samples = () if take is None else take.samples
        self._chosen = 0 if take is None else take.chosen
        while len(self._bodies) > len(samples):
            self._bodies.pop().handle.remove()
        for index, sample in enumerate(samples):
            if index == len(self._bodies):
                self._bodies.append(_Body(self._add_body(index), sample.motion))
            body, chosen = self._bodies[index], index == self._chosen
            body.motion, body.offset = sample.motion, _SPACING * (index - self._chosen)
            body.handle.color = _BODY if chosen else _SIBLING
            body.handle.opacity = None if chosen else 0.55

    def _add_body(self, index: int) -> Any:
        handle = self._skinned(f"/body/{index}", _BODY, None, solid=True)

        async def touched(event: Any) -> None:
            body = self._bodies[index]
            if index != self._chosen:
                self.hands.sample(index)
                return
            clip = poses.of(body.motion)
            joints = clip.positions[clip.index(self.time)]
            joint = poses.nearest_joint(joints, event.ray_origin, event.ray_direction)
            x, y, z = (float(value) for value in joints[joint])
            self.hands.joint(joint, (x, y, z))

        handle.on_click(touched)
        return handle

    def _draw_path(self, take: Take | None) -> None:
        motion = None if take is None else take.sample.motion
        if self._path is not None and self._path[1] is motion:
            return
        if self._path is not None:
            self._path[0].remove()
            self._path = None
        if motion is not None:
            points = motion.joints[::2, 0].astype(float)
            points[:, 1] = 0.012
            spline = self.client.scene.add_spline_catmull_rom("/path", points, thickness=0.018, color=_PATH)
            self._path = (spline, motion)

    def _draw_ghosts(self, document: Document) -> None:
        """A see-through body at every moment that has an anchor."""
        take = document.take
        motion = None if take is None else take.sample.motion
        clip = None if motion is None else poses.of(motion)
        moments = [] if clip is None else sorted({clip.index(mark.at) for mark in document.marks})
        while len(self._ghosts) < len(moments):
            name = f"/ghost/{len(self._ghosts)}"
            self._ghosts.append(_Ghost(self._skinned(name, _GHOST, opacity=0.16, solid=False)))
        for k, ghost in enumerate(self._ghosts):
            ghost.handle.visible = k < len(moments)
            if clip is not None and motion is not None and k < len(moments):
                wanted = (motion, moments[k])
                if ghost.shown is None or ghost.shown[0] is not motion or ghost.shown[1] != moments[k]:
                    ghost.shown = wanted
                    _pose(ghost.handle, clip, moments[k], 0.0)

    def _draw_marks(self, document: Document, selected: int | None) -> None:
        lines = reached(document)
        present = {mark.id for mark in document.marks}
        for gone in [id_ for id_ in self._marks if id_ not in present]:
            self._marks.pop(gone).remove()
        for mark in document.marks:
            line = lines.get(mark.id)
            colour = _UNKNOWN if line is None else _MET if line.met else _MISSED
            handle = self._marks.get(mark.id) or self._add_mark(mark)
            handle.position = _shown_at(mark)
            handle.color = _CHOSEN if mark.id == selected else colour
        self._draw_gizmo(document, selected)

    def _add_mark(self, mark: Mark) -> Any:
        handle = self.client.scene.add_icosphere(
            f"/anchor/{mark.id}", _HANDLE, _UNKNOWN, subdivisions=2, position=_shown_at(mark), cast_shadow=False
        )

        async def touched(_: Any) -> None:
            self.hands.select(mark.id)

        handle.on_click(touched)
        self._marks[mark.id] = handle
        return handle

    def _draw_gizmo(self, document: Document, selected: int | None) -> None:
        """Arrows on the selected anchor; while a hand holds them they stay where the hand is."""
        mark = None if selected is None else document.mark(selected)
        wanted = None if mark is None else (mark.id, mark.free[1])
        if self._gizmo is not None and wanted != self._gizmo_of:
            self._gizmo.remove()
            self._gizmo, self._dragging = None, False
        self._gizmo_of = wanted
        if mark is None:
            return
        if self._gizmo is None:
            self._gizmo = self._add_gizmo(mark)
        elif not self._dragging:
            self._gizmo.position = _shown_at(mark)

    def _add_gizmo(self, mark: Mark) -> Any:
        gizmo = self.client.scene.add_transform_controls(
            "/gizmo", scale=0.3, disable_rotations=True, depth_test=False, position=_shown_at(mark),
            active_axes=(True, not mark.free[1], True),
        )  # fmt: skip

        async def moved(event: Any) -> None:
            self._dragging = event.phase != "end"
            x, y, z = (float(value) for value in event.target.position)
            self.hands.drag(mark.id, (x, y, z), event.phase)

        gizmo.on_update(moved)
        return gizmo

    def _skinned(self, name: str, colour: Colour, opacity: float | None, *, solid: bool) -> Any:
        body = mannequin.build()
        return self.client.scene.add_mesh_skinned(
            name, body.vertices, body.faces,
            bone_wxyzs=np.tile((1.0, 0.0, 0.0, 0.0), (len(JOINTS), 1)), bone_positions=mannequin.rest_joints(),
            skin_weights=poses.skin_weights(), color=colour, opacity=opacity, cast_shadow=solid, receive_shadow=solid,
        )  # fmt: skip

    def _disc(self, side: int) -> Any:
        return self.client.scene.add_icosphere(
            f"/contact/{side}", 0.07, _CONTACT, subdivisions=2, scale=(1.0, 0.12, 1.0), opacity=0.75, visible=False,
            cast_shadow=False,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ playing

    def show(self, seconds: float) -> None:
        """Pose all bodies at a time."""
        self.time = seconds
        with self.client.atomic():
            for body in self._bodies:
                clip = poses.of(body.motion)
                _pose(body.handle, clip, clip.index(seconds), body.offset)
            self._show_contacts(seconds)

    def _show_contacts(self, seconds: float) -> None:
        motion = self._bodies[self._chosen].motion if self._bodies else None
        frame = 0 if motion is None else int(np.clip(round(seconds * motion.fps), 0, motion.frames - 1))
        for side, (disc, joint) in enumerate(zip(self._contacts, _FEET)):
            rests = motion is not None and bool(motion.contacts[frame, side])
            disc.visible = rests
            if rests and motion is not None:
                x, _, z = (float(value) for value in motion.joints[frame, joint])
                disc.position = raised(x, z)


def _pose(handle: Any, clip: poses.Poses, index: int, offset: float) -> None:
    shift = np.array([offset, 0.0, 0.0])
    for bone, place, turn in zip(handle.bones, clip.positions[index], clip.turns[index]):
        bone.position = place + shift
        bone.wxyz = turn


def _shown_at(mark: Mark) -> Point:
    """A waypoint whose height is free lies on the floor."""
    x, y, z = mark.position
    return (x, _HANDLE if mark.free[1] else y, z)
