"""The rows of each table, from what a sweep has stored.

Rows come in two kinds where a table has heavy variants that ran on a part of the clips: all variants on that part,
so that rows can be compared with each other, and the light variants on all clips, which alone carry a FID.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorroute.data.humanml3d import Clip
from anchorroute.evaluate import figures_of as fig
from anchorroute.evaluate import jobs, metrics
from anchorroute.evaluate.compare import MARGINS, compare
from anchorroute.evaluate.figures_of import Cells, Reference, Spread
from anchorroute.evaluate.protocols import Setting
from anchorroute.evaluate.published import PUBLISHED, paper_figures
from anchorroute.evaluate.results import Cell, Result
from anchorroute.evaluate.shards import Shard
from anchorroute.evaluate.sweep import Sweep, real_shard
from anchorroute.evaluate.trust import memorised
from anchorroute.motion import features as feats

COLUMNS = (
    *("control", "variant", "clips", "repeats"),
    *("control error mm", "± mm", "median mm", "p95 mm", "in the file: mean mm", "median mm in the file"),
    *("worse than 20 cm", "skating", "jerk m/s³", "FID", "± FID", "FID floor", "KID", "R top-3", "± R"),
)


def table(sweep: Sweep, command: str, train: Sequence[Clip] = ()) -> Result:
    """The result of a finished sweep; `train` clips let the prior's table say how near motions come to them."""
    real = real_shard(sweep.clips, sweep.evaluator)
    reference = Reference.of(sweep.clips, real, sweep.evaluator, sweep.budget.repeats)
    if sweep.protocol.name == "prior":
        return _prior(sweep, reference, command, train)
    if sweep.protocol.name == "runtime":
        return _runtime(sweep, command)
    rows, cells_of = _rows(sweep, reference)
    extra = _common(sweep) | {
        "paper": _paper(sweep),
        "by_k": _by_k(sweep),
        "traces": _traces(sweep),
        "comparisons": _comparisons(cells_of),
    }
    return Result(
        title=sweep.protocol.title,
        command=command,
        columns=COLUMNS,
        rows=(_real_row(real, reference), *rows),
        notes=(*sweep.protocol.notes, *_notes(sweep)),
        data_fingerprint=sweep.fingerprint,
        extra=extra,
    )


def _rows(sweep: Sweep, reference: Reference) -> tuple[list[tuple[Cell, ...]], dict[tuple[str, str], Cells]]:
    rows: list[tuple[Cell, ...]] = []
    kept: dict[tuple[str, str], Cells] = {}
    budgets = {variant: sweep.budget.clips(variant, len(sweep.clips)) for variant in sweep.protocol.variants}
    part = min(budgets.values())
    for group, settings in _groups(sweep).items():
        for variant in sweep.protocol.variants:
            cells = sweep.shards(variant, settings)
            kept[group, variant.name] = cells
            shared = [[shard.first(part) for shard in row] for row in cells]
            rows.append(_row(group, variant.name, shared, reference))
        for variant in sweep.protocol.variants:
            if budgets[variant] > part:
                rows.append(_row(group, f"{variant.name}, all clips", kept[group, variant.name], reference))
    return rows, kept


def _row(group: str, name: str, cells: Cells, reference: Reference) -> tuple[Cell, ...]:
    n = len(cells[0][0])
    error, filed = fig.control(cells), fig.control(cells, body=True)
    distance: tuple[Cell, ...] = (None, None, None, None)
    if n >= fig.FID_CLIPS:
        fid = fig.over(cells, lambda shard, _: reference.fid(shard))
        distance = (fid.mean, fid.half, reference.floor(n), fig.over(cells, lambda s, _: reference.kid(s)).mean)
    retrieval: tuple[Cell, ...] = (None, None)
    if n >= fig.RETRIEVAL_CLIPS:
        top = fig.over(cells, lambda shard, repeat: reference.top(shard, repeat)[2])
        retrieval = (top.mean, top.half)
    return (
        *(group, name, n, len(cells)),
        *(1000 * error.mean, 1000 * error.half, fig.median_mm(cells), fig.p95_mm(cells)),
        *(1000 * filed.mean, fig.median_mm(cells, body=True)),
        fig.rate(cells, metrics.location_error_rate, 0.2).mean,
        *(fig.per_clip(cells, "skating").mean, fig.per_clip(cells, "jerk").mean),
        *distance,
        *retrieval,
    )


def _real_row(real: Any, reference: Reference) -> tuple[Cell, ...]:
    n = len(real)
    floor = reference.floor(n) if n >= 4 else None
    top = reference.top(real, 0)[2] if n >= fig.RETRIEVAL_CLIPS else None
    empty: tuple[Cell, ...] = (None,) * 7
    physics = (float(real.skating.mean()), float(real.jerk.mean()))
    return ("", "real clips", n, 1, *empty, *physics, None, None, floor, None, top, None)


