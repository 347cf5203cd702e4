"""The page: self-contained, small, reads back, and a real browser's joints are the motion's."""

import dataclasses
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion import html
from anchorroute.motion.motion import Motion

from motions import walk

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def example(frames: int = 60) -> Motion:
    motion = Motion.from_joints(walk(frames).numpy(), text="</script><b>walk</b> {{style}}", seed=1)
    hand = motion.at(1.0)[20]
    anchors = (
        {"at": 1.5, "joint": "pelvis", "position": [None, 1.0, None]},
        {"at": 1.0, "joint": "left_wrist", "position": (hand + np.array([0.0, 0.012, 0.0])).tolist()},
    )
    return dataclasses.replace(motion, anchors=anchors)


def test_reads_back_to_an_equal_motion(tmp_path: Path) -> None:
    motion = example()
    assert html.load(html.save(motion, tmp_path / "a.html")) == motion


def test_a_full_clip_is_under_two_megabytes_and_asks_for_nothing(tmp_path: Path) -> None:
    path = html.save(example(196), tmp_path / "a.html")
    assert path.stat().st_size < 2_000_000
    text = path.read_text()
    shell = html._DATA.sub("", text)
    assert not re.search(r"https?:|//cdn|@import|\bfetch\(|XMLHttp|<link|<img|src=|url\(", shell)
    assert "default-src 'none'" in text


def test_a_prompt_cannot_break_out_of_the_page() -> None:
    text = html.page(example())
    assert text.count("</script>") == 2 and "<b>walk</b>" not in text
    assert text.count(html.part("style.css")) == 1


def test_residuals_are_measured_on_this_motion() -> None:
    near, free = html._content(example())["anchors"]
    assert near["residual"] == pytest.approx(0.012, abs=1e-6) and near["grade"] == "near" and near["free"] == ""
    pelvis = example().at(1.5)[0]
    assert free["free"] == "xz" and free["residual"] == pytest.approx(abs(1.0 - pelvis[1]), abs=1e-6)
    assert free["place"] == pytest.approx([pelvis[0], 1.0, pelvis[2]])


def test_an_anchor_without_a_joint_is_refused(tmp_path: Path) -> None:
    motion = dataclasses.replace(example(), anchors=({"at": 1.0, "position": [0, 0, 0]},))
    with pytest.raises(AnchorError, match="cannot be shown"):
        html.save(motion, tmp_path / "a.html")
    assert not list(tmp_path.iterdir())


def test_other_and_damaged_pages_are_refused(tmp_path: Path) -> None:
    path = html.save(example(), tmp_path / "a.html")
    text = path.read_text()
    for content, words in (
        ("<html></html>", "no page of AnchorRoute's"),
        (text.replace('"root":"', '"root":"AA'), "damaged"),
        (text.replace('"fps"', '"fsp"'), "lacks or garbles"),
    ):
        path.write_text(content)
        with pytest.raises(FormatError, match=words):
            html.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="not UTF-8"):
        html.load(path)


#: Appended to the page: presses keys as a person would and writes down where the player went.
ROBOT = """<script>
const log = {}, press = (key, more) => dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true, ...more }));
const note = name => { render(); log[name] = [+document.body.dataset.frame, state.playing]; };
press("End"); note("End");
press("ArrowLeft"); note("ArrowLeft");
press("ArrowLeft", { shiftKey: true }); note("shift ArrowLeft");
press(" "); note("Space");
press("ArrowRight"); note("ArrowRight");
press("Home"); note("Home");
document.querySelector("#anchor-rows tr").click(); note("row");
const before = camera.distance;
document.getElementById("view").dispatchEvent(new WheelEvent("wheel", { deltaY: 200, cancelable: true }));
log.zoomed = camera.distance / before;
press("s"); log.skeleton = state.bones;
seek(37); render();
document.body.dataset.log = JSON.stringify(log);
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH")
def test_a_browser_plays_the_same_joints_and_obeys_the_keyboard(tmp_path: Path) -> None:
    """Kinematics in JavaScript against those in Python; the page says what it drew in its own document."""
    motion = example()
    page = tmp_path / "a.html"
    page.write_text(html.page(motion).replace("</body>", f"{ROBOT}</body>"))
    flags = "--headless=new --no-sandbox --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader"
    command = [str(BROWSER), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=500",
               "--window-size=480,360", "--dump-dom", f"{page.as_uri()}#frame=37"]  # fmt: skip
    try:
        dom = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True).stdout
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        pytest.skip(f"chromium does not run here: {error}")
    if "does not offer" in html._DATA.sub("", dom).split("<script>")[0]:
        pytest.skip("this chromium has no WebGL 2")
    body = re.search(r"<body([^>]*)>", dom).group(1)  # type: ignore[union-attr]
    assert 'data-ready="yes"' in body and 'data-frame="37"' in body
    joints = re.search(r'data-joints="([^"]*)"', body).group(1)  # type: ignore[union-attr]
    np.testing.assert_allclose(np.array(joints.split(), float).reshape(22, 3), motion.joints[37], atol=1e-4)
    log = json.loads(unescape(re.search(r'data-log="([^"]*)"', body).group(1)))  # type: ignore[union-attr]
    last = motion.frames - 1
    assert log["End"] == [last, False] and log["ArrowLeft"] == [last - 1, False]
    assert log["shift ArrowLeft"] == [last - 11, False] and log["Space"] == [last - 11, True]
    assert log["ArrowRight"] == [last - 10, False] and log["Home"] == [0, False] and log["row"] == [20, False]
    assert log["zoomed"] > 1.1 and log["skeleton"] is True
