"""What a motion says about itself, as plain JSON: shared by GLB and HTML, so that both read back to the same value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from anchorroute.errors import FormatError
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import CONTACT_JOINTS, JOINTS

VERSION = 1


def describe(motion: Motion) -> dict[str, Any]:
    """Everything but the pose: rate, text, anchors, origin, loop and travel in words that a script can check."""
    last = motion.frames - 1
    return {
        "version": VERSION,
        "fps": motion.fps,
        "frames": motion.frames,
        "text": motion.text,
        "anchors": [dict(anchor) for anchor in motion.anchors],
        "seed": motion.seed,
        "model": motion.model,
        "provenance": dict(motion.provenance),
        "loop": {"start": 0, "end": last, "start_seconds": 0.0, "end_seconds": last / motion.fps}
        if motion.loop
        else None,
        "in_place": motion.on_spot,
        "travel": _travel(motion),
        "contacts": _to_spans(motion.contacts),
    }


def restore(about: Mapping[str, Any], root: Any, rotations: Any) -> Motion:
    """The motion that `describe` spoke of, given its pose."""
    try:
        if about["version"] > VERSION:
            raise FormatError(f"written by version {about['version']}, this program reads up to {VERSION}; update it")
        return Motion(
            root=root,
            rotations=rotations,
            fps=about["fps"],
            text=about["text"],
            anchors=tuple(about["anchors"]),
            seed=about["seed"],
            model=about["model"],
            provenance=about["provenance"],
            loop=about["loop"] is not None,
            on_spot=about["in_place"],
            contacts=_from_spans(about["contacts"], about["frames"]),
        )
    except (KeyError, TypeError) as error:
        raise FormatError(f"the motion's description lacks or garbles {error}") from error


def _travel(motion: Motion) -> dict[str, Any]:
    """How far the pelvis gets over the floor, and along which axis most; taken out or not."""
    step = motion.provenance.get("travel") if motion.on_spot else None
    x, z = step if step is not None else (motion.root[-1] - motion.root[0])[[0, 2]].tolist()
    return {"x": float(x), "z": float(z), "axis": "x" if abs(x) > abs(z) else "z"}


def _to_spans(contacts: Bool[np.ndarray, "frames 4"]) -> dict[str, list[list[int]]]:
    """Per joint the stretches of frames at rest, first and last both counted."""
    spans = {}
    for joint, rests in zip(CONTACT_JOINTS, contacts.T):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], rests.astype(int), [0]))))
        spans[JOINTS[joint]] = [[int(start), int(end) - 1] for start, end in edges.reshape(-1, 2)]
    return spans


def _from_spans(spans: Mapping[str, list[list[int]]], frames: int) -> Bool[np.ndarray, "frames 4"]:
    contacts = np.zeros((frames, len(CONTACT_JOINTS)), dtype=bool)
    for column, joint in enumerate(CONTACT_JOINTS):
        for start, end in spans[JOINTS[joint]]:
            contacts[start : end + 1, column] = True
    return contacts
