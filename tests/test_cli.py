"""The command line as a person meets it: what works, and every mistake answered by one line and exit code 2."""

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anchorroute import cli
from anchorroute.motion.motion import Motion

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in an empty folder; (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return go


@pytest.fixture(scope="module")
def motion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("motion") / "walk.npz"
    assert cli.run(["generate", "a person walks", "--seconds", "2", "--model", "debug", "-o", str(path)]) == 0
    return path


def _anchors(folder: Path, *entries: dict[str, object]) -> Path:
    path = folder / "anchors.json"
    path.write_text(json.dumps({"version": 1, "anchors": list(entries)}))
    return path


def test_help_is_quick() -> None:
    times = []
    for _ in range(3):
        began = time.process_time(), os.times().children_user
        subprocess.run([sys.executable, "-m", "anchorroute.cli", "--help"], check=True, capture_output=True)
        times.append(os.times().children_user - began[1])
    assert min(times) < 0.5


def test_generate_writes_and_reports(run: Run, tmp_path: Path) -> None:
    code, out, err = run(
        "generate", "a person walks", "--at", "0s pelvis 1,_,2", "--seconds", "2", "--model", "debug",
        "-o", "a.bvh", "-o", "a.glb", "--seed", "7",
    )  # fmt: skip
    assert code == 0, err
    assert "1 of 1 anchors met" in out and "a.glb" in out
    assert Motion.load(tmp_path / "a.glb").seed == 7


def test_generate_json_and_samples(run: Run, tmp_path: Path) -> None:
    code, out, err = run(
        "generate",
        "walk",
        "--seconds",
        "2",
        "--samples",
        "2",
        "--model",
        "debug",
        "-o",
        "a.npz",
        "--json",
        "--fps",
        "40",
    )
    assert code == 0, err
    told = json.loads(out)
    assert [Path(entry["file"]).name for entry in told] == ["a.npz", "a-2.npz"]
    assert Motion.load(tmp_path / "a-2.npz").fps == 40


def test_same_command_same_file(run: Run, tmp_path: Path) -> None:
    for name in ("a.bvh", "b.bvh"):
        assert run("generate", "walk", "--seconds", "2", "--model", "debug", "-o", name)[0] == 0
    assert (tmp_path / "a.bvh").read_bytes() == (tmp_path / "b.bvh").read_bytes()


def test_strict_and_not_met_is_exit_code_1(run: Run) -> None:
    arguments = ("generate", "walk", "--seconds", "2", "--model", "debug", "--at", "1s left_wrist 0.2,1.2,0.3")
    code, out, _ = run(*arguments, "--solver", "none", "--strict")
    assert code == 1 and "NOT MET" in out
    assert run(*arguments, "--solver", "none")[0] == 0


def test_report_of_a_file(run: Run, motion: Path, tmp_path: Path) -> None:
    x, y, z = (float(value) for value in Motion.load(motion).joints[20, 15])
    path = _anchors(tmp_path, {"at": 1.0, "joint": "head", "position": [x, y, z + 0.01]})
    code, out, _ = run("report", str(motion), "--anchors", str(path), "--json")
    assert code == 0
    assert json.loads(out)["anchors"][0]["error_mm"] == pytest.approx(10.0, abs=1e-3)
    assert run("report", str(motion), "--anchors", str(path), "--strict")[0] == 1


def test_convert_there_and_back(run: Run, motion: Path, tmp_path: Path) -> None:
    code, _out, err = run("convert", str(motion), "b.bvh", "b.glb", "b.html", "--fps", "60", "--trim", "0.5-1.5")
    assert code == 0, err
    back = Motion.load(tmp_path / "b.bvh")
    assert back.fps == 60 and back.seconds == pytest.approx(1.0, abs=0.06)
    assert abs(back.joints[0] - Motion.load(motion).joints[10]).max() < 1e-3


def test_convert_in_place_and_loop_are_metadata(run: Run, motion: Path, tmp_path: Path) -> None:
    assert run("convert", str(motion), "b.npz", "--in-place", "--loop")[0] == 0
    there = Motion.load(tmp_path / "b.npz")
    assert there.loop and there.on_spot
    assert abs(there.root[:, [0, 2]] - there.root[0, [0, 2]]).max() < 1e-6


def test_refine_a_given_motion(run: Run, motion: Path, tmp_path: Path) -> None:
    x, _, z = (float(value) for value in Motion.load(motion).joints[30, 0])
    point = f"1.5s pelvis {x + 0.03:.4f},_,{z - 0.02:.4f}"
    code, out, err = run("refine", str(motion), "--at", point, "--model", "debug", "-o", "r.bvh")
    assert code == 0, err
    assert "1 of 1 anchors met" in out
    assert Motion.load(tmp_path / "r.bvh").frames == Motion.load(motion).frames


def test_demo(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--model", "debug", "--samples", "1")
    assert code == 0, err
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"demo.bvh", "demo.glb", "demo.npz", "demo.html", "anchors.json"}
    assert "What next" in out and "target" in out


def test_schema_accepts_what_the_demo_writes(run: Run) -> None:
    import jsonschema

    from anchorroute.cli.demo import demo_anchors

    code, out, _ = run("schema")
    assert code == 0
    jsonschema.validate(demo_anchors().to_json(), json.loads(out))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run: Run, shell: str) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0 and "_ANCHORROUTE_COMPLETE" in out


