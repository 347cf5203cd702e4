"""The README keeps its word: its Python runs, its results are those of docs/results.md, its picture is there."""

import re
from pathlib import Path

import pytest

import anchorroute as ar
from anchorroute import models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    if not (models.ASSETS / "control-planar").is_dir():
        debug = ar.untrained()
        monkeypatch.setattr(ar, "load", lambda: debug)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "reach.glb").stat().st_size > 1000
    assert "anchors met" in capsys.readouterr().out


def test_results_are_copied_from_the_results_page() -> None:
    copied = re.findall(r"<!-- from docs/results.md: (.+?) -->\n(.*?)<!-- end -->", README, flags=re.S)
    page = ROOT / "docs" / "results.md"
    if not copied and not page.exists():
        pytest.skip("no results have been measured yet")
    assert copied, "docs/results.md exists: run benchmarks/readme_results.py"
    results = page.read_text(encoding="utf-8")
    for title, table in copied:
        section = results.partition(f"## {title}\n")[2].partition("\n## ")[0]
        for line in table.strip().splitlines():
            assert line in section, f"{line!r} is not in {title!r} of docs/results.md"


def test_pictures_are_there() -> None:
    for target in re.findall(r"!\[.*?\]\((.+?)\)", README):
        assert (ROOT / target).stat().st_size > 5000
