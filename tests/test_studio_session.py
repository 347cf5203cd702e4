"""Session state without a browser: random edits against a model, jobs, projects, autosave."""

import itertools
import multiprocessing
import threading
import time
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import anchorroute as ar
from anchorroute.errors import AnchorError, AnchorRouteError, FormatError, RequestError
from anchorroute.studio import project
from anchorroute.studio.autosave import Autosave, path_of, restore
from anchorroute.studio.document import FPS, Document, along
from anchorroute.studio.history import History
from anchorroute.studio.session import Session


@pytest.fixture(scope="module")
def pipe() -> ar.AnchorRoute:
    return ar.untrained(0)


class Editing(RuleBasedStateMachine):
    """A session against the plainest model there is: a list of states and a cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(None, Document())  # type: ignore[arg-type]
        self.states = [self.session.document]
        self.cursor = 0

    def done(self) -> None:
        if self.session.document != self.states[self.cursor]:
            self.states = [*self.states[: self.cursor + 1], self.session.document]
            self.cursor += 1

    def attempt(self, label: str, change: object) -> None:
        before = self.session.document
        try:
            self.session.edit(label, change)  # type: ignore[arg-type]
        except AnchorRouteError:
            assert self.session.document == before
        self.done()

    @initialize(seconds=st.sampled_from([3.0, 6.0, 9.8]))
    def start(self, seconds: float) -> None:
        self.session.set("length", seconds=seconds)
        self.session.seal()
        self.done()

    @rule(at=st.floats(0, 12), joint=st.integers(0, 21), x=st.floats(-5, 5), z=st.floats(-5, 5))
    def add(self, at: float, joint: int, x: float, z: float) -> None:
        self.attempt("add", lambda document: document.add(at, joint, (x, 1.0, z)))

    @precondition(lambda self: self.session.document.marks)
    @rule(data=st.data(), x=st.floats(-5, 5), at=st.floats(0, 9))
    def move(self, data: st.DataObject, x: float, at: float) -> None:
        mark = data.draw(st.sampled_from(self.session.document.marks))
        self.attempt("move", lambda document: document.change(mark.id, position=(x, 0.9, x), at=at))

    @precondition(lambda self: self.session.document.marks)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        mark = data.draw(st.sampled_from(self.session.document.marks))
        self.attempt("remove", lambda document: document.remove(mark.id))

    @rule(seconds=st.floats(0, 12))
    def lengthen(self, seconds: float) -> None:
        self.session.seal()
        self.attempt("length", lambda document: replace(document, seconds=seconds))

    @rule(text=st.text(max_size=8))
    def prompt(self, text: str) -> None:
        self.attempt("prompt", lambda document: replace(document, text=text))

    @rule()
    def undo(self) -> None:
        assert self.session.undo() == (self.cursor > 0)
        self.cursor = max(self.cursor - 1, 0)

    @rule()
    def redo(self) -> None:
        assert self.session.redo() == (self.cursor < len(self.states) - 1)
        self.cursor = min(self.cursor + 1, len(self.states) - 1)

    @invariant()
    def agree(self) -> None:
        assert self.session.document == self.states[self.cursor]
        assert self.session.depth == (self.cursor, len(self.states) - 1 - self.cursor)

    def teardown(self) -> None:
        self.session.close()


Editing.TestCase.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)
TestEditing = Editing.TestCase


def test_a_drag_is_one_level_and_a_hundred_levels_are_kept() -> None:
    history = History(0, limit=150)
    for value in range(1, 11):
        history.push(value, "drag", merge="drag-1")
    assert history.depth == (1, 0) and history.undo() and history.state == 0
    for value in range(200):
        history.push(value, "step")
    assert history.depth == (150, 0)
    assert all(history.undo() for _ in range(150)) and not history.undo()


def test_a_sealed_level_is_not_merged_into() -> None:
    history = History(0)
    history.push(1, "drag", merge="a")
    history.seal()
    history.push(2, "drag", merge="a")
    assert history.depth == (2, 0)


def test_anchors_stay_on_the_clip_and_apart() -> None:
    document = Document(seconds=3.0).add(9.0, "pelvis", (0, 1, 0))
    assert document.marks[0].at == document.last_time == 59 / FPS
    with pytest.raises(AnchorError):
        document.add(9.0, "pelvis", (1, 1, 0))
    with pytest.raises(AnchorError):
        replace(document, seconds=2.0)
    with pytest.raises(RequestError):
        replace(document, seconds=30.0)


def test_a_freed_coordinate_remembers_its_value() -> None:
    document = Document().add(1.0, "left wrist", (0.5, 1.2, 0.3))
    freed = document.change(1, free=(False, True, False))
    assert freed.anchor_set().anchors[0].position == (0.5, None, 0.3)
    assert freed.change(1, free=(False, False, False)) == document


def test_a_drawn_path_is_walked_at_even_speed() -> None:
    corner = [(0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (2.0, 2.0)]
    points = along(corner, 0.0, 4.0)
    assert points[0] == (0.0, 0.0, 0.0) and points[-1] == pytest.approx((4.0, 2.0, 2.0))
    steps = [abs(b[1] - a[1]) + abs(b[2] - a[2]) for a, b in itertools.pairwise(points)]
    assert np.allclose(steps, 4.0 / (len(points) - 1))
    document = Document().draw(corner, 0.5, 4.0)
    assert all(mark.anchor().position[1] is None for mark in document.marks)
    with pytest.raises(AnchorError):
        along([(0.0, 0.0), (0.0, 0.01)], 0.0, 1.0)


def generated(pipe: ar.AnchorRoute) -> Session:
    session = Session(pipe, Document(seconds=2.0, samples=2).add(1.0, "pelvis", (0.0, 0.9, 0.4)))
    session.generate()
    assert session.wait(60)
    assert session.job is not None and session.job.state == "done", session.job
    return session


def test_generate_drag_and_undo(pipe: ar.AnchorRoute) -> None:
    session = generated(pipe)
    take = session.document.take
    assert take is not None and len(take.samples) == 2
    for x in (0.05, 0.1):
        session.edit("drag", lambda d, x=x: d.change(1, position=(x, 0.9, 0.4)), merge="drag-1")
        session.follow("drag-1")
    assert session.wait(60)
    followed = session.document
    assert followed.take is not None and followed.take.sample is not take.sample
    assert followed.take.sample.report.anchors[0].target == (0.1, 0.9, 0.4)
    session.seal()
    assert session.undo() and session.document.take == take and session.document.marks[0].position == (0.0, 0.9, 0.4)
    assert session.redo() and session.document == followed
    session.close()


def test_a_failed_job_says_why_and_changes_nothing(pipe: ar.AnchorRoute) -> None:
    session = Session(pipe, Document(text="   "))
    session.generate()
    assert session.wait(60)
    assert session.job is not None and session.job.state == "failed" and "empty" in session.job.message
    assert session.document.takes == ()
    with pytest.raises(AnchorRouteError, match="Generate first"):
        session.refine()
    session.close()


def test_cancel_leaves_the_document_alone(pipe: ar.AnchorRoute) -> None:
    started = threading.Event()

    class Slow:
        def __call__(self, text: str, anchors: object = None, **options: object) -> object:
            def on_step(step: object) -> None:
                started.set()

            return pipe(text, anchors, **{**options, "on_step": on_step})  # type: ignore[call-overload]

    session = Session(Slow(), Document(seconds=2.0))  # type: ignore[arg-type]
    before = session.document
    session.generate()
    assert started.wait(30)
    session.cancel()
    assert session.wait(30)
    assert session.job is not None and session.job.state in ("cancelled", "done")
    assert session.job.state == "done" or session.document == before
    session.close()


def test_keep_one_and_undo(pipe: ar.AnchorRoute) -> None:
    session = generated(pipe)
    take = session.document.take
    assert take is not None
    session.edit("keep", lambda document: document.keep(take.id, 1))
    kept = session.document.take
    assert kept is not None and kept.samples == (take.samples[1],)
    assert session.undo() and session.document.take == take
    session.close()


def test_a_project_comes_back_and_can_be_dragged_on(pipe: ar.AnchorRoute) -> None:
    session = generated(pipe)
    text = project.to_text(session.document)
    opened = project.from_text(text)
    assert replace(opened, takes=()) == replace(session.document, takes=())
    assert opened.take is not None and session.document.take is not None
    for old, new in zip(session.document.take.samples, opened.take.samples, strict=True):
        assert old.motion == new.motion and old.report.anchors == new.report.anchors
    again = Session(pipe, opened)
    again.edit("move", lambda document: document.change(1, position=(0.1, 0.9, 0.4)))
    again.refine()
    assert again.wait(60)
    assert again.job is not None and again.job.state == "done", again.job
    session.close()
    again.close()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "anchorroute-project", "version": 9}', "x" * 10])
def test_what_is_no_project_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        project.from_text(text)


def test_a_damaged_project_is_refused(pipe: ar.AnchorRoute) -> None:
    session = generated(pipe)
    text = project.to_text(session.document)
    session.close()
    for damage in (text.replace('"arrays": "', '"arrays": "!!', 1), text.replace('"marks"', '"marcs"', 1)):
        with pytest.raises(FormatError):
            project.from_text(damage)


def test_two_sessions_are_independent(pipe: ar.AnchorRoute) -> None:
    one, other = Session(pipe), Session(pipe)
    one.set("prompt", text="a person jumps")
    assert other.document.text != "a person jumps" and not other.undo()
    one.close()
    other.close()


def test_session_ids_never_become_other_paths(tmp_path: Path) -> None:
    assert path_of("0123456789abcdef", tmp_path).parent == tmp_path
    for wrong in ("../x", "a/b", "", "ABCDEF0123456789"):
        with pytest.raises(ValueError, match="not one of this server's"):
            path_of(wrong, tmp_path)


def _edit_for_ever(path: Path, going: Event) -> None:
    session = Session(None, Document())  # type: ignore[arg-type]
    Autosave(session, path, delay=0.02)
    for step in itertools.count():
        session.edit("prompt", lambda document, step=step: replace(document, text=f"step {step}"))
        if step == 20:
            going.set()
        time.sleep(0.005)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="a forked process is killed")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_autosave_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "0123456789abcdef.json"
    fork = multiprocessing.get_context("fork")
    going = fork.Event()
    child = fork.Process(target=_edit_for_ever, args=(path, going), daemon=True)
    child.start()
    assert going.wait(60)
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.join(60)
    document = restore(path)
    assert document is not None and document.text.startswith("step")
    assert restore(tmp_path / "fedcba9876543210.json") is None


def test_autosave_writes_the_last_change(tmp_path: Path) -> None:
    session = Session(None, Document())  # type: ignore[arg-type]
    autosave = Autosave(session, tmp_path / "0123456789abcdef.json", delay=0.01)
    session.set("prompt", text="the end")
    autosave.close()
    session.close()
    saved = restore(tmp_path / "0123456789abcdef.json")
    assert saved is not None and saved.text == "the end"


def test_an_autosave_that_fails_says_so_once_and_goes_on(tmp_path: Path) -> None:
    session = Session(None, Document())  # type: ignore[arg-type]
    folder = tmp_path / "state"
    autosave = Autosave(session, folder / "0123456789abcdef.json", delay=0.01)
    told: list[str] = []
    autosave.failed = told.append
    folder.rmdir()
    for text in ("one", "two"):
        session.set("prompt", text=text)
        session.seal()
        for _ in range(100):
            if told:
                break
            threading.Event().wait(0.05)
    assert len(told) == 1 and "save the project" in told[0]
    folder.mkdir()
    session.set("prompt", text="three")
    autosave.close()
    session.close()
    saved = restore(folder / "0123456789abcdef.json")
    assert saved is not None and saved.text == "three"
