"""The panels that ask and show results: prompt and work, takes and their scores, undo and redo.

A panel builds its widgets once and `sync`s them with a document. It changes the session through its own methods and
never touches another panel.
"""

import html
from functools import partial
from typing import Any

import numpy as np
import viser
from viser import uplot

from anchorroute.studio.anchor_panel import doubts
from anchorroute.studio.desk import Desk, Panel
from anchorroute.studio.document import MOST_SAMPLES, SOLVERS, Document
from anchorroute.studio.jobs import Job

_TABLE = "width:100%;font-size:.82em;border-collapse:collapse"
_CURVE = "distance to the anchors, mm"


class PromptPanel(Panel):
    """What is asked for, the buttons that start work, and how far it is."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        gui, session, start = desk.client.gui, desk.session, desk.session.document
        self.text = gui.add_text("Prompt", start.text, multiline=True, hint="What the person does, in English")
        self.seconds = gui.add_slider("Seconds", 2.0, 9.8, 0.2, start.seconds)
        self.seed = gui.add_number("Seed", start.seed, min=0, step=1)
        self.samples = gui.add_slider("Samples", 1, MOST_SAMPLES, 1, start.samples)
        with gui.add_folder("More", expand_by_default=False):
            self.solver = gui.add_dropdown("Solver", SOLVERS, initial_value=start.solver)
            self.strength = gui.add_slider("Adam steps", 0, 500, 50, min(start.strength, 500))
            self.guidance = gui.add_slider("Text guidance", 0.0, 6.0, 0.5, 0.0, hint="0: as chosen on validation")
            self.loop = gui.add_checkbox("Loop", start.loop, hint="The last pose meets the first")
        self.generate = self._button("Generate", session.generate, color="blue", icon=viser.Icon.SPARKLES)
        self.refine = self._button("Refine", session.refine, hint="Solve the shown motion again for the anchors")
        self.cancel = self._button("Cancel", session.cancel, color="red", visible=False)
        self.bar = gui.add_progress_bar(0.0, visible=False)
        self.status = gui.add_markdown("")
        self.warning = gui.add_html("")
        self.curve = gui.add_uplot(
            (np.array([0.0, 1.0]), np.array([1.0, 1.0])),
            (uplot.Series(label="step"), uplot.Series(label="mm", stroke="#2f6fde", width=2)),
            scales={"x": uplot.Scale(time=False), "y": uplot.Scale(distr=3)},
            title=_CURVE,
            height=140,
            visible=False,
        )
        for name, widget in self._plain():
            self._on(widget, partial(self._set, name))
        self._on(self.guidance, lambda value: self._set("guidance", value or None))
        self._told: Job | None = None

    def _plain(self) -> tuple[tuple[str, Any], ...]:
        return (
            ("text", self.text),
            ("seconds", self.seconds),
            ("seed", self.seed),
            ("samples", self.samples),
            ("solver", self.solver),
            ("strength", self.strength),
            ("loop", self.loop),
        )

    def _set(self, name: str, value: Any) -> None:
        self.desk.session.set(name, **{name: value})

    def sync(self, document: Document) -> None:
        """Show what the document says."""
        for name, widget in self._plain():
            value = getattr(document, name)
            self._put(widget, min(value, 500) if name == "strength" else value)
        self._put(self.guidance, document.guidance or 0.0)
        self.strength.visible = document.solver == "adam"
        self.refine.disabled = document.take is None
        self.warning.content = doubts(document)

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
            self.status.content = f"{job.kind} failed"
            if job is not self._told:
                self._told = job
                self.desk.tell(f"{job.kind} failed", job.message)
        else:
            self.status.content = f"{job.kind} {job.state} in {job.seconds:.2f} s"
        curve = list(job.curve)
        if len(curve) > 1:
            errors = np.maximum(np.array(curve), 1e-3)
            self.curve.data = (np.arange(len(errors), dtype=float), errors)
            self.curve.visible = True


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
            self.desk.session.edit("choose a result", lambda document: document.show(id_), merge="choose")

    def sync(self, document: Document) -> None:
        """Scores of the shown result's samples."""
        take = document.take
        names = tuple(f"{one.id} {one.text[:40]}" for one in document.takes) or ("none",)
        numbers = tuple(str(k + 1) for k in range(1 if take is None else len(take.samples)))
        self.scores.content = scores(document)
        if self.history.options != names:
            self.history.options = names
        if self.sample.options != numbers:
            self.sample.options = numbers
        shown = (name for name in names if name.split()[0] == str(document.shown))
        self._put(self.history, next(shown, names[0]))
        self._put(self.sample, "1" if take is None else str(take.chosen + 1))
        self.history.visible = len(document.takes) > 1
        self.sample.visible = self.keep.visible = len(numbers) > 1


class EditPanel(Panel):
    """Undo and redo."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        session = desk.session
        self.undo = self._button("Undo", session.undo, icon=viser.Icon.ARROW_BACK_UP)
        self.redo = self._button("Redo", session.redo, icon=viser.Icon.ARROW_FORWARD_UP)
        self._command("Undo", session.undo, "Z", "cmd/ctrl")
        self._command("Redo", session.redo, "Z", "cmd/ctrl+shift")

    def sync(self, _: Document) -> None:
        """What could be undone and redone."""
        undo, redo = self.desk.session.labels
        self.undo.disabled, self.redo.disabled = undo is None, redo is None
        self.undo.label = "Undo" if undo is None else f"Undo: {undo}"
        self.redo.label = "Redo" if redo is None else f"Redo: {redo}"


def scores(document: Document) -> str:
    """Residual, foot skating and naturalness of every sample."""
    take = document.take
    if take is None:
        return "<p style='padding:0 .8em;opacity:.7'>Nothing generated yet.</p>"
    rows = []
    for k, sample in enumerate(take.samples):
        report = sample.report
        mark = "&#9654; " if k == take.chosen else ""
        rows.append(
            f"<tr><td>{mark}{k + 1}</td><td>{report.met}/{len(report.anchors)}</td><td>{report.worst_mm:.2f}</td>"
            f"<td>{100 * report.skating:.1f} %</td><td>{sample.unnaturalness:.2f}</td></tr>"
        )
    head = "<tr style='opacity:.6'><td></td><td>met</td><td>worst mm</td><td>skating</td><td>unnatural</td></tr>"
    said = f"<p style='margin:.2em 0;opacity:.7;font-size:.82em'>{html.escape(take.text)}</p>"
    return f"<div style='padding:0 .8em'>{said}<table style='{_TABLE}'>{head}{''.join(rows)}</table></div>"
