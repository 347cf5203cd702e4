"""Does the motion fit its text? Ranks within batches of 32, and the mean distance of true pairs.

R-precision depends on the batch size, so 32 is a default nobody should change. Most test captions of small sets are
near duplicates ("a person walks forward" many times): with ``groups`` a batch mate that carries the same caption
counts as a hit too, and both figures are printed.
"""

import re
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorroute.errors import RequestError

BATCH = 32


def retrieval_hits(
    text: Float[Tensor, "n e"],
    motion: Float[Tensor, "n e"],
    *,
    batch: int = BATCH,
    top: int = 3,
    groups: Int[Tensor, " n"] | None = None,
    order: Int[Tensor, " n"] | None = None,
) -> Bool[Tensor, "m top"]:
    """Whether text i finds a true motion among its k nearest of its batch, k = 1..top; row j is item ``order[j]``.

    An incomplete last batch is dropped. Ties count against the hit, so constant embeddings score nothing.
    """
    if text.shape != motion.shape:
        raise RequestError(f"{tuple(text.shape)} text against {tuple(motion.shape)} motion embeddings: pair them.")
    if len(text) < batch:
        raise RequestError(f"R-precision of {len(text)} pairs: it is defined in batches of {batch}.")
    order = torch.arange(len(text)) if order is None else order
    whole = len(order) // batch * batch
    hits = []
    for rows in order[:whole].reshape(-1, batch):
        distance = torch.cdist(text[rows].double(), motion[rows].double())
        same = torch.eye(batch, dtype=torch.bool)
        if groups is not None:
            same = groups[rows, None] == groups[None, rows]
        best = distance.masked_fill(~same, torch.inf).amin(dim=1, keepdim=True)
        rank = ((distance <= best) & ~same).sum(dim=1)
        hits.append(rank[:, None] < torch.arange(1, top + 1))
    return torch.cat(hits)


def r_precision(
    text: Float[Tensor, "n e"],
    motion: Float[Tensor, "n e"],
    *,
    batch: int = BATCH,
    top: int = 3,
    groups: Int[Tensor, " n"] | None = None,
    generator: torch.Generator | None = None,
    shuffles: int = 1,
) -> tuple[float, ...]:
    """R-precision top 1..top; with a generator, the mean over ``shuffles`` random orders (other batch mates)."""
    scores = []
    for _ in range(shuffles):
        order = None if generator is None else torch.randperm(len(text), generator=generator)
        hits = retrieval_hits(text, motion, batch=batch, top=top, groups=groups, order=order)
        scores.append(hits.double().mean(dim=0))
    return tuple(torch.stack(scores).mean(dim=0).tolist())


def mm_dist(text: Float[Tensor, "n e"], motion: Float[Tensor, "n e"]) -> float:
    """Mean Euclidean distance of true pairs (the "matching score")."""
    return float((text - motion).double().norm(dim=-1).mean())


def caption_groups(captions: Sequence[Sequence[str]]) -> Int[Tensor, " n"]:
    """One number a clip, equal for clips that share a caption (up to case, spacing and articles), transitively."""
    parent = list(range(len(captions)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    owner: dict[str, int] = {}
    for i, texts in enumerate(captions):
        for text in texts:
            parent[root(i)] = root(owner.setdefault(_plain(text), i))
    return torch.tensor([root(i) for i in range(len(captions))])


def _plain(caption: str) -> str:
    words = re.findall(r"[a-z0-9]+", caption.lower())
    return " ".join(word for word in words if word not in {"a", "an", "the"})
