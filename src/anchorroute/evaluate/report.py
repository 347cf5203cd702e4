"""`docs/results.md` from the JSON files of a folder: ours, the paper's figures beside them, pictures.

Nothing on the page is written by hand: a paragraph that reads the figures belongs into a result's `notes` or into
`reading.md` beside the JSON files, which is put on top of the page as it stands.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchorroute.data.files import write_atomically
from anchorroute.errors import DataError
from anchorroute.evaluate import pictures
from anchorroute.evaluate.published import NEWER, PUBLISHED, Published
from anchorroute.evaluate.results import Cell, Result

ORDER = (
    *("prior", "keyjoint", "families", "components", "refinement", "mechanism", "runtime", "baselines"),
    "evaluator",
)
READING = "reading.md"

HEAD = """# Results

Every table and picture of this page is rendered by `anchorroute evaluate report` from the JSON files in
`{folder}/`; each says with which command, commit and data it was made. "-" stands where a figure does not exist or the
clips are too few for it.

**What compares with what.** Figures of the open evaluator (FID, KID, R-precision, MM-Dist, diversity) compare with
each other within this page and with nothing that was published: the evaluator, the data and the number of clips all
differ. Errors in millimetres, skating, jerk and cost factors are physical, so published ones may be read beside
ours, on other clips and other generators. "In the file" is the fixed-bone body that BVH and GLB hold.
"""


def write(folder: Path, page: Path) -> list[Path]:
    """Write the page and its pictures (into `<page's folder>/figures`); returns the pictures."""
    results = {path.stem: Result.load(path) for path in sorted(folder.glob("*.json"))}
    if not results:
        raise DataError(f"{folder} holds no results: run a table first, for example `anchorroute evaluate families`.")
    figures = page.parent / "figures"
    drawn = pictures.draw(results, figures)
    names = [name for name in ORDER if name in results] + [name for name in results if name not in ORDER]
    parts = [HEAD.format(folder=_relative(folder, page.parent))]
    reading = folder / READING
    if reading.exists():
        parts.append(reading.read_text(encoding="utf-8").strip() + "\n")
    for name in names:
        parts.append(section(name, results[name]))
        parts += [f"![{p.stem}]({_relative(p, page.parent)})\n" for p in drawn if p.stem.split("-")[0] == name]
    parts.append(_published_section("What newer systems report", NEWER))
    write_atomically(page, "\n".join(parts).encode())
    return drawn


def section(name: str, result: Result) -> str:
    """One result: its table, the paper's, the notes and the circumstances."""
    lines = [f"## {result.title}\n", markdown_table(result.columns, result.rows)]
    verdicts = _verdicts(result)
    if verdicts:
        lines.append(verdicts)
    lines += [f"- {note}" for note in result.notes]
    about = [f"`{result.command}`" if result.command else "", result.date]
    about += [f"commit {result.commit}" if result.commit else ""]
    about += [f"data {result.data_fingerprint[:12]}" if result.data_fingerprint else ""]
    for key in ("model", "evaluator"):
        if isinstance(result.extra.get(key), str):
            about.append(f"{key} {result.extra[key]}")
    lines.append("\n" + ", ".join(part for part in about if part) + ".\n")
    plain = name.removesuffix("-strict")
    if plain in PUBLISHED:
        lines.append(_published_section("", PUBLISHED[plain]))
    return "\n".join(lines)


def _published_section(title: str, published: Published) -> str:
    head = f"## {title}\n\n" if title else ""
    return f"{head}**{published.title}**\n\n{markdown_table(published.columns, published.rows)}\n{published.note}\n"


def _verdicts(result: Result) -> str:
    """The paired comparisons as one line each variant."""
    found: list[dict[str, Any]] = result.extra.get("comparisons", [])
    if not found:
        return ""
    columns = ("control", "variant", "figure", "generator", "variant's", "difference [95 %]", "no worse")
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        interval = f"{one['difference']:+.3g} [{one['low']:+.3g}, {one['high']:+.3g}]"
        rows.append(
            (
                one["control"],
                one["variant"],
                one["metric"],
                one["baseline"],
                one["candidate"],
                interval,
                one["no_worse"],
            )
        )
    title = "\nAgainst the generator, paired over clips and repeats (the margins are in `evaluate/compare.py`):\n\n"
    return title + markdown_table(columns, rows)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table; numbers are aligned to the right and keep three or four significant digits."""
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join("---:" if is_number else "---" for is_number in numeric) + "|",
    ]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(value: Cell) -> str:
    """A cell as text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value != 0 and abs(value) < 0.0005:
            return f"{value:.1e}"
        return f"{value:.0f}" if abs(value) >= 1000 else re.sub(r"e\+?0*", "e", f"{value:.3g}")
    return str(value).replace("|", "\\|")


def _relative(path: Path, start: Path) -> str:
    try:
        return path.resolve().relative_to(start.resolve()).as_posix()
    except ValueError:
        return path.name
