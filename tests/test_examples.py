"""Every example runs (on random weights unless real ones are there), stays short, and does what it says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import anchorroute as ar

EXAMPLES = Path(__file__).parents[1] / "examples"
NUMBERED = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))


def _load(number: str) -> ModuleType:
    (path,) = EXAMPLES.glob(f"{number}_*.py")
    spec = importlib.util.spec_from_file_location(f"example_{number}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_eight_of_them() -> None:
    assert [path.name[:2] for path in NUMBERED] == [f"{number:02d}" for number in range(1, 9)]


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.name)
def test_short_and_explained(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 100
    assert source.startswith('"""')


def test_01(tmp_path: Path) -> None:
    result = _load("01").main(tmp_path, "debug")
    assert ar.Motion.load(tmp_path / "walk.bvh").frames == result.motion.frames == 80
    assert (tmp_path / "walk.html").is_file()


def test_02(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = _load("02").main(tmp_path, "debug")
    assert report.source.endswith("reach.glb") and len(report.anchors) == 3
    assert ar.AnchorSet.load(tmp_path / "reach.anchors.json").anchors[2].tolerance == 0.01
    assert "anchors met" in capsys.readouterr().out


def test_03(tmp_path: Path) -> None:
    report = _load("03").main(tmp_path, "debug")
    assert len(report.anchors) == 5 and report.seconds >= 4.0


def test_04(tmp_path: Path) -> None:
    offset = 1000 * (0.05**2 + 0.05**2) ** 0.5
    assert _load("04").main(tmp_path, "debug") < 0.8 * offset, "random weights come nearer; trained ones arrive"
    assert (tmp_path / "fixed.bvh").is_file()


def test_05() -> None:
    errors = _load("05").main("debug", 5)
    assert errors["gauss-newton"] < errors["none"]


def test_06() -> None:
    assert len(_load("06").main("debug")) == 3


def test_07(tmp_path: Path) -> None:
    results = _load("07").main(tmp_path, "debug")
    assert [result.motion.frames for result in results] == [60, 40, 80]
    assert len(list(tmp_path.glob("*.npz"))) == 3


def test_08() -> None:
    before, after = _load("08").main("debug")
    assert after < before
