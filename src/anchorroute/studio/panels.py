"""The panels around the stage, each a small class: it builds its widgets once and `sync`s them with a document.

A panel changes the session through its own methods; it never touches another panel. `_quiet` tells a widget's change
by the program from one by the person, so that syncing does not answer itself with an edit.
"""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import viser
from viser import uplot

from anchorroute.errors import AnchorRouteError
from anchorroute.feasibility import check
from anchorroute.motion.skeleton import JOINTS
from anchorroute.studio.document import MOST_SAMPLES, SOLVERS, Document
from anchorroute.studio.jobs import Job
from anchorroute.studio.player import Player
from anchorroute.studio.session import Session

Act = Callable[[], object]


@dataclass
class Desk:
    """What panels share: the browser, its session, the cursor and the selected anchor."""

    client: viser.ClientHandle
    session: Session
    player: Player
    selected: int | None = None
    select: Callable[[int | None], None] = lambda _: None

    def attempt(self, act: Act) -> None:
        """Do what a person asked; a refusal is shown, not raised."""
        try:
            act()
        except AnchorRouteError as error:
            self.client.add_notification("That does not work", str(error), color="red", auto_close_seconds=8.0)


class Panel:
    """What all panels have."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._silent = False

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def _on(self, handle: Any, act: Callable[[Any], object]) -> None:
        """Call `act` with the new value when a person changes the widget."""

        def changed(event: Any) -> None:
            if not self._silent and event.client is not None:
                self.desk.attempt(lambda: act(event.target.value))

        handle.on_update(changed)

    def _button(self, label: str, act: Act, **look: Any) -> Any:
        button = self.desk.client.gui.add_button(label, **look)
        button.on_click(lambda _: self.desk.attempt(act))
        return button

    def _command(self, label: str, act: Act, hotkey: Any, modifier: Any = None) -> None:
        """A key, which is also an entry of the command palette."""

        def trigger(_: Any) -> None:
            self.desk.attempt(act)

        self.desk.client.gui.add_command(label, hotkey=hotkey, modifier=modifier).on_trigger(trigger)


class PromptPanel(Panel):
    """What is asked for, the buttons that start work, and how far it is."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui, session, start = desk.client.gui, desk.session, desk.session.document
        self.text = gui.add_text("Prompt", start.text, multiline=True, hint="What the person does, in English")
        self.seconds = gui.add_slider("Seconds", 2.0, 9.8, 0.2, start.seconds)
        self.seed = gui.add_number("Seed", start.seed, min=0, step=1)
        self.samples = gui.add_slider("Samples", 1, MOST_SAMPLES, 1, start.samples)
        self.generate = self._button("Generate", session.generate, color="blue", icon=viser.Icon.SPARKLES)
        self.refine = self._button("Refine", session.refine, hint="Solve the shown motion again for the anchors")
        self.cancel = self._button("Cancel", session.cancel, color="red", visible=False)
        self.bar = gui.add_progress_bar(0.0, visible=False)
        self.status = gui.add_markdown("")
        self.curve = gui.add_uplot(
            (np.array([0.0, 1.0]), np.array([1.0, 1.0])),
            (uplot.Series(label="step"), uplot.Series(label="mm", stroke="#2f6fde", width=2)),
            scales={"x": uplot.Scale(time=False), "y": uplot.Scale(distr=3)},
            title="distance to the anchors",
            height=140,
            visible=False,
        )
        with gui.add_folder("More", expand_by_default=False):
            self.solver = gui.add_dropdown("Solver", SOLVERS, initial_value=start.solver)
            self.strength = gui.add_slider("Adam steps", 0, 500, 50, min(start.strength, 500))
            self.guidance = gui.add_slider("Text guidance", 0.0, 6.0, 0.5, 0.0, hint="0: as chosen on validation")
            self.loop = gui.add_checkbox("Loop", start.loop, hint="The last pose meets the first")
        plain = {"text": self.text, "seconds": self.seconds, "seed": self.seed, "samples": self.samples,
                 "solver": self.solver, "strength": self.strength, "loop": self.loop}  # fmt: skip
        for name, widget in plain.items():
            self._on(widget, partial(self._set, name))
        self._on(self.guidance, lambda value: self._set("guidance", value or None))

    def _set(self, name: str, value: Any) -> None:
        try:
            self.desk.session.set(name, **{name: value})
        except AnchorRouteError:
            self.sync(self.desk.session.document)
            raise

    def sync(self, document: Document) -> None:
        """Show what the document says."""
        with self._quiet():
            self.text.value, self.seconds.value, self.seed.value = document.text, document.seconds, document.seed
            self.samples.value, self.solver.value = document.samples, document.solver
            self.strength.value, self.loop.value = min(document.strength, 500), document.loop
            self.guidance.value = document.guidance or 0.0
            self.strength.visible = document.solver == "adam"
        self.refine.disabled = document.take is None

    def sync_job(self, job: Job | None) -> None:
        """Show how the work goes."""
        busy = job is not None and not job.over
        self.cancel.visible = self.bar.visible = busy
        if job is None:
            return
        self.bar.value = 100.0 * job.share
        if busy:
            self.status.content = f"{job.kind}: {job.stage or 'waiting'} {job.done}/{job.total}"
        elif job.state == "failed":
            self.status.content = f"**{job.kind} failed:** {html.escape(job.message)}"
        else:
            self.status.content = f"{job.kind} {job.state} in {job.seconds:.2f} s"
        if len(job.curve) > 1:
            errors = np.maximum(np.array(job.curve), 1e-3)
            self.curve.data = (np.arange(len(errors), dtype=float), errors)
            self.curve.visible = True


