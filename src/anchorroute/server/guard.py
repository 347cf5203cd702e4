"""What stands before every route: who may ask, how much may be sent and in what time, and whether anybody still waits.

The body is read here, whole and bounded, before a route sees it; from then on the connection is watched, and a client
that leaves takes its request along (the job is cancelled). Without a token only names of this very machine are
accepted as Host, so that no web page can reach the server through a name of its own.
"""

import asyncio
import contextlib
import hmac
import re
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anchorroute.server.limits import Limits
from anchorroute.server.problems import Problem, response

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
#: Answered without a token: whoever watches over the server has none.
_OPEN = frozenset({"/health"})


@dataclass(frozen=True)
class Guard:
    """The outermost layer of the application."""

    app: ASGIApp
    limits: Limits
    token: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, read the body, run the route while somebody waits for it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._admit(scope)
            body = await asyncio.wait_for(self._body(scope, receive), self.limits.body_seconds)
        except asyncio.TimeoutError:  # not the built-in one before Python 3.11
            error = Problem(408, "timeout", f"the body did not arrive within {self.limits.body_seconds:g} s")
            await response(error)(scope, receive, send)
        except Problem as error:
            await response(error)(scope, receive, send)
        else:
            if body is not None:
                await self._answer(body, scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.token is None:
            host = re.sub(r":\d*$", "", headers.get("host", ""))
            if host not in LOOPBACK:
                raise Problem(403, "forbidden", f"this server answers to 127.0.0.1 and localhost, not to {host!r}")
        elif scope["path"] not in _OPEN:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {self.token}".encode()):
                raise Problem(401, "unauthorized", "send the server's token: 'Authorization: Bearer TOKEN'")

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client left before it was sent."""
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            self._small_enough(int(declared[:20]))
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            parts.append(part)
            size += len(part)
            self._small_enough(size)
            if not message.get("more_body", False):
                break
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if size and not (kind == "application/json" or kind.endswith("+json")):
            raise Problem(415, "unsupported_media_type", f"the body is {kind or 'of no type'}; send application/json")
        return b"".join(parts)

    def _small_enough(self, size: int) -> None:
        most = self.limits.request_bytes
        if size > most:
            told: dict[str, Any] = {"max_request_bytes": most}
            raise Problem(413, "payload_too_large", f"a body has at most {most} bytes ({most // 2**20} MiB)", told)

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        left, complete = asyncio.Event(), asyncio.Event()

        async def replay() -> Message:
            if pending:
                return pending.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            left.set()

        async def forward(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                complete.set()

        route = asyncio.ensure_future(self.app(scope, replay, forward))
        listener = asyncio.create_task(listen())
        try:
            await asyncio.wait({route, listener}, return_when=asyncio.FIRST_COMPLETED)
            if not route.done() and not complete.is_set():  # servers call an answered request disconnected, too
                route.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await route
        finally:
            route.cancel()
            listener.cancel()