def _prior(sweep: Sweep, reference: Reference, command: str, train: Sequence[Clip]) -> Result:
    columns = (
        *("method", "clips", "repeats", "R top-1", "R top-2", "R top-3", "± R top-3", "R top-3 without duplicates"),
        *("FID", "± FID", "FID floor", "KID", "MM-Dist", "diversity", "kinetic FD", "geometric FD"),
        *("skating", "skating padded", "penetration mm", "floating mm", "bone error mm", "jerk m/s³"),
        *("nearest train clip, median m", "the same, 5th percentile m", "MultiModality"),
    )
    seen = _descriptors(train)
    real = [[reference.real]]
    rows = [(*_prior_row("real clips", real, reference), *_nearest(real, seen), None)]
    for variant in sweep.protocol.variants:
        cells, many = sweep.shards(variant, sweep.protocol.settings), sweep.multimodal(variant)
        spread = None if many is None else metrics.multimodality(many, generator=torch.Generator().manual_seed(0))
        rows.append((*_prior_row(variant.name, cells, reference), *_nearest(cells, seen), spread))
    return Result(
        title=sweep.protocol.title,
        command=command,
        columns=columns,
        rows=tuple(rows),
        notes=_notes(sweep),
        data_fingerprint=sweep.fingerprint,
        extra=_common(sweep),
    )


def _prior_row(name: str, cells: Cells, reference: Reference) -> tuple[Cell, ...]:
    n, is_real = len(cells[0][0]), name == "real clips"
    tops = [Spread.of([reference.top(row[0], r)[k] for r, row in enumerate(cells)]) for k in range(3)]
    plain = Spread.of([reference.top(row[0], r, duplicates=False)[2] for r, row in enumerate(cells)])
    fid = fig.over(cells, lambda shard, _: reference.fid(shard))
    text = reference.texts
    distance = fig.over(cells, lambda s, r: metrics.mm_dist(text[r][:n], torch.from_numpy(s.embedding)))
    pairs = min(300, n)
    spread = fig.over(
        cells,
        lambda s, r: metrics.diversity(
            torch.from_numpy(s.embedding), generator=torch.Generator().manual_seed(r), pairs=pairs
        ),
    )
    return (
        *(name, n, len(cells), tops[0].mean, tops[1].mean, tops[2].mean, tops[2].half, plain.mean),
        *((None, None) if is_real else (fid.mean, fid.half)),
        reference.floor(n),
        None if is_real else fig.over(cells, lambda s, _: reference.kid(s)).mean,
        *(distance.mean, spread.mean),
        None if is_real else fig.over(cells, lambda s, _: reference.feature_distance(s, "kinetic")).mean,
        None if is_real else fig.over(cells, lambda s, _: reference.feature_distance(s, "geometric")).mean,
        *(fig.per_clip(cells, "skating").mean, fig.per_clip(cells, "skating_padded").mean),
        *(1000 * fig.per_clip(cells, "penetration").mean, 1000 * fig.per_clip(cells, "floating").mean),
        *(1000 * fig.per_clip(cells, "bones").mean, fig.per_clip(cells, "jerk").mean),
    )


def _descriptors(train: Sequence[Clip]) -> Float[Tensor, "clips d"] | None:
    """What the generator has seen, on few frames."""
    rows = [metrics.clip_descriptor(feats.to_joints(clip.features)) for clip in train if clip.frames >= jobs.SHORTEST]
    return torch.stack(rows) if rows else None


def _nearest(cells: Cells, seen: Float[Tensor, "clips d"] | None) -> tuple[Cell, Cell]:
    """Distance to the nearest train clip: median and 5th percentile; below the real clips' own it is memorising."""
    if seen is None:
        return None, None
    rows = [memorised(torch.from_numpy(shard.descriptor), seen) for row in cells for shard in row]
    return float(np.mean([row[0] for row in rows])), float(np.mean([row[1] for row in rows]))


def _runtime(sweep: Sweep, command: str) -> Result:
    columns = ("setting", "clips", "seconds a sample", "samples a second", "cost", "paper: cost", "median mm")
    base = fig.per_clip(sweep.shards(sweep.protocol.variants[0], sweep.protocol.settings), "seconds").mean
    rows = []
    for variant in sweep.protocol.variants:
        cells = sweep.shards(variant, sweep.protocol.settings)
        seconds = fig.per_clip(cells, "seconds").mean
        paper = paper_figures("runtime", variant.name)[-1]
        rows.append((variant.name, len(cells[0][0]), seconds, 1 / seconds, seconds / base, paper, fig.median_mm(cells)))
    threads = torch.get_num_threads()
    return Result(
        title=sweep.protocol.title,
        command=command,
        columns=columns,
        rows=tuple(rows),
        notes=(
            f"Wall time of drafts and refinement on a CPU with {threads} thread(s), batches of {sweep.budget.batch}, "
            "decoding for measurement left out; RS100 and RS200 as their share of RS500's run. Other work on the "
            "machine was not stopped.",
        ),
        data_fingerprint=sweep.fingerprint,
        extra=_common(sweep) | {"threads": threads},
    )