class TimePanel(Panel):
    """The time cursor with the anchors' moments on it, and playback."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui = desk.client.gui
        self.slider = gui.add_slider("Time (s)", 0.0, 9.8, 0.05, 0.0)
        self.play = self._button("Play", self._toggle, icon=viser.Icon.PLAYER_PLAY)
        self.loop = gui.add_checkbox("Repeat", True)
        self.speed = gui.add_dropdown("Speed", ("1x", "0.5x", "0.25x", "2x"), initial_value="1x")
        self._on(self.slider, lambda value: self._scrub(float(value)))
        self._on(self.loop, lambda value: setattr(desk.player, "loop", bool(value)))
        self._on(self.speed, lambda value: setattr(desk.player, "speed", float(value[:-1])))
        self._told = -1.0
        keys: tuple[tuple[str, Any, Act], ...] = (
            ("Play or pause", "space", self._toggle),
            ("Next frame", "arrowright", lambda: self._nudge(0.05)),
            ("Previous frame", "arrowleft", lambda: self._nudge(-0.05)),
            ("To the start", "home", lambda: self._scrub(0.0)),
            ("To the end", "end", lambda: self._scrub(99.0)),
        )
        for label, key, act in keys:
            self._command(label, act, key)

    def _toggle(self) -> None:
        self.desk.player.toggle()
        self.play.label = "Pause" if self.desk.player.playing else "Play"

    def _scrub(self, seconds: float) -> None:
        self.desk.player.pause()
        self.play.label = "Play"
        self.desk.player.seek(seconds)

    def _nudge(self, by: float) -> None:
        self._scrub(self.desk.player.time + by)

    def sync(self, document: Document) -> None:
        """The clip's length and its anchors' moments."""
        with self._quiet():
            self.slider.max = document.last_time
        self.desk.player.set_length(document.last_time)

    def show(self, seconds: float) -> None:
        """Follow the cursor, ten times a second: the slider is for people."""
        if abs(seconds - self._told) >= 0.1 or not self.desk.player.playing:
            self._told = seconds
            with self._quiet():
                self.slider.value = round(min(seconds, self.slider.max), 2)


class AnchorPanel(Panel):
    """The table of anchors with their residuals, and the editor of the selected one."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui = desk.client.gui
        self.table = gui.add_html("")
        self.add = self._button("Add waypoint here", self._waypoint, hint="A pelvis target at the cursor's time")
        self.chosen = gui.add_dropdown("Anchor", ("none",), initial_value="none")
        self.joint = gui.add_dropdown("Joint", JOINTS, initial_value="pelvis")
        self.at = gui.add_number("Time (s)", 0.0, min=0.0, step=0.05)
        self.place = gui.add_vector3("x, y, z (m)", (0.0, 0.0, 0.0), step=0.01)
        self.free = [gui.add_checkbox(f"{axis} free", False) for axis in "xyz"]
        self.tolerance = gui.add_number("Tolerance (mm)", 5.0, min=0.1, step=0.5)
        self.twin = self._button("Duplicate at the cursor", self._duplicate)
        self.drop = self._button("Delete", self._delete, color="red")
        self._editor = [self.joint, self.at, self.place, *self.free, self.tolerance, self.twin, self.drop]
        self._on(self.chosen, self._choose)
        self._on(self.joint, lambda value: self._change(joint=value))
        self._on(self.at, lambda value: self._change(at=float(value)))
        self._on(self.place, lambda value: self._change(position=tuple(map(float, value))))
        self._on(self.tolerance, lambda value: self._change(tolerance=float(value) / 1000.0))
        for axis, box in enumerate(self.free):
            self._on(box, partial(self._free, axis))
        self._command("Delete the anchor", self._delete, "delete")
        self._command("Add waypoint", self._waypoint, "I")

    def _waypoint(self) -> None:
        document, at = self.desk.session.document, self.desk.player.time
        take = document.take
        x, y, z = (0.0, 0.95, 0.0) if take is None else map(float, take.sample.motion.at(at)[0])
        self._add(at, "pelvis", (x, y, z))

    def _add(self, at: float, joint: str, place: tuple[float, float, float]) -> None:
        edited = self.desk.session.edit("add an anchor", lambda document: document.add(at, joint, place))
        self.desk.select(edited.marks[-1].id)

    def _change(self, **changes: Any) -> None:
        chosen = self.desk.selected
        if chosen is not None:
            label = f"change the anchor's {next(iter(changes))}"
            self.desk.session.edit(
                label, lambda document: document.change(chosen, **changes), merge=f"{label}-{chosen}"
            )
            self._follow(label, chosen)

    def _follow(self, label: str, chosen: int) -> None:
        if self.desk.session.document.take is not None:
            self.desk.session.follow(f"{label}-{chosen}")

    def _free(self, axis: int, value: bool) -> None:
        chosen = self.desk.selected
        if chosen is not None:
            free = list(self.desk.session.document.mark(chosen).free)
            free[axis] = value
            self._change(free=tuple(free))

    def _duplicate(self) -> None:
        chosen, at = self.desk.selected, self.desk.player.time
        if chosen is not None:
            edited = self.desk.session.edit("duplicate", lambda document: document.duplicate(chosen, at))
            self.desk.select(edited.marks[-1].id)

    def _delete(self) -> None:
        chosen = self.desk.selected
        if chosen is not None:
            self.desk.select(None)
            self.desk.session.edit("delete the anchor", lambda document: document.remove(chosen))

    def _choose(self, label: str) -> None:
        self.desk.select(None if label == "none" else int(label.split(maxsplit=1)[0]))

    def sync(self, document: Document) -> None:
        """Table and editor."""
        ids = {mark.id for mark in document.marks}
        if self.desk.selected not in ids:
            self.desk.selected = None
        names = [f"{mark.id} {mark.joint} {mark.at:.2f} s" for mark in document.marks]
        with self._quiet():
            self.table.content = table(document, self.desk.selected)
            self.chosen.options = ("none", *names)
            chosen = next((name for name in names if name.split()[0] == str(self.desk.selected)), "none")
            self.chosen.value = chosen
            for widget in self._editor:
                widget.visible = self.desk.selected is not None
            if self.desk.selected is not None:
                mark = document.mark(self.desk.selected)
                self.joint.value, self.at.value, self.place.value = mark.joint, mark.at, mark.position
                self.tolerance.value = 1000.0 * mark.tolerance
                for box, value in zip(self.free, mark.free):
                    box.value = value


