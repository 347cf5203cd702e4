"""Contact sheets: the picture is there, holds what it should, and bad input is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anchorroute.errors import FormatError
from anchorroute.motion import sheet
from anchorroute.motion.motion import Motion

from motions import walk


def near(picture: Image.Image, colour: tuple[int, int, int]) -> int:
    return int((np.abs(np.asarray(picture).astype(int) - colour).max(-1) < 12).sum())


def test_a_row_a_motion_and_both_sides_in_their_colours(tmp_path: Path) -> None:
    motion = Motion.from_joints(walk(40).numpy(), text="walk")
    path = sheet.save([motion, walk(30).numpy()], tmp_path / "a.png", titles=["one", "two"])
    with Image.open(path) as found:
        one = sheet.image([motion], titles=["one"])
        assert found.size[0] == one.size[0] and found.size[1] - 10 == 2 * (one.size[1] - 10)
        assert near(found, sheet._LEFT) > 300 and near(found, sheet._RIGHT) > 300


def test_the_mirror_image_swaps_the_colours_sides() -> None:
    """A body facing the camera has its left on the picture's right."""
    turns = np.tile([1.0, 0, 0, 0], (2, 22, 1))
    picture = np.asarray(sheet.image([Motion(root=np.tile([0, 0.98, 0], (2, 1)), rotations=turns)], figures=1)).astype(
        int
    )
    left, right = (np.argwhere(np.abs(picture - c).max(-1) < 12)[:, 1].mean() for c in (sheet._LEFT, sheet._RIGHT))
    assert left > right


def test_anchors_are_crosses_on_figure_and_path() -> None:
    motion = Motion.from_joints(walk(40).numpy())
    spot = {"at": 1.0, "joint": "head", "position": [float(motion.root[20, 0]), None, 3.0]}
    marked = Motion(root=motion.root, rotations=motion.rotations, anchors=(spot,))
    assert near(sheet.image([motion]), sheet._ANCHOR) == 0 < near(sheet.image([marked]), sheet._ANCHOR)


@pytest.mark.parametrize(
    ("motions", "titles", "words"),
    [
        ([], None, "no motions"),
        ([np.zeros((4, 22, 3))], ["a", "b"], "2 titles for 1"),
        ([np.zeros((4, 21, 3))], None, r"\[frames, 22, 3\]"),
        ([np.full((4, 22, 3), np.nan)], None, "not finite"),
    ],
)
def test_what_cannot_be_drawn(motions: list, titles: list | None, words: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=words):
        sheet.save(motions, tmp_path / "a.png", titles=titles)
    assert not list(tmp_path.iterdir())
