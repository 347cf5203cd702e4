"""Results on disk, the page they become, and the evaluator's checks on evaluators that are known to be good or bad."""

import json
from pathlib import Path

import pytest
import torch

from anchorroute.errors import DataError, FormatError
from anchorroute.evaluate import published, report
from anchorroute.evaluate.results import Result
from anchorroute.evaluate.trust import trust
from test_sweep import clip


def result(**changes: object) -> Result:
    given = {
        "title": "A table",
        "command": "anchorroute evaluate x",
        "columns": ("who", "mm", "met"),
        "rows": (("a", 1.23456789, True), ("b|c", None, False)),
        "notes": ("a note",),
        "data_fingerprint": "abc",
        "extra": {"model": "m"},
    }
    return Result(**{**given, **changes})  # type: ignore[arg-type]


def test_results_read_back(tmp_path: Path) -> None:
    stamped = result().stamped()
    stamped.save(tmp_path / "x.json")
    again = Result.load(tmp_path / "x.json")
    assert again.rows == (("a", 1.23457, True), ("b|c", None, False))
    assert again.extra == {"model": "m"}
    assert again.commit
    assert again.date.endswith("UTC")


def test_nan_becomes_null(tmp_path: Path) -> None:
    result(rows=(("a", float("nan"), True),)).save(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["rows"] == [["a", None, True]]


def test_malformed_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="2 cells under 3"):
        result(rows=(("a", 1.0),))
    (tmp_path / "x.json").write_text('{"title": "t"}')
    with pytest.raises(FormatError, match="columns, rows"):
        Result.load(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        Result.load(tmp_path / "x.json")


def test_page_shows_ours_the_papers_and_where_it_came_from(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "results"
    curves = [{"family": "root3d", "k": k, "variant": v, "mean_mm": 100 / k, "jerk": 60.0, "clips": 3, "setting": "s",
               "median_mm": 1.0, "body_mean_mm": 1.0} for k in (2, 4) for v in ("generator", "GN")]  # fmt: skip
    trace = [{"control": "root3d", "variant": "GN", "clips": 3, "mean_mm": [9.0, 1.0], "median_mm": [9.0, 0.0]}]
    verdict = [{"control": "root3d", "variant": "GN", "metric": "jerk", "baseline": 60.0, "candidate": 61.0,
                "difference": 1.0, "low": 0.5, "high": 1.5, "no_worse": True}]  # fmt: skip
    result(title="Families", extra={"by_k": curves, "traces": trace, "comparisons": verdict}).save(
        folder / "families.json"
    )
    result(title="Speed of a file").save(folder / "speed.json")
    drawn = report.write(folder, tmp_path / "docs" / "results.md")
    page = (tmp_path / "docs" / "results.md").read_text()
    assert len(drawn) == 3
    assert all(path.stat().st_size > 1000 for path in drawn)
    assert page.index("## Families") < page.index("## Speed of a file")
    assert "| a | 1.23 | yes |" in page
    assert "b\\|c | - | no" in page
    assert "| root3d | RS500 | 0.27 | 0.013 | 0.787 |" in page, "the paper's own figures"
    assert "+1 [+0.5, +1.5]" in page
    assert "MSFlow" in page
    assert "figures/families-frontier.png" in page
    assert "`anchorroute evaluate x`" in page


def test_a_reading_is_put_on_top(tmp_path: Path) -> None:
    result().save(tmp_path / "x.json")
    (tmp_path / "reading.md").write_text("What we make of it.\n")
    report.write(tmp_path, tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text()
    assert page.index("What we make of it.") < page.index("## A table")
    with pytest.raises(DataError, match="no results"):
        report.write(tmp_path / "..", tmp_path / "y.md")


@pytest.mark.parametrize(("value", "shown"), [
    (None, "-"), (True, "yes"), (0.0, "0"), (0.12345, "0.123"), (1234.5, "1234"), (0.0000123, "1.2e-05"), (7, "7"),
    ("a", "a"), (99.96, "100"),
])  # fmt: skip
def test_cells(value: object, shown: str) -> None:
    assert report.cell(value) == shown  # type: ignore[arg-type]


def test_papers_figures_are_found_by_row() -> None:
    assert published.paper_figures("families", "planar", "RS200") == (0.120, 0.020, 0.800)
    assert published.paper_figures("mechanism", "cubic") == (0.122, 0.019, 0.797)
    assert published.paper_figures("mechanism", "GN") == (None, None, None)


# trust: an evaluator that sees everything, and one that sees nothing


class Knows:
    """Embeds a motion by how it moves, and a text by the motion it belongs to."""

    id = "knows"

    def __init__(self, clips: list) -> None:
        self.of = {clip.captions[0]: self._embed(clip.features) for clip in clips}

    @staticmethod
    def _embed(features: torch.Tensor) -> torch.Tensor:
        moving = features[:, 4:67].diff(dim=0).abs().mean(dim=0)
        ends = (features[-1] - features[0])[4:67]
        return torch.cat([features[:, 1:3].mean(dim=0) * 20, moving * 20, ends])

    def text(self, captions: list[str]) -> torch.Tensor:
        return torch.stack([self.of[caption] for caption in captions])

    def motion(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.stack([self._embed(x[:n]) for x, n in zip(features, lengths, strict=True)])


class Blind(Knows):
    """Does not look."""

    id = "blind"

    def motion(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.randn(len(features), 8, generator=torch.Generator().manual_seed(len(features)))

    def text(self, captions: list[str]) -> torch.Tensor:
        return torch.randn(len(captions), 8, generator=torch.Generator().manual_seed(1 + len(captions)))


def unlike(count: int) -> list:
    from dataclasses import replace

    return [replace(clip(i), captions=(f"clip {i}",)) for i in range(count)]


def test_trust_passes_eyes_and_fails_blindness() -> None:
    clips = unlike(36)
    good, bad = (
        trust(judge, clips, clips[:2], sizes=(10,), amounts=(0.0, 1.0)) for judge in (Knows(clips), Blind(clips))
    )
    scores = {name: score for name, _, score in good.scores}
    assert scores["real pairs"].top[0] > 0.95
    assert scores["shuffled pairs"].top[2] == pytest.approx(3 / 32, abs=0.1)
    blind = {name: score for name, _, score in bad.scores}
    assert blind["real pairs"].top[2] < 0.3
    rising = {curve.name: curve.fid_rises for curve in good.curves}
    assert rising["noise"]
    assert rising["foot slide"]
    assert not any(curve.fid_rises for curve in bad.curves)
    wrong = next(curve for curve in good.curves if curve.name == "wrong text")
    assert wrong.text_falls
    assert wrong.r_top3[0] > 0.95 > 0.3 > wrong.r_top3[-1]
    table = good.result("anchorroute evaluate evaluator", "data")
    assert len({len(row) for row in table.rows}) == 1
