"""Autosave: the document on disk a moment after every change, whole or not at all, so that kill -9 costs a second."""

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from anchorroute.motion.files import write_checked
from anchorroute.studio import project
from anchorroute.studio.document import Document
from anchorroute.studio.session import Event, Session

log = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9a-f]{16,64}")


def folder() -> Path:
    """Where autosaves lie: ANCHORROUTE_STATE, else the user's state folder."""
    told = os.environ.get("ANCHORROUTE_STATE")
    base = Path(told) if told else Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state"))
    return (base if told else base / "anchorroute") / "studio"


def is_id(text: str) -> bool:
    """Whether it looks like a session id of this server."""
    return _NAME.fullmatch(text) is not None


def path_of(session_id: str, within: Path | None = None) -> Path:
    """The file of a session. Ids are made by the server (hexadecimal); anything else never becomes a path."""
    if not is_id(session_id):
        raise ValueError(f"session id {session_id!r} is not one of this server's")
    return (folder() if within is None else within) / f"{session_id}.json"


def restore(path: Path) -> Document | None:
    """The document of an autosave, None if there is none; a damaged one is an error that names it."""
    return project.from_text(path.read_bytes()) if path.is_file() else None


class Autosave:
    """Writes a session's document in the background; changes that come faster than `delay` are written once.

    `failed` is told when writing begins to fail, which must not end the session.
    """

    def __init__(self, session: Session, path: Path, delay: float = 0.5) -> None:
        self._session, self._path, self._delay = session, path, delay
        self._written: Document | None = None
        self._wake = threading.Condition()
        self._dirty = self._closed = self._failing = False
        self.failed: Callable[[str], None] = lambda _: None
        path.parent.mkdir(parents=True, exist_ok=True)
        session.subscribe(self._on_event)
        self._thread = threading.Thread(target=self._loop, name="studio-autosave", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Write now, if there is anything new."""
        document = self._session.document
        if document is self._written:
            return
        write_checked(self._path, project.to_text(document).encode(), _readable)
        self._written = document

    def close(self) -> None:
        """Write what is left and stop."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._thread.join(timeout=10.0)
        self._attempt(self.flush)

    def _on_event(self, event: Event) -> None:
        if event == "document":
            with self._wake:
                self._dirty = True
                self._wake.notify_all()

    def _loop(self) -> None:
        pause = self._delay
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._dirty or self._closed)
                if self._closed:
                    return
                self._wake.wait_for(lambda: self._closed, pause)
                self._dirty = False
            began = time.monotonic()
            self._attempt(self.flush)
            # A large project is not written without a break while its anchors are dragged.
            pause = max(self._delay, 4.0 * (time.monotonic() - began))

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
            self._failing = False
        except Exception as error:
            log.exception("autosave to %s failed", self._path)
            if not self._failing:
                self._failing = True
                self.failed(f"{type(error).__name__}: {error}; save the project from the Files tab")


def _readable(path: Path) -> None:
    """The bytes are whole; whether they mean a document was known before they were written."""
    if path.stat().st_size == 0:
        raise ValueError("nothing was written")
