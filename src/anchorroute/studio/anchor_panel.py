"""The table of anchors with their residuals, and the editor of the selected one."""

import html
from functools import partial
from typing import Any

from anchorroute.motion.skeleton import JOINTS
from anchorroute.studio.desk import Desk, Panel
from anchorroute.studio.document import Document
from anchorroute.studio.verdicts import findings, reached

_TABLE = "width:100%;font-size:.82em;border-collapse:collapse"
_RED, _GREEN, _AMBER = "#da3633", "#2ea043", "#b26a00"


class AnchorPanel(Panel):
    """The table of anchors with their residuals, and the editor of the selected one."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui = desk.client.gui
        self.table = gui.add_html("")
        self.add = self._button("Add waypoint here", self._waypoint, hint="A pelvis target at the cursor's time")
        self.new_joint = gui.add_dropdown("New target", JOINTS, initial_value="right_wrist")
        self.target = self._button("Add target here", self._target, hint="A target where that joint is now")
        self.chosen = gui.add_dropdown("Anchor", ("none",), initial_value="none")
        self.joint = gui.add_dropdown("Joint", JOINTS, initial_value="pelvis")
        self.at = gui.add_number("At (s)", 0.0, min=0.0, step=0.05)
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
        """Where the pelvis is now, or ahead of the start as far as a walk would be."""
        at = self.desk.player.time
        take = self.desk.session.document.take
        if take is None:
            x, z = 0.0, 1.0 * at
        else:
            x, _, z = map(float, take.sample.motion.at(at)[0])
        edited = self.desk.session.edit("add a waypoint", lambda document: document.waypoint(at, x, z))
        self._select("pelvis", at, edited)

    def _target(self) -> None:
        joint, at = self.new_joint.value, self.desk.player.time
        motion = self.desk.session.motion()
        x, y, z = map(float, motion.at(at)[JOINTS.index(joint)])
        edited = self.desk.session.edit("add a target", lambda document: document.target(at, joint, (x, y, z)))
        self._select(joint, at, edited)

    def _select(self, joint: str, at: float, document: Document) -> None:
        mark = document.find(joint, at)
        self.desk.select(None if mark is None else mark.id)

    def _change(self, **changes: Any) -> None:
        chosen = self.desk.selected
        if chosen is None:
            return
        label = f"change the anchor's {next(iter(changes))}"
        merge = f"{label}-{chosen}"
        self.desk.session.edit(label, lambda document: document.change(chosen, **changes), merge=merge)
        if self.desk.session.document.take is not None:
            self.desk.session.follow(merge)

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
        chosen = self.desk.selected
        names = ("none", *(f"{mark.id} {mark.joint} {mark.at:.2f} s" for mark in document.marks))
        self.table.content = table(document, chosen)
        if self.chosen.options != names:
            self.chosen.options = names
        self._put(self.chosen, next((name for name in names if name.split()[0] == str(chosen)), "none"))
        for widget in self._editor:
            widget.visible = chosen is not None
        self.target.disabled = document.take is None
        if chosen is not None:
            mark = document.mark(chosen)
            self._put(self.joint, mark.joint)
            self._put(self.at, mark.at)
            self._put(self.place, tuple(round(value, 4) for value in mark.position))
            self._put(self.tolerance, round(1000.0 * mark.tolerance, 4))
            for box, value in zip(self.free, mark.free):
                self._put(box, value)


def table(document: Document, selected: int | None) -> str:
    """The anchors with where the body really is, red where it is not met, and what looks infeasible."""
    if not document.marks:
        return (
            "<p style='padding:0 .8em;opacity:.7'>No anchors yet. Click the floor for a waypoint, a joint of the body "
            "for a target there, or hold Shift and draw a path on the floor.</p>"
        )
    lines = reached(document)
    doubtful = {document.marks[index].id for finding in findings(document) for index in finding.anchors}
    rows = []
    for mark in sorted(document.marks, key=lambda mark: mark.at):
        line = lines.get(mark.id)
        error = "-" if line is None else f"{line.error_mm:.2f}"
        colour = "inherit" if line is None else _GREEN if line.met else _RED
        back = "background:rgba(255,176,32,.22)" if mark.id == selected else ""
        doubt = f" <span style='color:{_AMBER}'>&#9888;</span>" if mark.id in doubtful else ""
        rows.append(
            f"<tr style='{back}'><td>{mark.id}</td><td>{mark.at:.2f} s</td><td>{html.escape(mark.joint)}{doubt}</td>"
            f"<td style='color:{colour};text-align:right;font-weight:600'>{error}</td></tr>"
        )
    head = "<tr style='opacity:.6'><td></td><td>time</td><td>joint</td><td style='text-align:right'>mm</td></tr>"
    return f"<div style='padding:0 .8em'><table style='{_TABLE}'>{head}{''.join(rows)}</table></div>{doubts(document)}"


def doubts(document: Document) -> str:
    """What a body hardly does, in words; empty when nothing is doubtful."""
    said = []
    for finding in findings(document):
        text = f"{finding.message}; {finding.suggestion}"
        for index in finding.anchors:
            text = text.replace(f"anchors[{index}]", f"anchor {document.marks[index].id}")
        said.append(f"<p style='color:{_AMBER};margin:.3em 0;font-size:.82em'>&#9888; {html.escape(text)}</p>")
    return f"<div style='padding:0 .8em'>{''.join(said)}</div>" if said else ""
