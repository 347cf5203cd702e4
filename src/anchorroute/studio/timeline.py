"""The timeline: anchors and foot contacts over time, the cursor, playback and its keys."""

from typing import Any

import numpy as np

from anchorroute.motion.motion import Motion
from anchorroute.studio.desk import Desk, Panel
from anchorroute.studio.document import Document
from anchorroute.studio.inbox import Act
from anchorroute.studio.verdicts import reached

_START, _BACK, _PLAY, _ON, _END = "Start", "-1", "Play / Pause", "+1", "End"
_RED, _GREEN, _GREY, _AMBER = "#da3633", "#2ea043", "#6e7681", "#ffb020"


class TimePanel(Panel):
    """The time cursor with the anchors' moments on it, and playback."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui = desk.client.gui
        self.strip = gui.add_html("")
        self.slider = gui.add_slider("Time (s)", 0.0, 9.8, 0.05, 0.0)
        self.buttons = gui.add_button_group("", (_START, _BACK, _PLAY, _ON, _END))
        self._on(self.slider, lambda value: self._scrub(float(value)))
        acts: dict[str, Act] = {
            _START: lambda: self._scrub(0.0),
            _BACK: lambda: self._nudge(-0.05),
            _PLAY: desk.player.toggle,
            _ON: lambda: self._nudge(0.05),
            _END: lambda: self._scrub(desk.player.last),
        }

        async def pressed(event: Any) -> None:
            desk.later(acts[event.target.value])

        self.buttons.on_click(pressed)
        keys = (("space", _PLAY), ("arrowright", _ON), ("arrowleft", _BACK), ("home", _START), ("end", _END))
        for key, label in keys:
            self._command(f"Timeline: {label}", acts[label], key)
        self._told = -1.0
        self._length = 0.0

    def options(self) -> None:
        """How playback goes; called where these widgets belong."""
        gui, player = self.desk.client.gui, self.desk.player
        repeat = gui.add_checkbox("Repeat", True)
        speed = gui.add_dropdown("Speed", ("1x", "0.5x", "0.25x", "2x"), initial_value="1x")
        self._on(repeat, lambda value: setattr(player, "loop", bool(value)))
        self._on(speed, lambda value: setattr(player, "speed", float(value[:-1])))

    def _scrub(self, seconds: float) -> None:
        self.desk.player.pause()
        self.desk.player.seek(seconds)

    def _nudge(self, by: float) -> None:
        self._scrub(self.desk.player.time + by)

    def sync(self, document: Document) -> None:
        """The clip's length and its anchors' moments."""
        if self._length != document.last_time:
            self._length = document.last_time
            self.desk.player.set_length(document.last_time)
            # The handle's value is put within the new bounds before they shrink.
            self._put(self.slider, min(self.slider.value, document.last_time))
            self.slider.max = document.last_time
        self.strip.content = strip(document, self.desk.selected)

    def show(self, seconds: float) -> None:
        """Follow the cursor, ten times a second: the slider is for people."""
        if abs(seconds - self._told) >= 0.1 or not self.desk.player.playing:
            self._told = seconds
            self._put(self.slider, round(min(seconds, self.slider.max), 2))


def strip(document: Document, selected: int | None) -> str:
    """A ruler of seconds, a diamond for each anchor in the colour of its residual, and when each foot rests.

    The margins put it above the slider's track: to its left stands the label, to its right the number.
    """
    last = document.last_time
    lines, take = reached(document), document.take
    parts = [_text(100.0 * second / last, f"{second}") for second in range(int(last) + 1)]
    if take is not None:
        motion = take.sample.motion
        for row, (feet, colour) in enumerate((((0, 1), "#5b8fd6"), ((2, 3), "#e39a5b"))):
            for start, stop in resting(motion, feet):
                left, width = 100.0 * start / last, 100.0 * (stop - start) / last
                parts.append(_bar(left, width, 32 + 7 * row, colour))
    for mark in document.marks:
        line = lines.get(mark.id)
        colour = _GREY if line is None else _GREEN if line.met else _RED
        parts.append(_diamond(100.0 * mark.at / last, _AMBER if mark.id == selected else colour))
    return (
        "<div style='position:relative;height:46px;margin:0 66px 0 121px;font-size:10px;"
        f"border-bottom:1px solid rgba(128,128,128,.35)'>{''.join(parts)}</div>"
    )


def resting(motion: Motion, feet: tuple[int, int]) -> list[tuple[float, float]]:
    """The spans in which a foot rests, heel or toe."""
    rests = np.concatenate([[False], motion.contacts[:, feet[0]] | motion.contacts[:, feet[1]], [False]])
    edges = np.flatnonzero(rests[1:] != rests[:-1])
    return [(float(a) / motion.fps, float(b - 1) / motion.fps) for a, b in zip(edges[::2], edges[1::2])]


def _text(left: float, text: str) -> str:
    return f"<span style='position:absolute;left:{left:.2f}%;top:0;opacity:.6'>{text}</span>"


def _bar(left: float, width: float, top: int, colour: str) -> str:
    place = f"left:{left:.2f}%;width:{width:.2f}%;top:{top}px"
    return f"<span style='position:absolute;{place};height:5px;border-radius:2px;background:{colour}'></span>"


def _diamond(left: float, colour: str) -> str:
    place = f"left:calc({left:.2f}% - 5px);top:17px"
    return f"<span style='position:absolute;{place};width:9px;height:9px;rotate:45deg;background:{colour}'></span>"