def _groups(sweep: Sweep) -> dict[str, tuple[Setting, ...]]:
    allowed = sweep.budget.settings(sweep.protocol)
    groups = {name: tuple(s for s in all_ if s in allowed) for name, all_ in sweep.protocol.groups.items()}
    return {name: some for name, some in groups.items() if some}


def _by_k(sweep: Sweep) -> list[dict[str, Any]]:
    """Error against K, for the picture."""
    out = []
    for setting in sweep.budget.settings(sweep.protocol):
        for variant in sweep.protocol.variants:
            shard = Shard.join([row[0] for row in sweep.shards(variant, (setting,))])
            for k in [setting.k] if setting.reading != "mixed" else sorted(set(shard.counts.tolist())):
                rows = np.ones(len(shard), bool) if setting.reading != "mixed" else shard.counts == k
                distances = np.concatenate([d.numpy() for d, keep in zip(shard.by_clip(), rows, strict=True) if keep])
                out.append(
                    {
                        "family": setting.family,
                        "k": k,
                        "setting": setting.name,
                        "variant": variant.name,
                        "clips": int(rows.sum()),
                        "mean_mm": 1000 * float(shard.control_errors()[rows].mean()),
                        "median_mm": 1000 * float(np.median(distances)),
                        "body_mean_mm": 1000 * float(shard.control_errors(body=True)[rows].mean()),
                        "jerk": float(shard.jerk[rows].mean()),
                        "skating": float(shard.skating[rows].mean()),
                    }
                )
    return out


def _traces(sweep: Sweep) -> list[dict[str, Any]]:
    """Median and mean error after each step of a solver, for the picture."""
    out = []
    for group, settings in _groups(sweep).items():
        for variant in sweep.protocol.variants:
            traces = [s.trace for row in sweep.shards(variant, settings) for s in row if s.trace.shape[1]]
            if traces:
                joined = 1000 * np.concatenate(traces)
                out.append(
                    {
                        "control": group,
                        "variant": variant.name,
                        "clips": len(joined),
                        "mean_mm": joined.mean(axis=0).tolist(),
                        "median_mm": np.median(joined, axis=0).tolist(),
                    }
                )
    return out


def _comparisons(cells_of: dict[tuple[str, str], Cells]) -> list[dict[str, Any]]:
    """Is the motion of each variant no worse than the generator's? Paired over clips and repeats."""
    out = []
    for (group, name), cells in cells_of.items():
        base = cells_of.get((group, "generator"))
        if base is None or name == "generator":
            continue
        n = len(cells[0][0])
        if n < 2:
            continue
        before = [[shard.first(n) for shard in row] for row in base]
        for metric in ("skating", "jerk"):
            result = compare(metric, fig.paired(before, metric), fig.paired(cells, metric), margin=MARGINS[metric])
            out.append({"control": group, "variant": name} | result.__dict__)
    return out


def _paper(sweep: Sweep) -> dict[str, Any]:
    published = PUBLISHED.get(sweep.protocol.name)
    return {} if published is None else published.__dict__


def _common(sweep: Sweep) -> dict[str, Any]:
    budget = sweep.budget
    return {
        "table": sweep.protocol.name,
        "model": sweep.subject.id,
        "evaluator": sweep.evaluator.id,
        "seeds": f"from clip and repeat, repeats 0 to {budget.repeats - 1}",
        "samples": {v.name: budget.clips(v, len(sweep.clips)) for v in sweep.protocol.variants},
        "counts": sorted({s.k for s in budget.settings(sweep.protocol) if s.k}),
    }


def _notes(sweep: Sweep) -> tuple[str, ...]:
    counts = sorted({s.k for s in sweep.budget.settings(sweep.protocol) if s.k})
    notes = [
        f"Evaluator {sweep.evaluator.id}: its FID, KID, R-precision, MM-Dist and diversity compare with each other "
        "only, never with published figures of the official evaluator.",
        f"FID and KID from {fig.FID_CLIPS} clips on, R-precision (duplicates count) from {fig.RETRIEVAL_CLIPS}; the "
        "FID floor is real against real between two halves of these clips.",
    ]
    if any(s.reading == "mixed" for s in sweep.protocol.settings):
        notes.insert(0, "Every clip has one K, taken in turn from 2, 4, 8, 16, 32; a row's mean over clips is the mean "
                     "over K. The same anchors and seeds for every variant.")  # fmt: skip
    if counts:
        notes.insert(0, f"Mean over K = {', '.join(map(str, counts))}; the same anchors and seeds for every variant.")
    if any(v.heavy for v in sweep.protocol.variants):
        notes.append("Adam rows run on a fixed subset of the clips; light rows are printed on it too, then on all.")
    return tuple(notes)
