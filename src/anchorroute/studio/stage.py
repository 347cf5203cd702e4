"""What stands in the 3D view of one browser: bodies, path, contacts, ghosts and anchor handles.

The stage draws a document; it never changes one. What a person does in it comes out through `Hands`, which the
client's view connects to the session. Bodies are skinned in the browser: a frame costs 22 small poses a body.
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
from anchorroute.studio.document import Document, Mark, Point

_MET, _MISSED, _UNKNOWN, _CHOSEN = (46, 160, 67), (218, 54, 51), (110, 118, 129), (255, 176, 32)
_BODY, _SIBLING, _GHOST = (142, 156, 178), (120, 140, 170), (90, 130, 200)
_PATH, _CONTACT = (70, 110, 190), (255, 176, 32)
_HANDLE = 0.045
#: Siblings of the chosen sample stand beside it.
_SPACING = 1.6


@dataclass
class Hands:
    """What a person does on the stage."""

    floor: Callable[[float, float], None]
    joint: Callable[[int, Point], None]
    select: Callable[[int], None]
    drag: Callable[[int, Point, str], None]
    path: Callable[[list[tuple[float, float]]], None]


@dataclass
class _Body:
    handle: Any
    motion: Motion
    offset: float


@dataclass
class Stage:
    """The 3D view of one client."""

    client: viser.ClientHandle
    hands: Hands
    time: float = 0.0
    _bodies: list[_Body] = field(default_factory=list)
    _marks: dict[int, tuple[Any, Mark, tuple[int, int, int]]] = field(default_factory=dict)
    _gizmo: Any = None
    _gizmo_mark: int | None = None
    _extras: list[Any] = field(default_factory=list)
    _contacts: list[Any] = field(default_factory=list)
    _stroke: list[tuple[float, float]] = field(default_factory=list)
    _drawn: Any = None
    _dragging: bool = False

    def furnish(self) -> None:
        """The room: floor, light, camera, and the floor's own clicks and strokes."""
        scene = self.client.scene
        scene.set_up_direction("+y")
        scene.configure_environment_map("studio", environment_intensity=0.12)
        scene.set_background_image(_backdrop())
        scene.add_grid(
            "/floor/grid", 40.0, 40.0, plane="xz", cell_size=0.5, section_size=1.0,
            cell_color=(150, 155, 165), section_color=(115, 121, 133), infinite_grid=True, fade_distance=18.0,
            shadow_opacity=0.25,
        )  # fmt: skip
        corner = 25.0
        floor = scene.add_mesh_simple(
            "/floor/touch",
            np.array([[-corner, 0, -corner], [corner, 0, -corner], [corner, 0, corner], [-corner, 0, corner]]),
            np.array([[0, 2, 1], [0, 3, 2]]),
            opacity=0.0,
            side="double",
            cast_shadow=False,
            receive_shadow=False,
            position=(0.0, -0.004, 0.0),
        )

        def touched(event: Any) -> None:
            place = poses.on_floor(event.ray_origin, event.ray_direction)
            if place is not None:
                self.hands.floor(*place)

        floor.on_click(touched)
        floor.on_drag("left", modifier="shift")(self._stroke_by)

        self.client.camera.position = (2.6, 1.9, 4.2)
        self.client.camera.look_at = (0.0, 0.9, 0.6)

    def _stroke_by(self, event: Any) -> None:
        """Shift and drag on the floor: the pointer lies on a plane that faces the eye, so go on to the floor."""
        eye = np.asarray(self.client.camera.position)
        place = poses.on_floor(tuple(eye), tuple(np.asarray(event.end_position) - eye))
        if event.phase == "start":
            self._stroke = []
        if place is not None:
            self._stroke.append(place)
        if event.phase == "end":
            stroke, self._stroke = self._stroke, []
            if self._drawn is not None:
                self._drawn.remove()
                self._drawn = None
            self.hands.path(stroke)
        elif len(self._stroke) > 1:
            points = np.array([(x, 0.02, z) for x, z in self._stroke])
            self._drawn = self.client.scene.add_spline_catmull_rom("/stroke", points, thickness=0.02, color=_CHOSEN)

    # ------------------------------------------------------------------------------------------------------ drawing

    def draw(self, document: Document, selected: int | None) -> None:
        """Bring the view up to date with a document."""
        with self.client.atomic():
            self._draw_bodies(document)
            self._draw_marks(document, selected)
            self._draw_extras(document)
        self.show(self.time)

    def _draw_bodies(self, document: Document) -> None:
        take = document.take
        samples = () if take is None else take.samples
        motions = [sample.motion for sample in samples]
        chosen = 0 if take is None else take.chosen
        if [body.motion for body in self._bodies] != motions or len(self._bodies) != len(motions):
            self._match_bodies(motions)
        for index, body in enumerate(self._bodies):
            body.offset = _SPACING * (index - chosen)
            body.handle.color = _BODY if index == chosen else _SIBLING
            body.handle.opacity = None if index == chosen else 0.55

    def _match_bodies(self, motions: list[Motion]) -> None:
        while len(self._bodies) > len(motions):
            self._bodies.pop().handle.remove()
        for index, motion in enumerate(motions):
            if index < len(self._bodies):
                self._bodies[index].motion = motion
            else:
                self._bodies.append(_Body(self._add_body(index), motion, 0.0))

    def _add_body(self, index: int) -> Any:
        handle = self._skinned(f"/body/{index}", _BODY, None, solid=True)

        def touched(event: Any) -> None:
            shown = self._bodies[index]
            joints = poses.of(shown.motion).positions[poses.of(shown.motion).index(self.time)]
            moved = joints + np.array([shown.offset, 0.0, 0.0])
            joint = poses.nearest_joint(moved, event.ray_origin, event.ray_direction)
            x, y, z = (float(value) for value in joints[joint])
            self.hands.joint(joint, (x, y, z))

        handle.on_click(touched)
        return handle

    def _draw_marks(self, document: Document, selected: int | None) -> None:
        errors = _errors(document)
        present = {mark.id for mark in document.marks}
        for gone in [id_ for id_ in self._marks if id_ not in present]:
            self._marks.pop(gone)[0].remove()
        for mark in document.marks:
            colour = _CHOSEN if mark.id == selected else errors.get(mark.id, _UNKNOWN)
            old = self._marks.get(mark.id)
            if old is None:
                self._marks[mark.id] = (self._add_mark(mark, colour), mark, colour)
            else:
                handle = old[0]
                handle.position = _shown_at(mark)
                handle.color = colour
                self._marks[mark.id] = (handle, mark, colour)
        self._draw_gizmo(document, selected)

    def _add_mark(self, mark: Mark, colour: tuple[int, int, int]) -> Any:
        handle = self.client.scene.add_icosphere(
            f"/anchor/{mark.id}", _HANDLE, colour, subdivisions=2, position=_shown_at(mark), cast_shadow=False
        )

        handle.on_click(lambda _: self.hands.select(mark.id))
        return handle

    def _draw_gizmo(self, document: Document, selected: int | None) -> None:
        if self._dragging and selected == self._gizmo_mark:
            return
        if self._gizmo is not None and selected != self._gizmo_mark:
            self._gizmo.remove()
            self._gizmo, self._gizmo_mark = None, None
        if selected is None:
            return
        mark = document.mark(selected)
        if self._gizmo is None:
            self._gizmo = self.client.scene.add_transform_controls(
                "/gizmo", scale=0.3, disable_rotations=True, depth_test=False, position=_shown_at(mark)
            )
            self._gizmo_mark = selected

            def moved(event: Any) -> None:
                self._dragging = event.phase != "end"
                x, y, z = (float(value) for value in event.target.position)
                self.hands.drag(selected, (x, mark.position[1] if mark.free[1] else y, z), event.phase)

            self._gizmo.on_update(moved)

        else:
            self._gizmo.position = _shown_at(mark)

    def _draw_extras(self, document: Document) -> None:
        for handle in [*self._extras, *self._contacts]:
            handle.remove()
        self._extras, self._contacts = [], []
        take = document.take
        if take is None:
            return
        motion, scene = take.sample.motion, self.client.scene
        path = motion.joints[:, 0].astype(float).copy()
        path[:, 1] = 0.01
        self._extras.append(scene.add_spline_catmull_rom("/path", path[::2], thickness=0.012, color=_PATH))
        for mark in document.marks:
            self._extras.append(self._ghost(mark.id, motion, mark.at))
        for side in range(4):
            disc = scene.add_icosphere(
                f"/contact/{side}", 0.05, _CONTACT, subdivisions=1, scale=(1.0, 0.25, 1.0), opacity=0.8, visible=False,
                cast_shadow=False,
            )  # fmt: skip
            self._contacts.append(disc)

    def _ghost(self, id_: int, motion: Motion, at: float) -> Any:
        """A see-through body where the anchor's moment is."""
        clip = poses.of(motion)
        handle = self._skinned(f"/ghost/{id_}", _GHOST, opacity=0.15, solid=False)
        _pose(handle, clip, clip.index(at), 0.0)
        return handle

    def _skinned(self, name: str, colour: tuple[int, int, int], opacity: float | None, *, solid: bool) -> Any:
        body = mannequin.build()
        return self.client.scene.add_mesh_skinned(
            name, body.vertices, body.faces,
            bone_wxyzs=np.tile((1.0, 0.0, 0.0, 0.0), (len(JOINTS), 1)), bone_positions=mannequin.rest_joints(),
            skin_weights=poses.skin_weights(), color=colour, opacity=opacity, cast_shadow=solid, receive_shadow=solid,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ playing

    def show(self, seconds: float) -> None:
        """Pose all bodies at a time."""
        self.time = seconds
        with self.client.atomic():
            for body in self._bodies:
                clip = poses.of(body.motion)
                index = clip.index(seconds)
                _pose(body.handle, clip, index, body.offset)
            self._show_contacts(seconds)

    def _show_contacts(self, seconds: float) -> None:
        chosen = next((body for body in self._bodies if body.offset == 0.0), None)
        if chosen is None or not self._contacts:
            return
        motion = chosen.motion
        frame = int(np.clip(round(seconds * motion.fps), 0, motion.frames - 1))
        for disc, joint, rests in zip(self._contacts, (7, 10, 8, 11), motion.contacts[frame]):
            disc.visible = bool(rests)
            if rests:
                x, y, z = (float(value) for value in motion.joints[frame, joint])
                disc.position = (x, max(y - 0.05, 0.0), z)


def _backdrop() -> np.ndarray:
    """A soft grey room, lighter above: bodies and grid stand out against it."""
    shade = np.linspace(206, 168, 64).astype(np.uint8)
    return np.repeat(np.repeat(shade[:, None, None], 64, axis=1), 3, axis=2)


def _pose(handle: Any, clip: poses.Poses, index: int, offset: float) -> None:
    shift = np.array([offset, 0.0, 0.0])
    for bone, place, turn in zip(handle.bones, clip.positions[index], clip.turns[index]):
        bone.position = place + shift
        bone.wxyz = turn


def _errors(document: Document) -> dict[int, tuple[int, int, int]]:
    """Green or red for each mark, by the chosen sample's report; nothing for marks that it was not made for."""
    take = document.take
    if take is None:
        return {}
    lines = {(line.joint, round(line.at, 4), line.target): line.met for line in take.sample.report.anchors}
    colours = {}
    for mark in document.marks:
        anchor = mark.anchor()
        met = lines.get((anchor.joint, round(anchor.at, 4), anchor.position))
        if met is not None:
            colours[mark.id] = _MET if met else _MISSED
    return colours


def _shown_at(mark: Mark) -> Point:
    """A waypoint whose height is free lies on the floor."""
    x, y, z = mark.position
    return (x, _HANDLE if mark.free[1] else y, z)
