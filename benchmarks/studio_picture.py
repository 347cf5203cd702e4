"""Draws the README's picture of the studio: writes docs/images/studio.png.

    python benchmarks/studio_picture.py [--model open] [--browser /usr/bin/chromium]

The page is the real one, in headless Chromium; the document is made through its session, as clicks would.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import anchorroute as ar
from anchorroute.studio.app import Studio
from anchorroute.studio.document import Document
from anchorroute.studio.session import Session

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "studio.png"
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
FLAGS += ["--ignore-gpu-blocklist", "--disable-background-networking", "--disable-component-update"]
PATIENCE = 1000 * 600.0
#: Where the cursor stands in the picture, in seconds.
MOMENT = 3.2


def main() -> None:
    """Open the page, make a motion with three anchors, take the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", default="open")
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, sync_playwright() as playwright:
        studio = Studio(ar.load(asked.model), port=18831, state=Path(state))
        browser = playwright.chromium.launch(executable_path=asked.browser, args=FLAGS, timeout=PATIENCE)
        page = browser.new_page(viewport={"width": 1180, "height": 680})
        page.set_default_timeout(PATIENCE)
        page.goto(studio.address)
        page.get_by_role("button", name="Generate").wait_for()
        (session,) = studio.sessions.values()
        walk(session)
        page.get_by_text("generate done").wait_for()
        for _ in range(round(MOMENT / 0.05)):
            page.keyboard.press("ArrowRight")
        page.get_by_role("tab", name="Anchors").click()
        page.get_by_role("button", name="Add target here").click()
        reach(session)
        page.wait_for_timeout(15_000)
        for close in page.locator(".mantine-Notification-closeButton").all():
            close.click()
        page.wait_for_timeout(4_000)
        page.screenshot(path=asked.out)
        browser.close()
        studio.close()


def walk(session: Session) -> None:
    """Two waypoints and a motion."""

    def waypoints(document: Document) -> Document:
        return document.waypoint(0.0, 0.0, 0.0).waypoint(document.last_time, 0.9, 2.6)

    session.set("prompt", text="a person walks forward and waves with the right hand")
    session.edit("add waypoints", waypoints)
    session.generate()
    session.wait(600)


def reach(session: Session) -> None:
    """The hand's target, raised."""
    while len(session.document.marks) < 3:
        time.sleep(0.1)
    hand = session.document.marks[-1]
    x, y, z = hand.position
    session.edit("raise the hand", lambda document: document.change(hand.id, position=(x, y + 0.2, z + 0.1)))
    session.follow("reach")
    session.wait(600)


if __name__ == "__main__":
    main()