class TakesPanel(Panel):
    """Samples side by side with their scores; earlier results."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui = desk.client.gui
        self.scores = gui.add_html("")
        self.sample = gui.add_dropdown("Sample", ("1",), initial_value="1")
        self.keep = self._button("Keep this one", self._keep)
        self.history = gui.add_dropdown("Result", ("none",), initial_value="none")
        self._on(self.sample, lambda value: self._choose_sample(int(value) - 1))
        self._on(self.history, self._choose_take)

    def _keep(self) -> None:
        take = self.desk.session.document.take
        if take is not None:
            self.desk.session.edit("keep one sample", lambda document: document.keep(take.id, take.chosen))

    def _choose_sample(self, index: int) -> None:
        take = self.desk.session.document.take
        if take is not None:
            self.desk.session.edit("choose a sample", lambda document: document.choose(take.id, index), merge="choose")

    def _choose_take(self, label: str) -> None:
        if label != "none":
            id_ = int(label.split(maxsplit=1)[0])
            take = next(take for take in self.desk.session.document.takes if take.id == id_)
            self.desk.session.edit(
                "choose a result", lambda document: document.choose(id_, take.chosen), merge="choose"
            )

    def sync(self, document: Document) -> None:
        """Scores of the shown result's samples."""
        take = document.take
        names = [f"{one.id} {one.text[:40]}" for one in document.takes]
        with self._quiet():
            self.scores.content = scores(document)
            self.history.options = ("none", *names) if not names else tuple(names)
            self.history.value = next(
                (n for n in names if n.split()[0] == str(document.shown)), self.history.options[0]
            )
            self.sample.options = tuple(str(k + 1) for k in range(1 if take is None else len(take.samples)))
            self.sample.value = "1" if take is None else str(take.chosen + 1)
            self.sample.visible = self.keep.visible = take is not None and len(take.samples) > 1


