"""Drafts kept clip by clip, so that all tables, variants and restarts share what was once generated.

A draft depends on the weights, the clip, its caption, its seed and (unless it is the prior's) its anchors; the name
of its file holds a digest of these. Batch mates do not matter to a draft beyond the last bits of floating point.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from anchorroute.data.files import write_atomically
from anchorroute.evaluate.jobs import TOKEN, Job
from anchorroute.evaluate.shards import digest
from anchorroute.evaluate.subject import Draft, Subject


@dataclass(frozen=True)
class _One:
    """A clip's draft."""

    u: Tensor
    seconds: float


@dataclass(frozen=True)
class Drafts:
    """The store of one subject."""

    subject: Subject
    folder: Path

    def get(self, jobs: Sequence[Job], *, anchored: bool) -> Draft:
        """The drafts of these jobs; what is missing is generated together and kept."""
        paths = [self._path(job, anchored=anchored) for job in jobs]
        missing = [row for row, path in enumerate(paths) if not path.exists()]
        if missing:
            self._make([jobs[row] for row in missing], [paths[row] for row in missing], anchored=anchored)
        found = [_read(path) for path in paths]
        return Draft(
            pad_sequence([one.u for one in found], batch_first=True),
            sum(one.seconds for one in found),
        )

    def _make(self, jobs: Sequence[Job], paths: Sequence[Path], *, anchored: bool) -> None:
        draft = self.subject.draft(jobs, anchored=anchored)
        self.folder.mkdir(parents=True, exist_ok=True)
        for row, (job, path) in enumerate(zip(jobs, paths, strict=True)):
            tokens = job.length // TOKEN
            one = _One(draft.u[row, :tokens], draft.seconds / len(jobs))
            stream = io.BytesIO()
            np.savez(stream, allow_pickle=False, u=one.u.numpy(), seconds=one.seconds)
            write_atomically(path, stream.getvalue())

    def _path(self, job: Job, *, anchored: bool) -> Path:
        seen = job.observed
        anchors = (seen.frames, seen.joints, seen.values, seen.free) if anchored else ()
        identity = {
            "weights": self.subject.weights(anchored=anchored),
            "clip": job.clip.id,
            "length": job.length,
            "caption": job.caption,
            "seed": job.seed,
            "anchors": [value.tolist() for value in anchors],
        }
        return self.folder / f"{job.clip.id}-{digest(identity)}.npz"


def _read(path: Path) -> _One:
    with np.load(path, allow_pickle=False) as file:
        return _One(torch.from_numpy(file["u"]), float(file["seconds"]))
