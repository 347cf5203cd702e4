"""One browser's page: the stage and the panels around a session."""

import io
from collections.abc import Callable
from functools import partial

import viser
from PIL import Image

from anchorroute.motion.skeleton import JOINTS
from anchorroute.studio import poses
from anchorroute.studio.anchor_panel import AnchorPanel
from anchorroute.studio.desk import Desk
from anchorroute.studio.document import Document, Point
from anchorroute.studio.files import FilePanel
from anchorroute.studio.inbox import Inbox
from anchorroute.studio.panels import EditPanel, PromptPanel, TakesPanel
from anchorroute.studio.player import Player
from anchorroute.studio.session import Event, Session
from anchorroute.studio.stage import Hands, Stage
from anchorroute.studio.timeline import TimePanel


class Page:
    """Connects widgets and stage with the session. Everything is drawn on the inbox's thread, in order."""

    def __init__(self, client: viser.ClientHandle, session: Session) -> None:
        self.client, self.session = client, session
        self.inbox = Inbox("studio-page")
        self.player = Player(lambda _: self.inbox.post(self._show, "show"), poses.DISPLAY_FPS)
        self.desk = Desk(client, session, self.player, self.inbox, select=self._select, redraw=self._redraw)
        self.stage = Stage(
            client,
            Hands(self._floor, self._joint, self._sample, self._clicked, self._drag, self._path),
        )
        self._gesture = 0
        self.stage.furnish()
        self._build()
        session.subscribe(self._on_event)
        self._redraw()
        self.inbox.post(self._sync_job, "job")

    def _build(self) -> None:
        gui = self.client.gui
        gui.set_panel_label("AnchorRoute studio")
        tabs = gui.add_tab_group()
        with tabs.add_tab("Motion"):
            self.prompt = PromptPanel(self.desk)
            self.takes = TakesPanel(self.desk)
        with tabs.add_tab("Anchors"):
            self.anchors = AnchorPanel(self.desk)
        with tabs.add_tab("Files"):
            self.files = FilePanel(self.desk, self._picture)
        self.edits = EditPanel(self.desk)
        timeline = gui.add_panel()
        with timeline.add_tab("Timeline"):
            self.times = TimePanel(self.desk)
        with timeline.add_tab("Playback"):
            self.times.options()
        timeline.float(x=12, y=-12, width=560, height=172)

    # ------------------------------------------------------------------------------------------------------ drawing

    def _on_event(self, event: Event) -> None:
        if event == "job":
            self.inbox.post(self._sync_job, "job")
        else:
            self._redraw()

    def _redraw(self) -> None:
        self.inbox.post(self._draw, "draw")

    def _sync_job(self) -> None:
        self.prompt.sync_job(self.session.job)

    def _draw(self) -> None:
        document = self.session.document
        if self.desk.selected not in {mark.id for mark in document.marks}:
            self.desk.selected = None
        self.edits.sync(document)
        self.prompt.sync(document)
        self.takes.sync(document)
        self.anchors.sync(document)
        self.times.sync(document)
        self.stage.draw(document, self.desk.selected)

    def _show(self) -> None:
        seconds = self.player.time
        self.stage.show(seconds)
        self.times.show(seconds)

    # ------------------------------------------------------------------------------------- what a person does there

    def _select(self, id_: int | None) -> None:
        self.desk.selected = id_
        if id_ is not None:
            self.player.pause()
            self.player.seek(self.session.document.mark(id_).at)
        self._redraw()

    def _clicked(self, id_: int) -> None:
        self.desk.later(partial(self._select, id_))

    def _floor(self, x: float, z: float) -> None:
        self.desk.later(lambda: self._put("add a waypoint", "pelvis", lambda now, at: now.waypoint(at, x, z)))

    def _joint(self, joint: int, place: Point) -> None:
        name = JOINTS[joint]
        self.desk.later(lambda: self._put("add a target", name, lambda now, at: now.target(at, name, place)))

    def _put(self, label: str, joint: str, change: Callable[[Document, float], Document]) -> None:
        at = self.player.time
        mark = self.session.edit(label, lambda document: change(document, at)).find(joint, at)
        self._select(None if mark is None else mark.id)

    def _sample(self, index: int) -> None:
        def choose() -> None:
            take = self.session.document.take
            if take is not None:
                self.session.edit("choose a sample", lambda document: document.choose(take.id, index), merge="choose")

        self.desk.later(choose)

    def _drag(self, id_: int, place: Point, phase: str) -> None:
        """Every move is an edit; those of one gesture, and the body that follows, are one undo level."""
        if phase == "start":
            self._gesture += 1
            return
        gesture = f"drag-{id_}-{self._gesture}"

        def move() -> None:
            mark = self.session.document.mark(id_)
            held = (place[0], mark.position[1] if mark.free[1] else place[1], place[2])
            if held == mark.position:
                return
            self.session.edit("drag an anchor", lambda document: document.change(id_, position=held), merge=gesture)
            if self.session.document.take is not None:
                self.session.follow(gesture)

        self.desk.later(move, gesture)
        if phase == "end":
            self._redraw()

    def _path(self, stroke: list[tuple[float, float]]) -> None:
        def draw() -> None:
            start, stop = self.player.time, self.session.document.last_time
            begin = start if stop - start > 1.0 else 0.0
            self.session.edit("draw a path", lambda document: document.draw(stroke, begin, stop))

        self.desk.later(draw)

    def _picture(self) -> bytes:
        pixels = self.client.get_render(height=720, width=1280, timeout=60.0)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="PNG")
        return buffer.getvalue()

    def close(self) -> None:
        """The browser has gone."""
        self.session.unsubscribe(self._on_event)
        self.player.close()
        self.inbox.close()
