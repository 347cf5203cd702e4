"""The studio end to end in headless Chromium: what a person does in the first minute, on the real page."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("viser", reason="the studio extra is not installed")

import anchorroute as ar  # noqa: E402
from anchorroute.models import ASSETS  # noqa: E402
from anchorroute.studio.app import Studio  # noqa: E402
from anchorroute.studio.document import Mark  # noqa: E402
from anchorroute.studio.session import Session  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Software rendering, and nothing that asks the network.
FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
]
#: A machine may be busy: nothing is waited for longer than this, in seconds.
PATIENCE = float(os.environ.get("ANCHORROUTE_TEST_PATIENCE", "60"))
SHIPPED = (ASSETS / "settings.json").is_file()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH"),
    # Software rendering starves beside other tests: it runs alone, by `make browser`.
    pytest.mark.skipif("ANCHORROUTE_BROWSER" not in os.environ, reason="runs alone: `make browser`"),
]


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    pipeline = ar.load("open") if SHIPPED else ar.untrained(0)
    running = Studio(pipeline, port=18731, state=tmp_path / "state")
    yield running
    running.close()


@pytest.fixture
def page(studio: Studio) -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS, timeout=1000 * PATIENCE)
        except sync_api.Error as error:
            pytest.skip(f"chromium does not run here: {error}")
        opened = browser.new_page(viewport={"width": 900, "height": 600}, accept_downloads=True)
        opened.set_default_timeout(1000 * PATIENCE)
        opened.goto(studio.address)
        yield opened
        browser.close()


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.05)


def pixel(studio: Studio, page: Any, point: tuple[float, float, float]) -> tuple[float, float]:
    """Where a place of the scene is on the page."""
    (client,) = studio.server.get_clients().values()
    camera, box = client.camera, page.locator("canvas").first.bounding_box()
    look = np.asarray(camera.look_at) - camera.position
    ahead = look / np.linalg.norm(look)
    right = np.cross(ahead, (0.0, 1.0, 0.0))
    right /= np.linalg.norm(right)
    away = np.asarray(point) - camera.position
    height = box["height"] / (2 * np.tan(camera.fov / 2)) / (away @ ahead)
    x = box["x"] + box["width"] / 2 + height * float(away @ right)
    y = box["y"] + box["height"] / 2 - height * float(away @ np.cross(right, ahead))
    return x, y


def tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def button(page: Any, name: str) -> None:
    page.get_by_role("button", name=name).click()


def last(session: Session) -> Mark:
    return session.document.marks[-1]


def test_the_first_minute(studio: Studio, page: Any, tmp_path: Path) -> None:
    page.get_by_role("button", name="Generate").wait_for()
    (session,) = studio.sessions.values()
    prompt = page.locator("textarea").first
    prompt.fill("a person walks forward and waves")
    until(lambda: session.document.text == "a person walks forward and waves", "the prompt")
    prompt.blur()

    # Two waypoints: one by a key at the start, one by a click on the floor at the end.
    page.keyboard.press("i")
    until(lambda: len(session.document.marks) == 1, "a waypoint by the key I")
    page.keyboard.press("End")
    page.wait_for_timeout(500)
    page.mouse.click(*pixel(studio, page, (-1.2, 0.0, 0.6)))
    until(lambda: len(session.document.marks) == 2, "a waypoint by a click on the floor")
    assert last(session).at == session.document.last_time
    assert last(session).position[0] == pytest.approx(-1.2, abs=0.05)
    assert last(session).position[2] == pytest.approx(0.6, abs=0.05)

    button(page, "Generate")
    until(lambda: session.job is not None, "Generate reaches the session")
    assert session.wait(PATIENCE), session.job
    assert session.job is not None and session.job.state == "done", session.job
    page.get_by_text("generate done").wait_for()

    tab(page, "Anchors")
    button(page, "Add target here")
    until(lambda: len(session.document.marks) == 3, "a target for the hand")
    hand = last(session)
    assert hand.joint == "right_wrist"

    # The gizmo's thin arrow cannot be hit by pixel in software rendering: its events are handed to the page's own hand.
    x, y, z = hand.position
    (shown,) = studio._pages.values()
    for step, phase in enumerate(("start", "update", "update", "end")):
        shown.stage.hands.drag(hand.id, (x + 0.03 * step, y, z), phase)
        page.wait_for_timeout(150)
    until(lambda: last(session).position[0] > x + 0.05, "the target follows the hand")
    assert session.wait(PATIENCE)
    dragged = session.document

    def met() -> bool:
        take = session.document.take
        return take is not None and take.sample.report.met == len(take.sample.report.anchors) == 3

    until(met, "every anchor within its tolerance")
    page.screenshot(path=tmp_path / "studio.png")

    tab(page, "Files")
    with page.expect_download() as download:
        button(page, "Export GLB")
    download.value.save_as(tmp_path / "motion.glb")
    assert (tmp_path / "motion.glb").read_bytes()[:4] == b"glTF"

    page.keyboard.press("Control+z")
    until(lambda: session.document.mark(hand.id).position == hand.position, "undo takes the drag back")
    page.keyboard.press("Control+Shift+z")
    until(lambda: session.document == dragged, "redo does it again")
