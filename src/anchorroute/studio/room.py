"""The room that a stage stands in: light, floor, grid and camera, and what a hand does on the floor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import viser

from anchorroute.studio import poses

_STROKE = (255, 160, 20)
#: Points of a stroke are kept when they are so far apart, in metres.
_STROKE_STEP = 0.04
_FLOOR = 25.0


def furnish(
    client: viser.ClientHandle,
    clicked: Callable[[float, float], None],
    drawn: Callable[[list[tuple[float, float]]], None],
) -> None:
    """Set the room up; a click on the floor and a stroke with Shift held come back in metres (x, z)."""
    scene = client.scene
    scene.set_up_direction("+y")
    _light(scene)
    scene.set_background_image(_backdrop(), "png")
    scene.add_grid(
        "/floor/grid", 40.0, 40.0, plane="xz", cell_size=0.5, section_size=1.0, cell_thickness=0.8,
        section_thickness=1.3, cell_color=(176, 181, 190), section_color=(138, 144, 156), infinite_grid=True,
        fade_distance=22.0, shadow_opacity=0.28,
    )  # fmt: skip
    floor = scene.add_mesh_simple(
        "/floor/touch",
        np.array([[-_FLOOR, 0, -_FLOOR], [_FLOOR, 0, -_FLOOR], [_FLOOR, 0, _FLOOR], [-_FLOOR, 0, _FLOOR]]),
        np.array([[0, 2, 1], [0, 3, 2]]),
        opacity=0.0,
        side="double",
        cast_shadow=False,
        receive_shadow=False,
        position=(0.0, -0.004, 0.0),
    )

    async def touched(event: Any) -> None:
        place = poses.on_floor(event.ray_origin, event.ray_direction)
        if place is not None:
            clicked(*place)

    floor.on_click(touched)
    floor.on_drag("left", modifier="shift")(_Stroke(client, drawn).follow)
    client.camera.position = (2.7, 1.8, 4.3)
    client.camera.look_at = (0.0, 0.5, 0.8)  # the timeline lies over the lowest part of the view


def _light(scene: viser.SceneApi) -> None:
    """One soft sun with a shadow, a fill from behind and the sky; viser's own lights bleach a light body."""
    scene.configure_default_lights(enabled=False)
    scene.configure_environment_map(None)
    scene.add_light_directional("/light/sun", intensity=2.3, cast_shadow=True, position=(2.0, 5.0, 3.0))
    scene.add_light_directional("/light/fill", intensity=0.7, color=(214, 226, 255), position=(-4.0, 2.5, -3.0))
    scene.add_light_hemisphere("/light/sky", intensity=1.1, ground_color=(150, 146, 140))


def _backdrop() -> np.ndarray:
    """A soft grey room, lighter above: bodies and grid stand out against it."""
    shade = np.linspace((236, 239, 244), (206, 211, 220), 64).astype(np.uint8)
    return np.repeat(shade[:, None, :], 64, axis=1)


class _Stroke:
    """A line that is drawn on the floor with Shift held."""

    def __init__(self, client: viser.ClientHandle, drawn: Callable[[list[tuple[float, float]]], None]) -> None:
        self._client, self._drawn = client, drawn
        self._points: list[tuple[float, float]] = []
        self._line: Any = None

    async def follow(self, event: Any) -> None:
        """The pointer lies on a plane that faces the eye, so go on from there to the floor."""
        eye = np.asarray(self._client.camera.position)
        x, y, z = (float(value) for value in np.asarray(event.end_position) - eye)
        place = poses.on_floor((float(eye[0]), float(eye[1]), float(eye[2])), (x, y, z))
        if event.phase == "start":
            self._points = []
        if place is not None and (not self._points or _apart(self._points[-1], place)):
            self._points.append(place)
        if event.phase == "end":
            if self._line is not None:
                self._line.remove()
                self._line = None
            self._drawn(self._points)
        elif len(self._points) > 1:
            points = np.array([(x, 0.02, z) for x, z in self._points])
            self._line = self._client.scene.add_spline_catmull_rom("/stroke", points, thickness=0.02, color=_STROKE)


def _apart(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return float(np.hypot(a[0] - b[0], a[1] - b[1])) > _STROKE_STEP


def raised(x: float, z: float) -> tuple[float, float, float]:
    """A place just above the floor, where it does not flicker against the grid."""
    return (x, 0.008, z)
