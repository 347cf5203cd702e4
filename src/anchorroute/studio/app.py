"""The studio's server: one session a browser, on stock viser.

It listens on 127.0.0.1 unless told otherwise, and then asks every browser for a token before it shows anything. A
browser that comes back within the idle time finds its session again; after that the session is freed, and its
autosave remains.
"""

import hmac
import io
import ipaddress
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import viser
from PIL import Image

from anchorroute.errors import AnchorRouteError, RequestError
from anchorroute.pipeline import AnchorRoute
from anchorroute.studio import autosave, panels, poses
from anchorroute.studio.autosave import Autosave
from anchorroute.studio.document import Document, Point
from anchorroute.studio.files import FilePanel
from anchorroute.studio.panels import AnchorPanel, Desk, EditPanel, PromptPanel, TakesPanel, TimePanel
from anchorroute.studio.player import Player
from anchorroute.studio.session import Event, Session
from anchorroute.studio.stage import Hands, Stage

log = logging.getLogger(__name__)

_SESSION_KEY = "anchorroute-session"


@dataclass
class _Seat:
    """A session with its autosave, and when a browser last sat there."""

    session: Session
    saver: Autosave
    left: float | None = None


class Studio:
    """The running server."""

    def __init__(
        self,
        pipeline: AnchorRoute,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        token: str | None = None,
        idle_minutes: float = 60.0,
        state: Path | None = None,
    ) -> None:
        if not _is_loopback(host) and not token:
            token = secrets.token_urlsafe(16)
        self.token = token
        self._pipeline, self._state = pipeline, autosave.folder() if state is None else state
        self._idle = 60.0 * idle_minutes
        self._lock = threading.Lock()
        self._seats: dict[str, _Seat] = {}
        self._views: dict[int, _View] = {}
        self._closed = threading.Event()
        self.server = viser.ViserServer(host=host, port=port, label="AnchorRoute studio", verbose=False)
        self.server.gui.configure_theme(
            control_layout="collapsible", control_width="large", show_logo=False, show_share_button=False,
            brand_color=(47, 111, 222),
        )  # fmt: skip
        self.server.on_client_connect(self._welcome)
        self.server.on_client_disconnect(self._farewell)
        threading.Thread(target=self._sweep, name="studio-sweep", daemon=True).start()

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host = self.server.get_host()
        return f"http://{'localhost' if host == '0.0.0.0' else host}:{self.server.get_port()}"

    @property
    def sessions(self) -> dict[str, Session]:
        """The sessions in memory."""
        with self._lock:
            return {id_: seat.session for id_, seat in self._seats.items()}

    def close(self) -> None:
        """Save everything and stop."""
        self._closed.set()
        with self._lock:
            seats, views = list(self._seats.values()), list(self._views.values())
            self._seats.clear()
        for view in views:
            view.close()
        for seat in seats:
            seat.saver.close()
            seat.session.close()
        self.server.stop()

    def _welcome(self, client: viser.ClientHandle) -> None:
        if self.token is None:
            self._seat(client)
            return
        modal = client.gui.add_modal("This studio asks for its token")
        with modal:
            entry = client.gui.add_text("Token", "")
            button = client.gui.add_button("Enter")

        def enter(_: Any) -> None:
            if hmac.compare_digest(entry.value.encode(), (self.token or "").encode()):
                modal.close()
                self._seat(client)
            else:
                time.sleep(1.0)  # guessing shall be slow
                client.add_notification("Wrong token", "It stands where the studio was started.", color="red")

        button.on_click(enter)

    def _seat(self, client: viser.ClientHandle) -> None:
        id_ = self._known_id(client)
        with self._lock:
            seat = self._seats.get(id_)
            if seat is None or (seat.left is None and any(view.id == id_ for view in self._views.values())):
                # A second tab of one browser is a person of its own.
                if seat is not None:
                    id_ = secrets.token_hex(16)
                seat = self._new_seat(id_)
            seat.left = None
            client.local_storage.set_item(_SESSION_KEY, id_)
            self._views[client.client_id] = _View(id_, client, seat.session)

    def _known_id(self, client: viser.ClientHandle) -> str:
        try:
            known = client.local_storage.get_item(_SESSION_KEY, timeout=5.0)
            autosave.path_of(known or "", self._state)
        except (TimeoutError, ValueError):
            return secrets.token_hex(16)
        return known or secrets.token_hex(16)

    def _new_seat(self, id_: str) -> _Seat:
        path = autosave.path_of(id_, self._state)
        try:
            document = autosave.restore(path)
        except AnchorRouteError as error:
            log.warning("%s cannot be restored: %s", path, error)
            path.replace(path.with_suffix(".damaged"))
            document = None
        session = Session(self._pipeline, document or Document())
        seat = _Seat(session, Autosave(session, path))
        self._seats[id_] = seat
        return seat

    def _farewell(self, client: viser.ClientHandle) -> None:
        with self._lock:
            view = self._views.pop(client.client_id, None)
            if view is not None and view.id in self._seats:
                self._seats[view.id].left = time.monotonic()
        if view is not None:
            view.close()

    def _sweep(self) -> None:
        """Free what nobody came back to."""
        while not self._closed.wait(min(30.0, max(self._idle / 4, 0.05))):
            now = time.monotonic()
            with self._lock:
                gone = [id_ for id_, seat in self._seats.items() if seat.left and now - seat.left > self._idle]
                seats = [self._seats.pop(id_) for id_ in gone]
            for seat in seats:
                seat.saver.close()
                seat.session.close()


