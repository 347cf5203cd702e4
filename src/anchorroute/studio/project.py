"""Projects: a document as one JSON text, results included, so that a reopened project can be dragged on at once.

Arrays travel as safetensors in base64 (no pickle). Reports are measured anew when a project is opened: what a file
claims about itself is not believed.
"""

import base64
import binascii
import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from anchorroute.anchors import AnchorSet
from anchorroute.errors import AnchorRouteError, FormatError
from anchorroute.given import Given
from anchorroute.motion.canonical import Placement
from anchorroute.motion.motion import Motion
from anchorroute.report import measure
from anchorroute.request import Request
from anchorroute.result import Sample, State
from anchorroute.studio.document import Document, Mark, Take

FORMAT = "anchorroute-project"
VERSION = 1
#: Larger uploads are refused before they are parsed.
LARGEST = 200 * 2**20

_PLAIN = ("text", "seconds", "seed", "samples", "guidance", "solver", "strength", "loop", "shown", "next_id")


def to_text(document: Document) -> str:
    """The document as JSON."""
    body: dict[str, Any] = {name: getattr(document, name) for name in _PLAIN}
    body["start"] = _placement_out(document.start)
    body["marks"] = [{f.name: getattr(mark, f.name) for f in fields(Mark)} for mark in document.marks]
    body["takes"] = [_take_out(take) for take in document.takes]
    return json.dumps({"format": FORMAT, "version": VERSION, "document": body})


def from_text(text: str | bytes) -> Document:
    """The document that `to_text` wrote; anything else is refused with a reason."""
    if len(text) > LARGEST:
        raise FormatError(f"a project of {len(text) / 2**20:.0f} MiB; this program opens up to {LARGEST // 2**20} MiB")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not a project: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FormatError(f"not a project: no {FORMAT!r} in it; open a file that Save project wrote")
    if content.get("version") != VERSION:
        raise FormatError(f"a project of version {content.get('version')!r}; this program knows version {VERSION}")
    try:
        return _document(content["document"])
    except AnchorRouteError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, SafetensorError, binascii.Error) as error:
        raise FormatError(f"a damaged project: {type(error).__name__}: {error}") from error


def _document(body: dict[str, Any]) -> Document:
    marks = tuple(
        Mark(
            id=int(one["id"]),
            at=float(one["at"]),
            joint=str(one["joint"]),
            position=_triple(one["position"]),
            free=tuple(bool(value) for value in one["free"]),  # type: ignore[arg-type]
            heading=None if one["heading"] is None else float(one["heading"]),
            tolerance=float(one["tolerance"]),
        )
        for one in body["marks"]
    )
    plain = {name: body[name] for name in _PLAIN}
    document = Document(**plain, start=_placement_in(body["start"]), marks=marks)
    return replace(document, takes=tuple(_take_in(take) for take in body["takes"]))


def _take_out(take: Take) -> dict[str, Any]:
    samples = [_sample_out(sample) for sample in take.samples]
    return {"id": take.id, "text": take.text, "chosen": take.chosen, "kept": take.kept, "samples": samples}


def _take_in(body: dict[str, Any]) -> Take:
    samples = tuple(_sample_in(sample) for sample in body["samples"])
    chosen = int(body["chosen"])
    if not 0 <= chosen < len(samples):
        raise FormatError(f"a damaged project: sample {chosen} of {len(samples)} is chosen")
    return Take(int(body["id"]), str(body["text"]), samples, chosen, bool(body["kept"]))


def _sample_out(sample: Sample) -> dict[str, Any]:
    motion, request, source = sample.motion, sample.state.request, sample.state.source
    arrays = {
        "root": motion.root,
        "rotations": motion.rotations,
        "contacts": motion.contacts,
        "start": sample.state.start.detach().cpu().numpy(),
    }
    if source is not None:
        arrays["source"] = source.joints.detach().cpu().numpy()
    return {
        "arrays": base64.b64encode(save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()})).decode(),
        "motion": {
            "fps": motion.fps,
            "text": motion.text,
            "anchors": [dict(anchor) for anchor in motion.anchors],
            "seed": motion.seed,
            "model": motion.model,
            "provenance": dict(motion.provenance),
            "loop": motion.loop,
            "on_spot": motion.on_spot,
        },
        "request": {
            "text": request.text,
            "anchors": request.anchors.to_json(),
            "frames": request.frames,
            "kept": request.kept,
            "seed": request.seed,
        },
        "solver": sample.report.solver,
        "before_mm": list(sample.before_mm),
        "trace": list(sample.trace),
        "placement": _placement_out(sample.placement),
        "floor": None if source is None else source.floor,
    }


def _sample_in(body: dict[str, Any]) -> Sample:
    arrays = load_arrays(base64.b64decode(body["arrays"], validate=True))
    motion = Motion(root=arrays["root"], rotations=arrays["rotations"], contacts=arrays["contacts"], **body["motion"])
    asked = body["request"]
    anchors = AnchorSet.from_json(asked["anchors"])
    request = Request(str(asked["text"]), anchors, int(asked["frames"]), int(asked["kept"]), int(asked["seed"]))
    placement = _placement_in(body["placement"])
    if placement is None:
        raise FormatError("a damaged project: a sample without its placement")
    source = None
    if "source" in arrays:
        source = Given(request, torch.from_numpy(arrays["source"]), placement, float(body["floor"]))
    return Sample(
        motion=motion,
        report=replace(measure(motion, anchors), solver=str(body["solver"])),
        before_mm=tuple(float(value) for value in body["before_mm"]),
        trace=tuple(float(value) for value in body["trace"]),
        placement=placement,
        state=State(request, torch.from_numpy(arrays["start"]), None, source),
    )


def _placement_out(placement: Placement | None) -> list[float] | None:
    return None if placement is None else [placement.yaw, *placement.xz]


def _placement_in(values: list[float] | None) -> Placement | None:
    if values is None:
        return None
    yaw, x, z = values
    return Placement(float(yaw), (float(x), float(z)))


def _triple(values: list[float]) -> tuple[float, float, float]:
    x, y, z = values
    return float(x), float(y), float(z)
