"""What a run says while it trains: two CSV files, a plot of them, and a progress bar with the time left.

A resumed run first cuts rows that are younger than the checkpoint it continues from, so the files always
read like one uninterrupted run.
"""

import csv
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from torch import Tensor

log = logging.getLogger("anchorroute.train")


class Journal:
    """`train.csv` and `validation.csv` in the run folder, with `curves.png` drawn from them."""

    def __init__(self, run: Path, *, main: bool) -> None:
        self.run, self.main = run, main
        self._since: tuple[int, float] | None = None
        if main:
            run.mkdir(parents=True, exist_ok=True)

    def rewind(self, step: int) -> None:
        """Forget rows after `step`."""
        if not self.main:
            return
        for name in ("train.csv", "validation.csv"):
            path = self.run / name
            if path.exists():
                _write(path, [row for row in read(path) if row["step"] <= step])

    def step(self, step: int, seconds: float, scalars: Mapping[str, Tensor | float]) -> dict[str, float]:
        """Add a row of training figures; returns it."""
        row = {"step": float(step), "minutes": seconds / 60} | {k: float(v) for k, v in scalars.items()}
        if self._since is not None and seconds > self._since[1]:
            row["steps_per_second"] = (step - self._since[0]) / (seconds - self._since[1])
        self._since = (step, seconds)
        if self.main:
            _append(self.run / "train.csv", row)
        return row

    def validation(self, step: int, seconds: float, figures: Mapping[str, float]) -> None:
        """Add a row of validation figures and draw the curves."""
        self._since = None  # validation time is not training speed
        if not self.main:
            return
        _append(self.run / "validation.csv", {"step": float(step), "minutes": seconds / 60} | dict(figures))
        log.info("step %d, %.1f min: %s", step, seconds / 60, ", ".join(f"{k} {v:.4g}" for k, v in figures.items()))
        draw(self.run)


def read(path: Path) -> list[dict[str, float]]:
    """Rows of a journal; a half-written last line is dropped."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept: list[dict[str, float]] = []
    for row in rows:
        if None in row or None in row.values():
            continue
        kept.append({k: float(v) for k, v in row.items() if v != ""})
    return kept


def _write(path: Path, rows: list[dict[str, float]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    temporary = path.with_suffix(".part")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)


def _append(path: Path, row: dict[str, float]) -> None:
    row = {k: float(f"{v:.7g}") for k, v in row.items()}
    columns: list[str] = []
    if path.exists():
        with path.open(newline="") as file:
            columns = next(csv.reader(file), [])
    if not set(row) <= set(columns):
        _write(path, [*(read(path) if columns else []), row])
        return
    with path.open("a", newline="") as file:
        csv.DictWriter(file, columns, restval="").writerow(row)


def draw(run: Path) -> None:
    """`curves.png`: training loss and every validation figure over steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: list[tuple[str, list[float], list[float]]] = []
    for name, keys in (("train.csv", ("loss",)), ("validation.csv", ())):
        path = run / name
        rows = read(path) if path.exists() else []
        columns = keys or tuple(dict.fromkeys(k for row in rows for k in row if k not in ("step", "minutes")))
        for key in columns:
            points = [(row["step"], row[key]) for row in rows if key in row]
            panels.append((f"{path.stem} {key}", [p[0] for p in points], [p[1] for p in points]))
    wide = 4
    high = max(1, -(-len(panels) // wide))
    figure = Figure(figsize=(4 * wide, 2.6 * high), layout="constrained")
    FigureCanvasAgg(figure)
    for index, (title, steps, values) in enumerate(panels):
        axes = figure.add_subplot(high, wide, index + 1)
        axes.plot(steps, values, marker="o" if len(steps) < 30 else None, markersize=3)
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.3)
    temporary = run / "curves.part"
    figure.savefig(temporary, format="png", dpi=80)
    temporary.replace(run / "curves.png")


class Progress:
    """A bar with the time left on a terminal; elsewhere a log line now and then."""

    def __init__(self, main: bool, every: float = 30.0) -> None:
        self.main, self.every, self._said = main, every, 0.0
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]} left, loss {task.fields[loss]}"),
        )
        self._shown = main and self._bar.console.is_terminal
        self._began: tuple[float, float] | None = None

    def __enter__(self) -> "Progress":
        """Start the bar."""
        if self._shown:
            self._bar.start()
            self._task = self._bar.add_task("training", total=1.0, left="?", loss="?")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the bar."""
        if self._shown:
            self._bar.stop()

    def show(self, spent: float, step: int, seconds: float, row: Mapping[str, float]) -> None:
        """Say where the run stands."""
        self._began = self._began or (spent, seconds)
        done, took = spent - self._began[0], seconds - self._began[1]
        left = f"{took / done * (1 - spent) / 60:.1f} min" if done > 0 else "?"
        if self._shown:
            self._bar.update(
                self._task, completed=spent, left=left, loss=f"{row['loss']:.4f}", description=f"step {step}"
            )
        elif self.main and time.monotonic() - self._said > self.every:
            self._said = time.monotonic()
            figures = ", ".join(f"{k} {v:.4g}" for k, v in row.items() if k != "step")
            log.info("step %d (%.1f %%, %s left): %s", step, 100 * spent, left, figures)
