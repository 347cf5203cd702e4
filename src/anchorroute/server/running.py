"""The server as a process: its address, its token, and a clean end.

SIGTERM and Ctrl-C close the door at once: new requests get 503, waiting jobs are told to come again, the running batch
is finished within the limits' grace, and only then the process ends.
"""

import asyncio
import ipaddress
import secrets
from types import FrameType

import uvicorn

from anchorroute.pipeline import AnchorRoute
from anchorroute.server.app import Server
from anchorroute.server.guard import LOOPBACK
from anchorroute.server.limits import Limits


def needs_token(host: str) -> bool:
    """Whether others than this machine's users can reach the address."""
    if host in LOOPBACK:
        return False
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return True


class Running(uvicorn.Server):
    """Uvicorn that tells the queue when it is to end."""

    def __init__(self, server: Server, host: str, port: int) -> None:
        limits = server.limits
        super().__init__(
            uvicorn.Config(
                server.application, host=host, port=port, log_level="info", server_header=False,
                limit_concurrency=limits.connections, timeout_keep_alive=15,
                timeout_graceful_shutdown=int(limits.grace_seconds) + 5,
            )
        )  # fmt: skip
        self._queue = server.queue
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: no more jobs."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._queue.stop)
        super().handle_exit(sig, frame)


def chosen_token(host: str, token: str | None) -> str | None:
    """The token given; one made up where the address needs one."""
    return token or (secrets.token_urlsafe(24) if needs_token(host) else None)


def serve(pipe: AnchorRoute, host: str, port: int, *, token: str | None = None, limits: Limits | None = None) -> None:
    """Answer requests until a signal ends it."""
    Running(Server(pipe, limits=limits, token=token), host, port).run()