def test_info_of_debug(run: Run) -> None:
    code, out, _ = run("info", "--model", "debug", "--json")
    assert code == 0 and "random" in json.loads(out)["weights"]


def test_batch_resumes_and_tells_bad_lines(run: Run, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    good = [{"text": "walk", "seconds": 2, "id": "one"}, {"text": "turn", "seconds": 2, "seed": 3, "formats": ["npz"]}]
    bad = ['{"text": ""}', "not json", '{"text": "walk", "speed": 3}', '{"text": "walk", "id": "../up"}']
    jobs.write_text("\n".join([*map(json.dumps, good), *bad]))
    arguments = ("batch", "jobs.jsonl", "out", "--model", "debug", "--workers", "1")
    code, out, err = run(*arguments)
    assert code == 1, "bad lines make the exit code 1"
    assert [f"jobs.jsonl:{line}: skipped" in err for line in (3, 4, 5, 6)] == [True] * 4
    lines = [json.loads(line) for line in (tmp_path / "out/manifest.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["one", "000002"]
    before = (tmp_path / "out/one.bvh").stat().st_mtime_ns
    (tmp_path / "out/000002.json").unlink()  # as if the second job had been killed
    code, out, _ = run(*arguments)
    assert "1 done before" in out and (tmp_path / "out/one.bvh").stat().st_mtime_ns == before
    assert (tmp_path / "out/000002.json").exists()


FIVE_SECONDS = {"at": 5.0, "joint": "pelvis", "position": [0, 0.9, 1]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate", "walk", "--at", "1s left_wrst 0,1,0"], "left_wrist"),
        (["generate", "walk", "--at", "1s left_index1 0,1,0"], "left_index1"),
        (["generate", "walk", "--at", "one second pelvis 0,1,0"], "write"),
        (["generate", "walk", "--at", "1s pelvis 0,1"], "three"),
        (["generate", "walk", "--anchors", "absent.json"], "absent.json"),
        (["generate", "walk", "--anchors", "broken.json"], "no JSON"),
        (["generate", "walk", "--anchors", "late.json", "--seconds", "3"], "beyond"),
        (["generate", "walk", "--anchors", "bad_field.json"], "known there"),
        (["generate", ""], "empty"),
        (["generate", "walk " * 2500], "characters"),
        (["generate", "walk \N{PEDESTRIAN}"], "Latin"),
        (["generate", "человек идёт"], "English"),
        (["generate", "walk", "--seconds", "30"], "9.8 s"),
        (["generate", "walk", "-o", "walk.fbx"], ".bvh"),
        (["generate", "walk", "-o", "absent/walk.bvh"], "create it"),
        (["generate", "walk", "-o", "a.bvh", "-o", "a.bvh"], "twice"),
        (["generate", "walk", "--model", "nowhere"], "no weights"),
        (["generate", "walk", "--watch"], "--anchors"),
        (["generate", "walk", "--solver", "magic"], "gauss-newton"),
        (["genrate", "walk"], "generate"),
        (["report", "absent.bvh"], "absent.bvh"),
        (["report", "broken.bvh"], "broken.bvh"),
        (["convert", "broken.npz", "a.bvh"], "broken.npz"),
        (["convert", "walk.docx", "a.bvh"], "ending"),
        (["refine", "absent.bvh"], "--anchors"),
        (["batch", "absent.jsonl", "out"], "absent.jsonl"),
        (["info", "--model", "nowhere"], "no weights"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "broken.bvh").write_text("HIERARCHY\nROOT")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no zip")
    (tmp_path / "late.json").write_text(json.dumps({"version": 1, "anchors": [FIVE_SECONDS]}))
    (tmp_path / "bad_field.json").write_text(json.dumps({"version": 1, "anchors": [], "speed": 3}))
    before = set(tmp_path.iterdir())
    code, _out, err = run(
        *arguments, *(["--model", "debug"] if "--model" not in arguments and arguments[0] == "generate" else [])
    )
    assert code == 2, err
    assert err.count("\n") == 1 and err.startswith("error: ") and "Traceback" not in err, err
    assert says in err
    assert set(tmp_path.iterdir()) <= before | {tmp_path / "out"}, "nothing is written"


def test_unwritable_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, _, err = run("generate", "walk", "-o", "a.bvh", "--model", "debug")
    assert code == 2 and "may not be written" in err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_disk_full_leaves_no_half_file(
    run: Run, motion: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "a.bvh")

    monkeypatch.setattr(os, "replace", full)
    code, _, err = run("convert", str(motion), "a.bvh")
    assert code == 2 and os.strerror(number) in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_half_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anchorroute.pipeline import AnchorRoute

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(AnchorRoute, "_tokens", interrupted)
    code, _, _err = run("generate", "walk", "-o", "a.bvh", "--model", "debug")
    assert code == 130 and list(tmp_path.iterdir()) == []


def test_missing_package_names_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom anchorroute.cli import main; main(['generate', 'walk'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "pip install torch" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_damaged_weights(run: Run, tmp_path: Path) -> None:
    from anchorroute import checkpoint, models

    parts = models.untrained()
    checkpoint.save(tmp_path / "m" / "tokenizer", parts.tokenizer, parts.tokenizer.config, {})
    weights = tmp_path / "m" / "tokenizer" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    code, _, err = run("generate", "walk", "--model", "m", "-o", "a.bvh")
    assert code == 2 and "damaged" in err and err.count("\n") == 1


def test_watch_generates_again_when_the_file_changes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _anchors(tmp_path, {"at": 1.0, "joint": "pelvis", "position": [0.0, None, 0.2]})
    naps = []

    def nap(_: float) -> None:
        naps.append(1)
        if len(naps) == 1:
            _anchors(tmp_path, {"at": 1.0, "joint": "pelvis", "position": [0.05, None, 0.2]})
            os.utime(path, ns=(1, 1))
        elif len(naps) == 2:
            path.write_text("{")  # a slip while editing is told, and waited for
            os.utime(path, ns=(2, 2))
        elif len(naps) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    code, out, err = run(
        "generate", "walk", "--anchors", str(path), "--seconds", "2", "--model", "debug", "-o", "w.npz", "--watch"
    )
    assert code == 130 and out.count("anchors met") == 2
    assert "no JSON" in err and "watching" in err
    assert Motion.load(tmp_path / "w.npz").anchors[0]["position"][0] == 0.05