class _View:
    """One browser's page: stage and panels around a session."""

    def __init__(self, id_: str, client: viser.ClientHandle, session: Session) -> None:
        self.id, self.client, self.session = id_, client, session
        self.player = Player(self._show, poses.DISPLAY_FPS)
        self.desk = Desk(client, session, self.player, select=self._select)
        self.stage = Stage(client, Hands(self._floor, self._joint, self._select, self._drag, self._path))
        self._drawing = threading.RLock()
        self._closed = False
        self.stage.furnish()
        self._build()
        session.subscribe(self._on_event)
        self._draw()

    def _build(self) -> None:
        gui = self.client.gui
        gui.set_panel_label("AnchorRoute studio")
        self.edits = EditPanel(self.desk)
        tabs = gui.add_tab_group()
        with tabs.add_tab("Motion"):
            self.prompt = PromptPanel(self.desk)
            self.takes = TakesPanel(self.desk)
        with tabs.add_tab("Anchors"):
            self.anchors = AnchorPanel(self.desk)
        with tabs.add_tab("Files"):
            self.files = FilePanel(self.desk, self._picture)
        timeline = gui.add_panel()
        with timeline.add_tab("Timeline"):
            self.times = TimePanel(self.desk)
        timeline.dock_left()

    def _on_event(self, event: Event) -> None:
        if self._closed:
            return
        if event == "document":
            self._draw()
        else:
            self.prompt.sync_job(self.session.job)

    def _draw(self) -> None:
        with self._drawing:
            document = self.session.document
            for panel in (self.edits, self.prompt, self.takes, self.anchors, self.times):
                panel.sync(document)  # type: ignore[attr-defined]
            self.stage.draw(document, self.desk.selected)

    def _show(self, seconds: float) -> None:
        with self._drawing:
            if not self._closed:
                self.stage.show(seconds)
                self.times.show(seconds)

    def _select(self, id_: int | None) -> None:
        self.desk.selected = id_
        if id_ is not None:
            self.player.pause()
            self.player.seek(self.session.document.mark(id_).at)
        self._draw()

    def _floor(self, x: float, z: float) -> None:
        def add() -> None:
            at = self.player.time
            edited = self.session.edit("add a waypoint", lambda document: panels.planar(document, at, x, z))
            self._select(edited.marks[-1].id)

        self.desk.attempt(add)

    def _joint(self, joint: int, place: Point) -> None:
        def add() -> None:
            at = self.player.time
            edited = self.session.edit("add a target", lambda document: document.add(at, joint, place))
            self._select(edited.marks[-1].id)

        self.desk.attempt(add)

    def _drag(self, id_: int, place: Point, phase: str) -> None:
        def move() -> None:
            gesture = f"drag-{id_}"
            self.session.edit("drag an anchor", lambda document: document.change(id_, position=place), merge=gesture)
            if self.session.document.take is not None:
                self.session.follow(gesture)

        self.desk.attempt(move)

    def _path(self, stroke: list[tuple[float, float]]) -> None:
        def draw() -> None:
            start, stop = self.player.time, self.session.document.last_time
            begin = start if stop - start > 1.0 else 0.0
            self.session.edit("draw a path", lambda document: document.draw(stroke, begin, stop))

        self.desk.attempt(draw)

    def _picture(self) -> bytes:
        pixels = self.client.get_render(height=720, width=1280, timeout=20.0)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="PNG")
        return buffer.getvalue()

    def close(self) -> None:
        """The browser has gone."""
        self._closed = True
        self.session.unsubscribe(self._on_event)
        self.player.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise RequestError(
            f"host {host!r} is no address; give 127.0.0.1, or another one together with a token"
        ) from None
