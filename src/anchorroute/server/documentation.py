"""What the OpenAPI page says beyond what the routes' types say."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from motionmcp.schemas import GenerateRequest

ABOUT = """Text and a few anchors in, a full-body motion out.

`/capabilities` and `/generate` speak MMCP (glTF 2.0 with `MMCP_motion`); `/v1` has everything that the command line
has: anchor files, reports measured on the written file, BVH, GLB, NPZ and HTML, jobs with progress. The same seed
gives the same motion on every way in."""

_ENVELOPE: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": {"type": "object"}},
        }
    },
}
_MEANINGS = {
    400: "what is asked cannot be done; the message says what to change",
    401: "the token is missing or wrong",
    403: "the Host is not this machine's",
    404: "there is no such job, sample or page",
    405: "the method does not exist here",
    408: "the body came too slowly",
    409: "the job is not finished, or was cancelled",
    413: "the body is too large",
    415: "the body is not application/json",
    422: "the body does not fit its schema",
    429: "the queue is full; Retry-After says when to try again",
    503: "the server is stopping",
    504: "the job ran into its time limit",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "content": {"application/json": {"schema": _ENVELOPE}}}
    for status, meaning in _MEANINGS.items()
}
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_KINDS = ("model/gltf-binary", "text/plain", "application/octet-stream", "text/html")
FILE: dict[int | str, dict[str, Any]] = {200: {"description": "the file", "content": dict.fromkeys(_KINDS, _BYTES)}}
_OBJECT = {"application/json": {"schema": {"type": "object"}}}
RESULT: dict[int | str, dict[str, Any]] = {
    200: {"description": "samples with reports, or the file", "content": {**_OBJECT, **FILE[200]["content"]}},
    202: {"description": "the job (answer=job); Location says where it is", "content": _OBJECT},
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


def openapi(app: FastAPI) -> dict[str, Any]:
    """The app's schema with the SDK's routes described: they read their bodies by hand."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _describe_mmcp(schema)
        app.openapi_schema = schema
    return app.openapi_schema


def _describe_mmcp(schema: dict[str, Any]) -> None:
    request = GenerateRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.setdefault("components", {}).setdefault("schemas", {})
    parts.update(request.pop("$defs", {}))
    parts["GenerateRequest"] = request
    errors = {str(status): told for status, told in ERRORS.items()}
    generate = schema["paths"]["/generate"]["post"]
    generate["summary"] = "MMCP: generate"
    body = {"schema": {"$ref": "#/components/schemas/GenerateRequest"}}
    generate["requestBody"] = {"required": True, "content": {"application/json": body}}
    gltf = {"model/gltf+json": {"schema": {"type": "object"}}, **_OBJECT}
    generate["responses"] = {"200": {"description": "glTF 2.0 with MMCP_motion", "content": gltf}, **errors}
    capabilities = schema["paths"]["/capabilities"]["get"]
    capabilities["summary"] = "MMCP: what the model can do"
    capabilities["responses"] |= errors
