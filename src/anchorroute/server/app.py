"""The application: MMCP's two routes from the SDK, this package's own under `/v1`, one queue, one guard.

`POST /v1/generate` and `/v1/refine` answer as `?answer=` says: `json` (the default) waits and describes the result,
`file` waits and hands over the best sample's file, `job` answers at once with a job to watch, fetch or cancel.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from motionmcp.errors import ProtocolError
from motionmcp.server import build_app
from starlette.exceptions import HTTPException
from starlette.requests import Request

from anchorroute import __version__, anchor_file
from anchorroute.errors import AnchorRouteError
from anchorroute.pipeline import AnchorRoute
from anchorroute.result import Result
from anchorroute.server import documentation
from anchorroute.server.bodies import GenerateBody, RefineBody
from anchorroute.server.files import MEDIA, Format, Shape, Workspace, Written
from anchorroute.server.guard import Guard
from anchorroute.server.limits import Limits
from anchorroute.server.mmcp import QueuedModel
from anchorroute.server.problems import Problem, response
from anchorroute.server.queue import Job, Queue
from anchorroute.server.work import Work

Answer = Annotated[Literal["json", "file", "job"], Query(description="wait for a description, for the file, or not")]
JobId = Annotated[str, Path(max_length=64)]
SampleIndex = Annotated[int, Query(ge=0, le=63, description="which sample; 0 is the best")]


class Server:
    """What the routes share. `application` is the ASGI app."""

    def __init__(self, pipe: AnchorRoute, *, limits: Limits | None = None, token: str | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self.queue = Queue(pipe, self.limits)
        self.model = f"anchorroute-{pipe.models.name.split('/')[-1] or 'model'}"
        self.began = time.monotonic()
        self.workspace: Workspace | None = None
        self.application = self._application(token)

    def _application(self, token: str | None) -> FastAPI:
        app = build_app(QueuedModel(self.queue, self.model), title="AnchorRoute", description=documentation.ABOUT)
        app.version = __version__
        app.router.lifespan_context = self._lifespan
        for error in (Problem, ProtocolError, AnchorRouteError, OverflowError):
            app.add_exception_handler(error, _told)
        app.add_exception_handler(RequestValidationError, _invalid)
        app.add_exception_handler(HTTPException, _unrouted)
        app.add_exception_handler(Exception, _told)
        _routes(app, self)
        app.openapi = lambda: documentation.openapi(app)  # type: ignore[method-assign]
        app.add_middleware(Guard, limits=self.limits, token=token)
        return app

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.workspace = Workspace()
        self.queue.start()
        try:
            yield
        finally:
            await self.queue.close()
            self.workspace.close()

    def write(self, result: Result, index: int, shape: Shape) -> Written:
        """One sample of a result as a file's bytes."""
        if index >= len(result.samples):
            raise Problem(404, "unknown_sample", f"there are samples 0 to {len(result.samples) - 1}, not {index}")
        if self.workspace is None:
            raise RuntimeError("the server is not running: enter its lifespan first")
        return self.workspace.write(result.samples[index], result.anchors, shape)

    async def take(self, work: Work, shape: Shape, answer: str) -> Response:
        """Queue the work and answer as asked."""

        def deliver(result: Result) -> list[Written]:
            files = [self.write(result, index, shape) for index in range(len(result.samples))]
            return [file if answer == "file" and file is files[0] else file.without_payload() for file in files]

        job = self.queue.submit(work, deliver, kept=answer != "file")
        if answer == "job":
            return JSONResponse(job.describe(), 202, {"Location": f"/v1/jobs/{job.id}"})
        await self.queue.finished(job)
        if answer == "file":
            return file_of(job.answer[0], shape.format)
        return JSONResponse(described(job))

    def health(self) -> dict[str, Any]:
        """How the server is doing."""
        queue = self.queue
        return {
            "status": "stopping" if queue.stopping else "ok",
            "version": __version__,
            "model": self.model,
            "uptime_seconds": round(time.monotonic() - self.began, 1),
            "queue": {"waiting": queue.waiting, "running": queue.running, "limit": self.limits.waiting},
            "answered": queue.answered,
            "batches": queue.batches,
        }


def described(job: Job) -> dict[str, Any]:
    """A finished job's result: its samples with the reports that were measured on their files."""
    if job.result is None:
        raise Problem(409, "not_finished", f"job {job.id} is {job.state}")
    samples = [
        {
            "seed": sample.seed,
            "seconds": sample.motion.seconds,
            "report": written.report.to_dict(),
            "file": f"/v1/jobs/{job.id}/files/{written.report.source.rpartition('.')[2]}?sample={index}",
        }
        for index, (sample, written) in enumerate(zip(job.result.samples, job.answer, strict=True))
    ]
    return {"id": job.id, "state": job.state, "text": job.result.text, "samples": samples}


