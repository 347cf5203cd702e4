"""What one run of one variant on one set of clips measured, clip by clip, and how it is kept between runs.

A shard is the smallest piece of a table that is worth keeping: a variant, a control family, a K, a repeat. Its file's
name holds a digest of everything that its numbers depend on, so a sweep that was killed goes on where it stopped and
a sweep with other weights, data, clips or settings starts anew.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorroute.data.files import write_atomically
from anchorroute.evaluate import metrics
from anchorroute.evaluate.evaluator import Evaluator
from anchorroute.motion import body
from anchorroute.motion import features as feats
from anchorroute.observation import Observed


@dataclass(frozen=True)
class Shard:
    """Figures of `clips` motions; `distances` holds all anchors one after another, `counts` how many a clip has."""

    distances: Float[np.ndarray, " anchors"]
    """On the joints that the features give (what the paper observes), metres."""
    body_distances: Float[np.ndarray, " anchors"]
    """On the fixed-bone body (what a file holds), metres."""
    counts: Int[np.ndarray, " clips"]
    embedding: Float[np.ndarray, "clips e"]
    kinetic: Float[np.ndarray, "clips 66"]
    geometric: Float[np.ndarray, "clips 24"]
    descriptor: Float[np.ndarray, "clips d"]
    skating: Float[np.ndarray, " clips"]
    skating_padded: Float[np.ndarray, " clips"]
    jerk: Float[np.ndarray, " clips"]
    penetration: Float[np.ndarray, " clips"]
    floating: Float[np.ndarray, " clips"]
    bones: Float[np.ndarray, " clips"]
    acceleration: Float[np.ndarray, " clips"]
    seconds: Float[np.ndarray, " clips"]
    """Wall time a clip, its share of its batch."""
    trace: Float[np.ndarray, "clips steps"]
    """Mean distance after each step of a solver, metres; no columns where nothing was solved."""

    def __len__(self) -> int:
        return len(self.counts)

    def by_clip(self, *, body: bool = False) -> list[Float[Tensor, " anchors"]]:
        """Distances clip by clip."""
        values = torch.from_numpy(self.body_distances if body else self.distances)
        return list(values.split(self.counts.tolist()))

    def control_errors(self, *, body: bool = False) -> Float[np.ndarray, " clips"]:
        """The mean distance of each clip's anchors."""
        return np.array([float(each.mean()) for each in self.by_clip(body=body)])

    def first(self, clips: int) -> "Shard":
        """Only the first clips."""
        anchors = int(self.counts[:clips].sum())
        cut = {f.name: anchors if f.name.endswith("distances") else clips for f in fields(Shard)}
        return Shard(**{name: getattr(self, name)[:count] for name, count in cut.items()})

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **asdict(self))
        write_atomically(path, stream.getvalue())

    @staticmethod
    def load(path: Path) -> "Shard":
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return Shard(**{field.name: file[field.name] for field in fields(Shard)})

    @staticmethod
    def join(parts: Sequence["Shard"]) -> "Shard":
        """Several batches as one shard."""
        return Shard(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Shard)})


PADDED_FRAMES = 196


@torch.no_grad()
def measure(
    features: Float[Tensor, "batch frames 263"],
    lengths: Sequence[int],
    observed: Sequence[Observed],
    evaluator: Evaluator,
    *,
    seconds: float = 0.0,
    trace: Float[Tensor, "batch steps"] | None = None,
) -> Shard:
    """All figures of a batch of motions; clips differ in length, so joints are taken one clip at a time."""
    embedding = evaluator.motion(features, torch.tensor(lengths))
    rows: dict[str, list[np.ndarray]] = {f.name: [] for f in fields(Shard)}
    for clip, length, anchors in zip(features, lengths, observed, strict=True):
        joints = feats.to_joints(clip[:length]).double()
        found: Mapping[str, Tensor] = {
            "distances": metrics.control_distances(joints, anchors),
            "body_distances": metrics.control_distances(body.fixed_bones(joints), anchors),
            "kinetic": metrics.kinetic_features(joints)[None],
            "geometric": metrics.geometric_features(joints)[None],
            "descriptor": metrics.clip_descriptor(joints)[None],
            "skating": metrics.foot_skating(joints)[None],
            "skating_padded": metrics.foot_skating(joints, padded_to=max(PADDED_FRAMES, length))[None],
            "jerk": metrics.jerk(joints)[None],
            "penetration": metrics.floor_penetration(joints)[None],
            "floating": metrics.floating(joints)[None],
            "bones": metrics.bone_length_error(joints)[None],
            "acceleration": metrics.joint_acceleration(joints)[None],
        }
        for name, value in found.items():
            rows[name].append(value.float().numpy())
        rows["counts"].append(np.array([len(anchors)]))
        rows["seconds"].append(np.array([seconds / len(lengths)], np.float32))
    rows["embedding"] = [embedding.float().numpy()]
    rows["trace"] = [np.zeros((len(lengths), 0), np.float32) if trace is None else trace.float().numpy()]
    return Shard(**{name: np.concatenate(values) for name, values in rows.items()})


def digest(content: Mapping[str, object]) -> str:
    """A short name for everything that a shard's numbers depend on."""
    text = json.dumps(content, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
