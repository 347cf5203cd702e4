"""The studio's server: one session a browser, on stock viser.

It listens on 127.0.0.1 unless told otherwise, and then asks every browser for a token before it shows anything. A
browser that comes back within the idle time finds its session again; after that the session is freed, and its
autosave remains.
"""

import asyncio
import hmac
import ipaddress
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import viser

from anchorroute.errors import AnchorRouteError, RequestError
from anchorroute.pipeline import AnchorRoute
from anchorroute.studio import autosave, poses
from anchorroute.studio.autosave import Autosave
from anchorroute.studio.document import Document
from anchorroute.studio.page import Page
from anchorroute.studio.session import Session

log = logging.getLogger(__name__)

#: Where a browser remembers its sessions, one for each tab that it had open.
_SESSIONS_KEY = "anchorroute-sessions"
_MOST_REMEMBERED = 8


@dataclass
class _Seat:
    """A session with its autosave, who sits there, and when the last one left."""

    session: Session
    saver: Autosave
    client: int | None = None
    left: float = 0.0

    def close(self) -> None:
        self.saver.close()
        self.session.close()


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
        self._pages: dict[int, Page] = {}
        self._closed = threading.Event()
        # The body's mesh takes seconds to make: begun before the first browser asks for it.
        self._mesh = threading.Thread(target=poses.skin_weights, name="studio-mesh", daemon=True)
        self._mesh.start()
        self.server = viser.ViserServer(host=host, port=port, label="AnchorRoute studio", verbose=False)
        self.server.gui.configure_theme(show_logo=False, show_share_button=False, brand_color=(47, 111, 222))
        self.server.gui.main_panel.dock_right()
        self.server.gui.main_panel.set_width(340)
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
            seats, pages = list(self._seats.values()), list(self._pages.values())
            self._seats.clear()
            self._pages.clear()
        for page in pages:
            page.close()
        for seat in seats:
            seat.close()
        self.server.stop()

    # ------------------------------------------------------------------------------------------- browsers come and go

    def _welcome(self, client: viser.ClientHandle) -> None:
        """Runs on the server's pool: asking a browser what it remembers may take a while."""
        if self.token is None:
            self._take_seat(client)
            return
        modal = client.gui.add_modal("This studio asks for its token")
        with modal:
            entry = client.gui.add_text("Token", "")
            button = client.gui.add_button("Enter")

        async def enter(_: Any) -> None:
            if not hmac.compare_digest(entry.value.encode(), (self.token or "").encode()):
                client.add_notification("Wrong token", "It stands where the studio was started.", color="red")
                await asyncio.sleep(1.0)  # guessing shall be slow; this holds up nobody else
            elif not button.disabled:
                button.disabled = True
                modal.close()
                threading.Thread(target=self._take_seat, args=(client,), daemon=True).start()

        button.on_click(enter)

    def _take_seat(self, client: viser.ClientHandle) -> None:
        remembered = self._remembered(client)
        with self._lock:
            # A second tab of one browser is a person of its own: the first session that nobody sits at.
            free = (id_ for id_ in remembered if id_ not in self._seats or self._seats[id_].client is None)
            id_ = next(free, None) or secrets.token_hex(16)
            seat = self._seats.get(id_) or self._new_seat(id_)
            seat.client = client.client_id
        others = [one for one in remembered if one != id_]
        client.local_storage.set_item(_SESSIONS_KEY, " ".join([id_, *others][:_MOST_REMEMBERED]))
        self._mesh.join()
        page = Page(client, seat.session)
        seat.saver.failed = partial(page.desk.tell, "Autosave failed")
        with self._lock:
            self._pages[client.client_id] = page
        if client.client_id not in self.server.get_clients() or self._closed.is_set():
            self._farewell(client)  # it went while its page was built

    def _remembered(self, client: viser.ClientHandle) -> list[str]:
        try:
            known = client.local_storage.get_item(_SESSIONS_KEY, timeout=10.0)
        except (TimeoutError, RuntimeError):  # a browser that stores nothing: a new session each time
            return []
        return [one for one in (known or "").split()[:_MOST_REMEMBERED] if autosave.is_id(one)]

    def _new_seat(self, id_: str) -> _Seat:
        path = autosave.path_of(id_, self._state)
        try:
            document = autosave.restore(path)
        except AnchorRouteError as error:
            log.warning("%s cannot be restored: %s", path, error)
            path.replace(path.with_suffix(".damaged"))
            document = None
        session = Session(self._pipeline, document or Document())
        seat = self._seats[id_] = _Seat(session, Autosave(session, path))
        return seat

    def _farewell(self, client: viser.ClientHandle) -> None:
        with self._lock:
            page = self._pages.pop(client.client_id, None)
            for seat in self._seats.values():
                if seat.client == client.client_id:
                    seat.client, seat.left = None, time.monotonic()
        if page is not None:
            page.close()

    def _sweep(self) -> None:
        """Free what nobody came back to."""
        while not self._closed.wait(min(30.0, max(self._idle / 4, 0.05))):
            now = time.monotonic()
            with self._lock:
                gone = [
                    id_ for id_, seat in self._seats.items() if seat.client is None and now - seat.left > self._idle
                ]
                seats = [self._seats.pop(id_) for id_ in gone]
            for seat in seats:
                seat.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise RequestError(
            f"host {host!r} is no address; give 127.0.0.1, or another one together with a token"
        ) from None
