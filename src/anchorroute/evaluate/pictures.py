"""The pictures of `docs/results.md`, drawn from results alone: the frontier, error against steps, error against K."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorroute.errors import RequestError
from anchorroute.evaluate.results import Result

FAMILY_TITLES = {"root3d": "root, 3D", "planar": "root, planar", "body": "body points"}
DPI = 110


def draw(results: Mapping[str, Result], folder: Path) -> list[Path]:
    """Every picture that the results allow."""
    drawn: list[Path] = []
    if "families" in results:
        extra = results["families"].extra
        if extra.get("by_k"):
            drawn.append(_save(_against_k(extra["by_k"]), folder / "families-error-vs-k.png"))
            drawn.append(_save(_frontier(extra["by_k"]), folder / "families-frontier.png"))
        if extra.get("traces"):
            drawn.append(_save(_against_steps(extra["traces"]), folder / "families-error-vs-steps.png"))
    if "evaluator" in results and results["evaluator"].extra.get("curves"):
        drawn.append(_save(_damage(results["evaluator"].extra["curves"]), folder / "evaluator-damage.png"))
    return drawn


def _against_k(entries: list[dict[str, Any]]) -> Any:
    """Mean error against the number of anchors, one panel a family."""
    families = list(dict.fromkeys(entry["family"] for entry in entries))
    figure, axes = _panels(len(families))
    for axis, family in zip(axes, families, strict=True):
        for variant in dict.fromkeys(entry["variant"] for entry in entries):
            line = sorted((e["k"], e["mean_mm"]) for e in entries if e["family"] == family and e["variant"] == variant)
            axis.plot(*zip(*line, strict=True), marker="o", markersize=3, label=variant)
        axis.set(xscale="log", yscale="log", xlabel="anchors", title=FAMILY_TITLES.get(family, family))
        axis.set_xticks(sorted({e["k"] for e in entries}), [str(k) for k in sorted({e["k"] for e in entries})])
        axis.minorticks_off()
    axes[0].set_ylabel("mean error, mm")
    axes[-1].legend(fontsize=7)
    return figure


def _frontier(entries: list[dict[str, Any]]) -> Any:
    """Naturalness against adherence: jerk over the mean error, one point a variant and family."""
    families = list(dict.fromkeys(entry["family"] for entry in entries))
    figure, axes = _panels(len(families))
    for axis, family in zip(axes, families, strict=True):
        for variant in dict.fromkeys(entry["variant"] for entry in entries):
            some = [e for e in entries if e["family"] == family and e["variant"] == variant]
            error = sum(e["mean_mm"] for e in some) / len(some)
            jerk = sum(e["jerk"] for e in some) / len(some)
            axis.scatter([error], [jerk], s=18)
            axis.annotate(variant, (error, jerk), fontsize=7, xytext=(3, 3), textcoords="offset points")
        axis.set(xscale="log", xlabel="mean error, mm", title=FAMILY_TITLES.get(family, family))
    axes[0].set_ylabel("jerk, m/s³")
    return figure


def _against_steps(traces: list[dict[str, Any]]) -> Any:
    """Median error after each step, Adam and Gauss-Newton."""
    controls = list(dict.fromkeys(trace["control"] for trace in traces))
    figure, axes = _panels(len(controls))
    for axis, control in zip(axes, controls, strict=True):
        for trace in traces:
            if trace["control"] == control:
                values = [max(value, 1e-3) for value in trace["median_mm"]]
                axis.plot(range(1, len(values) + 1), values, label=f"{trace['variant']} ({trace['clips']} runs)")
        axis.set(xscale="log", yscale="log", xlabel="step", title=FAMILY_TITLES.get(control, control))
    axes[0].set_ylabel("median error, mm")
    axes[-1].legend(fontsize=7)
    return figure


def _damage(curves: list[dict[str, Any]]) -> Any:
    """FID and R-precision of damaged real motion."""
    figure, axes = _panels(2)
    for curve in curves:
        if all(value is not None for value in curve["fid"]):
            axes[0].plot(curve["amounts"], curve["fid"], marker="o", markersize=3, label=curve["name"])
        axes[1].plot(curve["amounts"], curve["r_top3"], marker="o", markersize=3, label=curve["name"])
    axes[0].set(xlabel="amount of damage", ylabel="FID to real")
    axes[1].set(xlabel="amount of damage", ylabel="R-precision top 3")
    axes[1].legend(fontsize=7)
    return figure


def _panels(count: int) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RequestError("pictures need matplotlib: type pip install 'anchorroute[train]'") from error
    figure = Figure(figsize=(3.2 * count, 2.9), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for axis in axes:
        axis.grid(alpha=0.3, linewidth=0.5)
    return figure, list(axes)


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    return path