class EditPanel(Panel):
    """Undo and redo."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        session = desk.session
        self.undo = self._button("Undo", session.undo, icon=viser.Icon.ARROW_BACK_UP)
        self.redo = self._button("Redo", session.redo, icon=viser.Icon.ARROW_FORWARD_UP)
        self._command("Undo", session.undo, "Z", "cmd/ctrl")
        self._command("Redo", session.redo, "Z", "cmd/ctrl+shift")
        self.sync(session.document)

    def sync(self, _: Document) -> None:
        """What could be undone and redone."""
        undo, redo = self.desk.session.labels
        self.undo.disabled, self.redo.disabled = undo is None, redo is None
        self.undo.label = "Undo" if undo is None else f"Undo: {undo}"
        self.redo.label = "Redo" if redo is None else f"Redo: {redo}"


def table(document: Document, selected: int | None) -> str:
    """The anchors with where the body really is, red where it is not met, and what looks infeasible."""
    if not document.marks:
        return (
            "<p style='padding:0 .8em;opacity:.7'>No anchors yet. Click the floor for a waypoint, a joint of the body "
            "for a target there, or hold Shift and draw a path on the floor.</p>"
        )
    take = document.take
    lines = [] if take is None else take.sample.report.anchors
    reached = {(line.joint, round(line.at, 4), line.target): line for line in lines}
    rows = []
    for mark in sorted(document.marks, key=lambda mark: mark.at):
        anchor = mark.anchor()
        line = reached.get((anchor.joint, round(anchor.at, 4), anchor.position))
        error = "-" if line is None else f"{line.error_mm:.2f}"
        colour = "inherit" if line is None else "#2ea043" if line.met else "#da3633"
        back = "background:rgba(255,176,32,.22)" if mark.id == selected else ""
        rows.append(
            f"<tr style='{back}'><td>{mark.id}</td><td>{mark.at:.2f} s</td><td>{html.escape(mark.joint)}</td>"
            f"<td style='color:{colour};text-align:right;font-weight:600'>{error}</td></tr>"
        )
    head = "<tr style='opacity:.6'><td></td><td>time</td><td>joint</td><td style='text-align:right'>mm</td></tr>"
    doubts = "".join(
        f"<p style='color:#b26a00;margin:.3em 0'>{html.escape(str(finding))}</p>"
        for finding in check(document.anchor_set(), document.seconds)
    )
    style = "width:100%;font-size:.82em;border-collapse:collapse"
    return f"<div style='padding:0 .8em'><table style='{style}'>{head}{''.join(rows)}</table>{doubts}</div>"


def scores(document: Document) -> str:
    """Residual, foot skating and naturalness of every sample."""
    take = document.take
    if take is None:
        return "<p style='padding:0 .8em;opacity:.7'>Nothing generated yet.</p>"
    rows = []
    for k, sample in enumerate(take.samples):
        report = sample.report
        mark = "&#9654;" if k == take.chosen else ""
        rows.append(
            f"<tr><td>{mark}{k + 1}</td><td>{report.met}/{len(report.anchors)}</td><td>{report.worst_mm:.2f}</td>"
            f"<td>{100 * report.skating:.1f} %</td><td>{sample.unnaturalness:.2f}</td></tr>"
        )
    head = "<tr style='opacity:.6'><td></td><td>met</td><td>worst mm</td><td>skating</td><td>unnatural</td></tr>"
    style = "width:100%;font-size:.82em;border-collapse:collapse"
    return f"<div style='padding:0 .8em'><table style='{style}'>{head}{''.join(rows)}</table></div>"


def planar(document: Document, at: float, x: float, z: float) -> Document:
    """A waypoint on the floor: its height is the motion's business."""
    made = document.add(at, "pelvis", (x, 0.95, z))
    last = made.marks[-1]
    return replace(made, marks=(*made.marks[:-1], replace(last, free=(False, True, False))))
