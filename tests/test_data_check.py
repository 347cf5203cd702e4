"""`data check` finds each kind of fault by name; the commands around data sets."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from anchorroute.cli.data import data as command
from anchorroute.data.build import build
from anchorroute.data.check import check
from anchorroute.errors import DataError
from open_source import small_source


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("check")
    build(small_source(base / "source"), base / "out", processes=1)
    return base / "out"


def test_a_built_set_has_no_errors(good: Path) -> None:
    report = check(good)
    assert report.findings == []
    assert report.clips == {"train": 8, "val": 1, "test": 1}
    assert report.fingerprint == json.loads((good / "build.json").read_text())["fingerprint"]


def _append(path: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / path).write_text((folder / path).read_text() + text)


def _nan(folder: Path) -> None:
    path = folder / "new_joint_vecs" / "000001.npy"
    rows = np.load(path)
    rows[3, 70] = np.nan
    np.save(path, rows)


def _normalised(folder: Path) -> None:
    path = folder / "new_joint_vecs" / "000001.npy"
    np.save(path, (np.load(path) - np.load(folder / "Mean.npy")) / np.load(folder / "Std.npy"))


def _shifted(folder: Path) -> None:
    path = folder / "new_joints" / "000001.npy"
    np.save(path, np.load(path) + np.float32(0.01))


def _index(folder: Path) -> None:
    path = folder / "index.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["id"] == "000002":
            row["start"] = 40
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FAULTS: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "split twice": (_append("test.txt", "000001\n"), "error", "a clip is in two splits", "000001"),
    "mirror in test": (_append("test.txt", "M000006\n"), "error", "a clip is in two splits", "M000006"),
    "listed twice": (_append("train.txt", "000001\n"), "error", "a clip is listed twice", "000001"),
    "no tag": (_append("texts/000001.txt", "a man#x/OTHER\n"), "error", "captions cannot be read", "000001"),
    "latin": (
        lambda f: (f / "texts" / "000001.txt").write_bytes(b"caf\xe9##0#0\n"),
        "error",
        "captions cannot be read",
        "000001",
    ),
    "nan": (_nan, "error", "features cannot be used", "000001"),
    "normalised": (_normalised, "error", "features are not metres of this body", "000001"),
    "joints": (_shifted, "error", "joints and features disagree", "000001"),
    "shared": (_index, "error", "a train clip shares frames with a held-out clip", "000001"),
    "changed": (
        _append("texts/000001.txt", "another##0.0#0.0\n"),
        "error",
        "files were changed after the build",
        "build.json",
    ),
    "no std": (lambda f: (f / "Std.npy").unlink(), "error", "statistics cannot be read", "Std.npy"),
    "zero std": (
        lambda f: np.save(f / "Std.npy", np.zeros(263)),
        "error",
        "a deviation is not above zero",
        "Std.npy",
    ),
    "own std": (
        lambda f: np.save(f / "Std.npy", np.linspace(0.1, 1, 263)),
        "warning",
        "deviations differ within a group; HumanML3D has one for each group",
        "Std.npy",
    ),
    "other mean": (
        lambda f: np.save(f / "Mean.npy", np.load(f / "Mean.npy") + 0.1),
        "warning",
        "statistics are not those of the train clips",
        "Mean.npy, Std.npy",
    ),
    "short": (
        lambda f: np.save(f / "new_joint_vecs" / "000001.npy", np.load(f / "new_joint_vecs" / "000001.npy")[:20]),
        "warning",
        "a clip outside of 40 to 199 rows, which readers skip",
        "000001",
    ),
    "late tag": (
        _append("texts/000001.txt", "late##20.0#30.0\n"),
        "warning",
        "a caption's time tags lie beyond the clip",
        "000001",
    ),
    "stray": (
        lambda f: (f / "texts" / "999999.txt").write_text("x##0#0\n"),
        "warning",
        "a file that no split lists",
        "texts/999999.txt",
    ),
    "missing split": (lambda f: (f / "val.txt").unlink(), "error", "a split cannot be read", "val.txt"),
    "index": (
        lambda f: (f / "index.jsonl").write_text('{"id": 1}\n'),
        "error",
        "the index cannot be read",
        "index.jsonl",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_under_its_name(good: Path, tmp_path: Path, fault: str) -> None:
    damage, severity, rule, where = FAULTS[fault]
    folder = tmp_path / "set"
    shutil.copytree(good, folder)
    damage(folder)
    found = {(finding.severity, finding.rule, finding.where) for finding in check(folder).findings}
    assert (severity, rule, where) in found


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        check(tmp_path / "nowhere")


def test_the_commands_work_together(tmp_path: Path) -> None:
    run = CliRunner().invoke
    source = small_source(tmp_path / "source")
    out = tmp_path / "out"
    result = run(command, ["build", str(source), str(out), "--processes", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "left out" in result.output
    again = run(command, ["build", str(source), str(out), "--processes", "1"], catch_exceptions=False)
    assert again.output == result.output
    assert run(command, ["check", str(out)]).exit_code == 0
    listed = run(command, ["report", str(out), "--reason", "held-out"], catch_exceptions=False).output
    assert listed.startswith("000005")
    assert "weak text" in run(command, ["report", str(out)]).output
    packed = run(command, ["pack", str(out), str(tmp_path / "set.pack")], catch_exceptions=False)
    assert "10 clips (4 of them mirrored" in packed.output
    for where in (out, tmp_path / "set.pack"):
        shown = tmp_path / f"shown-{where.name}"
        arguments = ["show", "000001", "--data", str(where), "--out", str(shown)]
        result = run(command, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        assert sorted(path.name for path in shown.iterdir()) == ["000001.html", "000001.png"]
        assert "a person walks left." in result.output
    unknown = run(command, ["show", "00001", "--data", str(out)])
    assert isinstance(unknown.exception, DataError)
    assert "000001" in str(unknown.exception)
    (out / "texts" / "000001.txt").write_text("broken\n")
    failed = run(command, ["check", str(out)])
    assert failed.exit_code == 1
    assert "captions cannot be read (1)" in failed.output
