"""One person's session: a document with its history, and the work that runs in the background for it.

Plain data behind one lock; no GUI is imported. Whoever shows it subscribes and draws `document` again when told.
Edits come from the GUI's threads, results from the worker's: both go through `edit`, so undo covers all alike.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from anchorroute.errors import AnchorRouteError
from anchorroute.motion.motion import Motion
from anchorroute.pipeline import AnchorRoute
from anchorroute.result import Sample, Step
from anchorroute.studio.document import Document
from anchorroute.studio.history import History
from anchorroute.studio.jobs import Job, Runner

Event = Literal["document", "job", "history"]


class Session:
    """Document, history and jobs of one browser."""

    def __init__(self, pipeline: AnchorRoute, document: Document | None = None, *, levels: int = 300) -> None:
        self._pipeline = pipeline
        self._lock = threading.RLock()
        self._history: History[Document] = History(document or Document(), levels)
        self._listeners: list[Callable[[Event], None]] = []
        self._runner = Runner(lambda: self._tell("job"))
        self._turns = 0  # how often undo or redo went elsewhere

    # ------------------------------------------------------------------------------------------------------ reading

    @property
    def document(self) -> Document:
        """The current document; immutable, so it may be read without the lock."""
        with self._lock:
            return self._history.state

    def motion(self) -> Motion:
        """The motion on stage."""
        take = self.document.take
        if take is None:
            raise AnchorRouteError("there is no motion yet; press Generate first")
        return take.sample.motion

    @property
    def labels(self) -> tuple[str | None, str | None]:
        """What undo would take back and what redo would do again."""
        with self._lock:
            return self._history.undo_label, self._history.redo_label

    @property
    def depth(self) -> tuple[int, int]:
        """Levels of undo and of redo."""
        with self._lock:
            return self._history.depth

    @property
    def job(self) -> Job | None:
        """The job that runs, or the last one."""
        return self._runner.job

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Be told, on whatever thread it happens, that the document, the history or the job changed."""
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[Event], None]) -> None:
        """No longer be told."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]

    # ------------------------------------------------------------------------------------------------------ editing

    def edit(self, label: str, change: Callable[[Document], Document], merge: str | None = None) -> Document:
        """Apply a change to the current document as one undo level. A refused change leaves everything as it was."""
        with self._lock:
            changed = change(self._history.state)
            if changed == self._history.state:
                return changed
            self._history.push(changed, label, merge)
        self._tell("document")
        return changed

    def set(self, label: str, **values: Any) -> Document:
        """Change plain fields: prompt, seed, length and so on. Typing in one field is one level."""
        return self.edit(label, lambda document: replace(document, **values), merge=f"set-{sorted(values)}")

    def seal(self) -> None:
        """The end of a gesture: what comes next is another undo level."""
        with self._lock:
            self._history.seal()

    def undo(self) -> bool:
        """One level back."""
        return self._step(self._history.undo)

    def redo(self) -> bool:
        """One level forward."""
        return self._step(self._history.redo)

    def _step(self, move: Callable[[], bool]) -> bool:
        with self._lock:
            moved = move()
            self._turns += moved
        if moved:
            self._tell("document")
        return moved

    def replace_document(self, document: Document, label: str) -> None:
        """Another document in the same history: opening a project can be undone."""
        self.edit(label, lambda _: document)

    # ------------------------------------------------------------------------------------------------------ working

    def generate(self) -> Job:
        """Draw new samples in the background."""
        document = self.document

        def work(job: Job) -> None:
            result = self._pipeline(
                document.text,
                document.anchor_set(),
                seconds=document.seconds,
                seed=document.seed,
                samples=document.samples,
                guidance=document.guidance,
                solver=_solver(document),
                on_step=_watch(job),
                cancel=job.cancelled,
            )
            self.edit("generate", lambda now: now.with_take(result.samples, document.text))

        return self._runner.start("generate", work)

    def refine(self) -> Job:
        """Solve the sample on stage again, from where it stands, for the anchors as they are now."""
        return self._adjust("refine", merge=None)

    def follow(self, gesture: str) -> Job:
        """The body follows a dragged anchor: one undo level with the drag; of several requests the last one runs."""
        return self._adjust("follow", merge=gesture)

    def _adjust(self, kind: str, merge: str | None) -> Job:
        document = self.document
        take = document.take
        if take is None:
            raise AnchorRouteError("there is no motion yet; press Generate first")
        index = take.chosen
        turns = self._turns

        def apply(latest: Document, sample: Sample) -> Document:
            # Undone meanwhile: the body would not belong to the anchors, and redo would be lost.
            return latest if turns != self._turns else latest.with_sample(take.id, index, sample)

        def work(job: Job) -> None:
            # Read here: while earlier requests ran, the anchor may have moved on.
            now = self.document
            anchors = now.anchor_set()
            current = next((t for t in now.takes if t.id == take.id), take)
            sample = self._pipeline.adjust(
                current.samples[min(index, len(current.samples) - 1)],
                anchors,
                solver=_solver(now),
                on_step=_watch(job),
                cancel=job.cancelled,
            )
            self.edit("move the body", lambda latest: apply(latest, sample), merge)

        return self._runner.start(kind, work)

    def import_motion(self, motion: Motion, name: str) -> Job:
        """A motion from elsewhere as the sample on stage, meeting the anchors there are."""
        anchors = self.document.anchor_set()

        def work(job: Job) -> None:
            result = self._pipeline.refine(motion, anchors, on_step=_watch(job), cancel=job.cancelled)
            self.edit(f"import {name}", lambda now: now.with_import(result.samples, motion.text or name))

        return self._runner.start("import", work)

    def cancel(self) -> None:
        """Stop the running job; what was there before stays."""
        self._runner.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Until nothing runs; False when the time is over first."""
        return self._runner.wait(timeout)

    def close(self) -> None:
        """Stop the worker; the session must not be used after it."""
        self._runner.close()
        with self._lock:
            self._listeners.clear()

    def _tell(self, event: Event) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event)


def _solver(document: Document) -> Any:
    if document.solver != "adam":
        return document.solver
    from anchorroute.routesolver import Adam

    return Adam(steps=document.strength)


def _watch(job: Job) -> Callable[[Step], None]:
    def on_step(step: Step) -> None:
        job.progress(step.stage, step.done, step.total, step.error_mm)

    return on_step