def file_of(written: Written, format_: str) -> Response:
    """A file as an answer; headers say how well it meets its anchors."""
    report = written.report
    headers = {
        "Content-Disposition": f'attachment; filename="motion.{format_}"',
        "X-Content-Type-Options": "nosniff",
        "AnchorRoute-Anchors-Met": f"{report.met}/{len(report.anchors)}",
        "AnchorRoute-Worst-Mm": f"{report.worst_mm:.3f}",
    }
    return Response(written.payload, media_type=MEDIA[format_], headers=headers)


def _routes(app: FastAPI, server: Server) -> None:
    errors: dict[int | str, dict[str, Any]] = documentation.ERRORS

    @app.get("/health", responses=errors)
    async def health() -> dict[str, Any]:
        """Whether the server works, and how long its queue is. Needs no token."""
        return server.health()

    @app.get("/v1/schema", responses=errors)
    async def schema() -> dict[str, Any]:
        """The JSON Schema of `anchors`."""
        return anchor_file.schema()

    @app.post("/v1/generate", responses={**errors, **documentation.RESULT})
    async def generate(body: GenerateBody, answer: Answer = "json") -> Response:
        """Text and anchors in, a motion out."""
        return await server.take(body.work(), body.shape, answer)

    @app.post("/v1/refine", responses={**errors, **documentation.RESULT})
    async def refine(body: RefineBody, answer: Answer = "json") -> Response:
        """Make a given motion meet anchors; what no anchor asks for stays as it was."""
        if body.job is not None and body.bvh is None:
            result = _result(server.queue.find(body.job))
            if body.sample >= len(result.samples):
                raise Problem(404, "unknown_sample", f"job {body.job} has {len(result.samples)} samples")
            motion = result.samples[body.sample].motion
        else:
            motion = await asyncio.to_thread(body.given)
        return await server.take(body.work(motion), body.shape, answer)

    @app.get("/v1/jobs/{job}", responses=errors)
    async def job_state(job: JobId) -> dict[str, Any]:
        """Where a job stands."""
        return server.queue.find(job).describe()

    @app.delete("/v1/jobs/{job}", responses=errors)
    async def cancel(job: JobId) -> dict[str, Any]:
        """Cancel a job; one that has ended stays as it is."""
        found = server.queue.find(job)
        server.queue.cancel(found)
        return found.describe()

    @app.get("/v1/jobs/{job}/events", responses={**errors, **documentation.EVENTS}, response_class=StreamingResponse)
    async def events(job: JobId) -> StreamingResponse:
        """Progress as server-sent events, until the job ends; each event is named after the job's state."""
        return StreamingResponse(
            _events(server.queue.find(job)), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @app.get("/v1/jobs/{job}/result", responses=errors)
    async def result(job: JobId) -> dict[str, Any]:
        """A finished job's samples and reports; 409 before it is finished."""
        found = server.queue.find(job)
        _result(found)
        return described(found)

    @app.get("/v1/jobs/{job}/files/{format}", responses={**errors, **documentation.FILE}, response_class=Response)
    async def file(
        job: JobId,
        format: Format,
        sample: SampleIndex = 0,
        fps: Annotated[float | None, Query(ge=1, le=240, allow_inf_nan=False)] = None,
        names: Literal["mixamo", "smpl"] = "mixamo",
        units: Literal["cm", "m"] = "cm",
        in_place: bool = False,
    ) -> Response:
        """A finished job's motion in any format."""
        made = _result(server.queue.find(job))
        written = await asyncio.to_thread(server.write, made, sample, Shape(format, fps, names, units, in_place))
        return file_of(written, format)


def _result(job: Job) -> Result:
    if job.error is not None:
        raise job.error
    if job.result is None:
        raise Problem(409, "not_finished", f"job {job.id} is {job.state}; watch /v1/jobs/{job.id}/events")
    return job.result


async def _events(job: Job) -> AsyncIterator[str]:
    async for state in job.watch():
        yield f"event: {state['state']}\ndata: {json.dumps(state)}\n\n"


async def _told(_: Request, error: Exception) -> Response:
    return response(error)


async def _invalid(_: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    places = [{"where": ".".join(map(str, one["loc"])), "message": str(one["msg"])} for one in found[:20]]
    first = f": {places[0]['where']}: {places[0]['message']}" if places else ""
    message = f"the request does not fit its schema{first}"
    return response(Problem(422, "schema_validation", message, {"errors": places}))


async def _unrouted(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = str(error.detail) if isinstance(error, HTTPException) else "failed"
    answer = response(Problem(status, "not_found" if status == 404 else "schema_validation", message))
    answer.headers.update(getattr(error, "headers", None) or {})
    return answer
