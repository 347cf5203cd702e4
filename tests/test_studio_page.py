"""The studio's server and pages, driven over its own protocol by a tab that draws nothing."""

import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

viser = pytest.importorskip("viser", reason="the studio extra is not installed")

import anchorroute as ar  # noqa: E402
from anchorroute.errors import RequestError  # noqa: E402
from anchorroute.studio.app import Studio  # noqa: E402
from anchorroute.studio.document import Document  # noqa: E402
from anchorroute.studio.inbox import Inbox  # noqa: E402
from anchorroute.studio.probe import Tab  # noqa: E402
from anchorroute.studio.session import Session  # noqa: E402

_PORTS = itertools.count(18431)
#: Straight down onto (0.5, 0, 1).
_ABOVE = ((0.5, 3.0, 1.0), (0.0, -1.0, 0.0))


@pytest.fixture(scope="module")
def pipe() -> ar.AnchorRoute:
    return ar.untrained(0)


@pytest.fixture(scope="module")
def studio(pipe: ar.AnchorRoute, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    running = Studio(pipe, port=next(_PORTS), state=tmp_path_factory.mktemp("state"))
    yield running
    running.close()


def ready(tab: Tab) -> bool:
    """The page is built: its last widget and the seat are there."""
    return "Speed" in tab.widgets and bool(tab.storage)


@pytest.fixture
def tab(studio: Studio) -> Iterator[Tab]:
    opened = Tab(studio.server.get_port())
    opened.wait(ready)
    yield opened
    opened.close()


def session_of(studio: Studio, tab: Tab) -> Session:
    return studio.sessions[tab.storage["anchorroute-sessions"].split()[0]]


def until(true: object, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def made(studio: Studio, tab: Tab) -> Session:
    """A generated clip of two seconds with one waypoint, added by a click on the floor."""
    session = session_of(studio, tab)
    tab.change("Seconds", 2.0)
    tab.change("Time (s)", 1.0)
    tab.click("/floor/touch", *_ABOVE)
    until(lambda: session.document.marks)
    tab.press("Generate")
    until(lambda: session.document.take is not None)
    tab.wait(lambda tab: "/body/0" in tab.nodes and "/body/0" in tab.bones)
    return session


def test_a_click_on_the_floor_is_a_waypoint_at_the_cursor(studio: Studio, tab: Tab) -> None:
    session = made(studio, tab)
    (mark,) = session.document.marks
    assert mark.joint == "pelvis" and mark.at == 1.0 and mark.free == (False, True, False)
    assert mark.position[0] == pytest.approx(0.5) and mark.position[2] == pytest.approx(1.0)
    tab.wait(lambda tab: {"/gizmo", f"/anchor/{mark.id}", "/ghost/0", "/path"} <= set(tab.nodes))
    tab.click("/floor/touch", (0.2, 3.0, 1.0), (0.0, -1.0, 0.0))
    until(lambda: session.document.marks[0].position[0] == pytest.approx(0.2))
    assert len(session.document.marks) == 1, "a second click at the same moment moves it"


def test_a_drag_with_its_body_is_one_level_and_the_last_place_counts(studio: Studio, tab: Tab) -> None:
    session = made(studio, tab)
    before, depth = session.document, session.depth[0]
    tab.wait(lambda tab: "/gizmo" in tab.nodes)
    posed = tab.bones["/body/0"]
    tab.drag("/gizmo", [(0.5 + 0.02 * k, 0.0, 1.0) for k in range(1, 11)], pause=0.01)
    until(lambda: session.document.marks[0].position[0] == pytest.approx(0.7))
    until(lambda: session.document.take.sample.report.anchors[0].target[0] == pytest.approx(0.7))
    assert session.wait(60)
    assert session.document.marks[0].position[1] == before.marks[0].position[1], "the height is not the hand's"
    assert session.depth[0] == depth + 1
    tab.wait(lambda tab: tab.bones["/body/0"] > posed)
    tab.press("Undo")
    until(lambda: session.document == before)
    tab.press("Redo")
    until(lambda: session.document.marks[0].position[0] == pytest.approx(0.7))


def test_a_click_on_the_body_is_a_target_for_the_nearest_joint(studio: Studio, tab: Tab) -> None:
    session = made(studio, tab)
    head = session.motion().at(1.0)[15]
    tab.click("/body/0", (float(head[0]), float(head[1]), float(head[2]) + 4.0), (0.0, 0.0, -1.0))
    until(lambda: len(session.document.marks) == 2)
    mark = session.document.marks[1]
    # Which of the joints that the ray passes is nearest depends on the pose; that one's place is the target's.
    joints = {joint: session.motion().at(1.0)[joint] for joint in range(22)}
    assert any(mark.position == pytest.approx([float(v) for v in place], abs=1e-3) for place in joints.values())


def test_a_refusal_is_a_notification_and_the_widget_goes_back(studio: Studio, tab: Tab) -> None:
    session = made(studio, tab)
    tab.change("At (s)", 1.5)
    until(lambda: session.document.marks[0].at == 1.5)
    tab.change("Tolerance (mm)", -1.0)
    tab.wait(lambda tab: tab.notes)
    tab.wait(lambda tab: tab.widgets["Tolerance (mm)"]["value"] == 5.0)
    assert session.document.marks[0].tolerance == 0.005


def test_a_failed_job_is_a_notification(studio: Studio, tab: Tab) -> None:
    session = session_of(studio, tab)
    tab.change("Prompt", "   ")
    until(lambda: session.document.text == "   ")
    tab.press("Generate")
    tab.wait(lambda tab: any("empty" in note for note in tab.notes))


def test_what_a_body_hardly_does_is_said(studio: Studio, tab: Tab) -> None:
    session = session_of(studio, tab)
    for count, (at, far) in enumerate(((0.0, 0.0), (0.5, 9.0)), start=1):
        tab.change("Time (s)", at)
        tab.click("/floor/touch", (far, 3.0, far), (0.0, -1.0, 0.0))
        until(lambda count=count: len(session.document.marks) == count)

    def warned(tab: Tab) -> bool:
        return any("&#9888;" in str(widget.get("content")) for widget in tab.widgets.values())

    tab.wait(warned)


def test_an_export_is_measured_and_sent(studio: Studio, tab: Tab) -> None:
    made(studio, tab)
    tab.press("Export NPZ")
    tab.wait(lambda tab: "motion.npz" in tab.files)
    tab.wait(lambda tab: any("anchors met in the file" in note for note in tab.notes))


def test_playback_poses_the_body_and_waits_for_nothing(studio: Studio, tab: Tab) -> None:
    made(studio, tab)
    tab.choose("Play / Pause")
    counted = tab.bytes
    tab.wait(lambda tab: tab.bytes > counted + 20_000)


def test_two_tabs_are_two_people_and_both_find_their_work_again(studio: Studio) -> None:
    storage: dict[str, str] = {}
    tabs = []
    for _ in range(2):
        known = dict(storage)
        tabs.append(Tab(studio.server.get_port(), storage))
        tabs[-1].wait(lambda tab, known=known: ready(tab) and tab.storage != known)
    one, other = (studio.sessions[id_] for id_ in storage["anchorroute-sessions"].split())
    assert one is not other
    tabs[0].change("Prompt", "the first")
    tabs[1].change("Prompt", "the second")
    until(lambda: {one.document.text, other.document.text} == {"the first", "the second"})
    for tab in tabs:
        tab.close()
    again = []
    for _ in range(2):
        again.append(Tab(studio.server.get_port(), storage))
        again[-1].wait(lambda tab: str(tab.widgets.get("Prompt", {}).get("value")).startswith("the "))
    assert {tab.widgets["Prompt"]["value"] for tab in again} == {"the first", "the second"}
    for tab in again:
        tab.close()


def test_without_the_token_nothing_is_shown(pipe: ar.AnchorRoute, tmp_path: Path) -> None:
    running = Studio(pipe, port=next(_PORTS), token="open sesame", state=tmp_path)
    tab = Tab(running.server.get_port())
    try:
        tab.wait(lambda tab: "Token" in tab.widgets)
        tab.change("Token", "a guess")
        tab.press("Enter")
        tab.wait(lambda tab: any("started" in note for note in tab.notes))
        assert not running.sessions and "Generate" not in tab.widgets and set(tab.nodes) <= {"/WorldAxes"}
        tab.change("Token", "open sesame")
        tab.press("Enter")
        tab.wait(lambda tab: "Generate" in tab.widgets)
        assert len(running.sessions) == 1
    finally:
        tab.close()
        running.close()


def test_a_host_that_others_reach_gets_a_token_and_nonsense_is_refused(pipe: ar.AnchorRoute, tmp_path: Path) -> None:
    running = Studio(pipe, host="0.0.0.0", port=next(_PORTS), state=tmp_path)
    assert running.token and len(running.token) >= 16
    running.close()
    with pytest.raises(RequestError, match="no address"):
        Studio(pipe, host="nowhere at all", state=tmp_path)


def test_an_idle_session_is_freed_and_comes_back_from_its_autosave(pipe: ar.AnchorRoute, tmp_path: Path) -> None:
    running = Studio(pipe, port=next(_PORTS), state=tmp_path, idle_minutes=0.2 / 60)
    storage: dict[str, str] = {}
    tab = Tab(running.server.get_port(), storage)
    tab.wait(ready)
    (session,) = running.sessions.values()
    tab.change("Prompt", "a person sits down")
    until(lambda: session.document.text == "a person sits down")
    tab.close()
    until(lambda: not running.sessions)
    again = Tab(running.server.get_port(), storage)
    again.wait(lambda tab: tab.widgets.get("Prompt", {}).get("value") == "a person sits down")
    again.close()
    running.close()


def test_an_undone_drag_stays_undone_when_its_body_comes_late(pipe: ar.AnchorRoute) -> None:
    session = Session(pipe, Document(seconds=2.0).add(1.0, "pelvis", (0.0, 0.9, 0.4)))
    session.generate()
    assert session.wait(60)
    before = session.document
    adjust = pipe.adjust

    class Late:
        def adjust(self, *given: object, **more: object) -> object:
            sample = adjust(*given, **more)  # type: ignore[arg-type]
            assert session.undo()
            return sample

    session._pipeline = Late()  # type: ignore[assignment]
    session.edit("drag", lambda document: document.change(1, position=(0.1, 0.9, 0.4)), merge="g")
    session.follow("g")
    assert session.wait(60)
    assert session.document == before
    assert session.redo(), "the late body must not cost the redo"
    session.close()


def test_an_inbox_keeps_order_replaces_what_waits_and_survives_faults(caplog: pytest.LogCaptureFixture) -> None:
    inbox, seen = Inbox("test"), []
    with caplog.at_level(logging.CRITICAL, logger="anchorroute.studio.inbox"):
        inbox.post(lambda: time.sleep(0.2))
        inbox.post(lambda: 1 / 0)
        for value in range(5):
            inbox.post(lambda value=value: seen.append(value), "drag")
        inbox.post(lambda: seen.append("end"))
        assert inbox.holds("drag")
        assert inbox.wait(10)
    assert seen == [4, "end"]
    inbox.close()
