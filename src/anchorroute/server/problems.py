"""Errors as clients see them: one envelope, `{"error": {"code", "message", "details"}}`, on every route.

MMCP's own codes are raised as the SDK's `ProtocolError`; that set is closed, so what only this server's routes can
say (no such job, not finished yet) is a `Problem`.
"""

import math
from typing import Any

from motionmcp.errors import ProtocolError
from starlette.responses import JSONResponse

from anchorroute.errors import AnchorRouteError

RETRY = "retry_after_seconds"


class Problem(Exception):  # noqa: N818 - half of them are no errors
    """An answer that is not the one asked for, with its HTTP status."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, details or {}


def problem(error: BaseException) -> Problem:
    """Any error as a problem; what nobody foresaw says nothing of the server's insides."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ProtocolError):
        return Problem(error.status_code, error.code, error.message, error.details)
    if isinstance(error, AnchorRouteError):
        return Problem(400, "invalid_request", str(error), {"kind": type(error).__name__})
    if isinstance(error, OverflowError):
        return Problem(422, "schema_validation", "a number in the request is too large for a 64-bit float")
    return Problem(500, "internal_error", "the server failed; its log says why")


def response(error: BaseException) -> JSONResponse:
    """The envelope as an answer, with Retry-After where waiting helps."""
    told = problem(error)
    headers = {"Retry-After": str(max(1, math.ceil(told.details[RETRY])))} if RETRY in told.details else {}
    if told.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = {"error": {"code": told.code, "message": told.message, "details": told.details}}
    return JSONResponse(content, told.status, headers)


def busy(seconds: float, waiting: int) -> ProtocolError:
    """The queue is full."""
    message = f"{waiting} jobs are waiting already; send this again in {math.ceil(seconds)} s"
    return ProtocolError("rate_limited", message, {RETRY: max(1, math.ceil(seconds)), "waiting": waiting})


def stopping() -> ProtocolError:
    """The server was told to stop before the job was done."""
    return ProtocolError("model_unavailable", "the server is stopping; send this again in a moment", {RETRY: 10})


def too_slow(seconds: float) -> ProtocolError:
    """The job ran into its limit."""
    return ProtocolError(
        "timeout", f"stopped after {seconds:g} s of computing; ask for fewer samples, anchors or steps, or less time"
    )
