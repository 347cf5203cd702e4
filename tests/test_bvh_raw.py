"""Reading any BVH: against scipy's rotations, in blocks of any size, and everything that can be wrong with a file."""

import itertools
import lzma
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from anchorroute.errors import FormatError
from anchorroute.motion import bvh_raw
from anchorroute.motion.bvh_numbers import parse_rows
from anchorroute.motion.bvh_raw import read_raw

TEXT = """HIERARCHY
ROOT Hips
{
  OFFSET 0 0 0
  CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
  JOINT Left Arm
  {
    OFFSET 1 2 3
    CHANNELS 3 Yrotation Zrotation Xrotation
    End Site
    {
      OFFSET 0 4 0
    }
  }
}
MOTION
Frames: 3
Frame Time: 0.0083333
1 2 3 10 20 30 40 50 60
1 2 4 10 20 30 -40 5e1 60.5
1 2 5 10 20 30 0 0 0
"""


def edited(number: int, new: str) -> str:
    """The text with one line replaced, counted from 1."""
    lines = TEXT.split("\n")
    lines[number - 1] = new
    return "\n".join(lines)


def test_hierarchy_channels_and_numbers() -> None:
    raw = read_raw(TEXT)
    assert raw.names == ("Hips", "Left Arm", "Left Arm:end")
    assert raw.parents == (-1, 0, 1) and raw.lines == (2, 6, 10)
    assert raw.fps == 120.0 and raw.frames == 3
    np.testing.assert_array_equal(raw.values[1], [1, 2, 4, 10, 20, 30, -40, 50, 60.5])


def test_kinematics_agree_with_scipy() -> None:
    positions, rotations = read_raw(TEXT).world()
    root = Rotation.from_euler("ZXY", [10, 20, 30], degrees=True)
    arm = root * Rotation.from_euler("YZX", [40, 50, 60], degrees=True)
    np.testing.assert_allclose(rotations[0, 1], arm.as_matrix(), atol=1e-12)
    np.testing.assert_allclose(positions[0, 1], np.array([1, 2, 3]) + root.apply([1, 2, 3]), atol=1e-12)
    np.testing.assert_allclose(positions[0, 2], positions[0, 1] + arm.apply([0, 4, 0]), atol=1e-12)
    np.testing.assert_allclose(rotations[:, 2], rotations[:, 1], atol=0)


@pytest.mark.parametrize("order", list(itertools.permutations("XYZ")))
def test_every_channel_order(order: tuple[str, ...]) -> None:
    channels = " ".join(f"{axis}rotation" for axis in order)
    raw = read_raw(edited(9, f"    CHANNELS 3 {channels}"))
    wanted = Rotation.from_euler("".join(order), [40, 50, 60], degrees=True).as_matrix()
    np.testing.assert_allclose(raw.local_rotations(1)[0], wanted, atol=1e-12)


def test_position_channels_replace_the_offset() -> None:
    lines = TEXT.replace("CHANNELS 3 Y", "CHANNELS 6 Xposition Yposition Zposition Y").split("\n")
    rows = [" ".join([*line.split()[:6], "7 8 9", *line.split()[6:]]) for line in lines[18:21]]
    raw = read_raw("\n".join(lines[:18] + rows) + "\n")
    turn = Rotation.from_euler("ZXY", [10, 20, 30], degrees=True)
    np.testing.assert_allclose(raw.world()[0][0, 1], np.array([1, 2, 3]) + turn.apply([7, 8, 9]), atol=1e-12)


@given(block=st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_blocks_of_any_size_read_the_same(block: int) -> None:
    before = bvh_raw._BLOCK_BYTES
    bvh_raw._BLOCK_BYTES = block
    try:
        np.testing.assert_array_equal(read_raw(TEXT).values, VALUES)
    finally:
        bvh_raw._BLOCK_BYTES = before


VALUES = read_raw(TEXT).values


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.rstrip("\n"),
        TEXT + "\n\n",
        TEXT.replace(" 10 20", "\t10  20"),
        TEXT.replace("\n{", " {"),
        TEXT.replace("ROOT", "Root").replace("rotation", "ROTATION"),
    ],
    ids=["crlf", "bom", "no last newline", "blank lines", "tabs", "brace on the line", "case"],
)
def test_harmless_differences(text: str) -> None:
    np.testing.assert_array_equal(read_raw(text).values, VALUES)


def test_files_bytes_and_xz_are_one(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.bvh", tmp_path / "a.bvh.xz"
    plain.write_text(TEXT)
    packed.write_bytes(lzma.compress(TEXT.encode()))
    for source in (plain, str(plain), packed, TEXT.encode(), packed.read_bytes()):
        np.testing.assert_array_equal(read_raw(source).values, VALUES)


BAD = {
    "not a bvh": (edited(1, "HIERARCHI"), 1, "begins with HIERARCHY"),
    "second root": (edited(6, "ROOT Again"), 6, "second ROOT"),
    "joint outside": ("HIERARCHY\nJOINT A\n{\n", 2, "outside"),
    "unknown word": (edited(8, "OFSET 1 2 3"), 8, "'OFSET' is no BVH keyword"),
    "short offset": (edited(8, "OFFSET 1 2"), 8, "three finite numbers"),
    "nan offset": (edited(8, "OFFSET 1 nan 3"), 8, "three finite numbers"),
    "count and list differ": (edited(9, "CHANNELS 3 Yrotation Zrotation"), 9, "says 3 and lists 2"),
    "twice the same": (edited(9, "CHANNELS 3 Yrotation Yrotation Zrotation"), 9, "at most once"),
    "odd channel": (edited(9, "CHANNELS 3 Yrotation Zrotation Wrotation"), 9, "Xposition .. Zrotation"),
    "same name": (edited(6, "JOINT Hips"), 6, "used on line 2"),
    "no name": (edited(6, "JOINT"), 6, "needs a name"),
    "no brace": (edited(7, ""), 8, "must follow 'Left Arm'"),
    "brace too many": (edited(15, "}\n}"), 16, "closes nothing"),
    "brace too few": (edited(15, ""), 16, "still open"),
    "no offset": (edited(8, ""), 14, "has no OFFSET"),
    "no frames": (edited(17, "Frames: none"), 17, "'Frames: N'"),
    "zero frames": (edited(17, "Frames: 0"), 17, "no frames"),
    "no time": (edited(18, "Frame Time: 0"), 18, "above 0"),
    "comma": (edited(18, "Frame Time: 0,05"), 18, "above 0"),
    "nan value": (edited(20, "1 2 4 10 nan 30 -40 50 60.5"), 20, "value 5 is 'nan'"),
    "inf value": (edited(20, "1 2 4 10 20 inf -40 50 60.5"), 20, "value 6 is 'inf'"),
    "two points": (edited(20, "1 2 4 10 2.0.1 30 -40 50 60.5"), 20, "value 5 is '2.0.1'"),
    "two signs": (edited(20, "1 2 4 10 --2 30 -40 50 60.5"), 20, "value 5 is '--2'"),
    "sign alone": (edited(20, "1 2 4 10 - 30 -40 50 60.5"), 20, "value 5 is '-'"),
    "too large": (edited(20, "1 2 4 10 1e999 30 -40 50 60.5"), 20, "value 5 is '1e999'"),
    "word": (edited(20, "1 2 4 10 two 30 -40 50 60.5"), 20, "value 5 is 'two'"),
    "a value short": (edited(20, "1 2 4 10 20 30 -40 50"), 20, "8 values, but the hierarchy has 9"),
    "a value over": (edited(20, "1 2 4 10 20 30 -40 50 60 70"), 20, "10 values, but the hierarchy has 9"),
    "a value on the next line": (
        edited(20, "1 2 4 10 20 30 -40 50").replace("1 2 5 10", "60 1 2 5 10"), 20, "8 values"
    ),
    "rows missing": (edited(17, "Frames: 4"), 21, "ends after 3"),
    "rows over": (edited(17, "Frames: 2"), 21, "more rows follow"),
    "empty": ("\n", 1, "ends here"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_file_and_line(name: str, tmp_path: Path) -> None:
    text, line, words = BAD[name]
    path = tmp_path / "take 1.bvh"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_raw(path)
    assert f"{path}, line {line}" in str(caught.value) and words in str(caught.value)


@given(
    numbers=st.lists(
        st.one_of(
            st.floats(-1e4, 1e4).map(lambda x: f"{x:.6f}"),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.integers(-(10**17), 10**17).map(str),
            st.sampled_from(["-0", "+1.5", ".5", "5.", "-.25", "1e3", "-2E-2", "000.100"]),
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=150, deadline=None)
def test_numbers_are_those_of_python(numbers: list[str]) -> None:
    """To the last bit: short decimals by the fast way, long ones and exponents by numpy's."""
    found = parse_rows(" ".join(numbers).encode() + b"\n", len(numbers), "a", 0)
    np.testing.assert_array_equal(found[0], [float(text) for text in numbers])


def test_text_that_is_not_utf8_names_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin.bvh"
    path.write_bytes(edited(6, "JOINT Hüfte").encode("latin-1"))
    with pytest.raises(FormatError, match=r"line 6: byte 0xfc at column 8 is not UTF-8"):
        read_raw(path)
    path.write_bytes(TEXT.encode("utf-16"))
    with pytest.raises(FormatError, match="UTF-16"):
        read_raw(path)


@given(cut=st.integers(0, len(TEXT) - 1))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_is_refused_or_whole(cut: int) -> None:
    """A cut inside the last number cannot be told from a shorter number; anywhere else it must be noticed."""
    try:
        raw = read_raw((TEXT[:cut] + "\n").encode())
    except FormatError:
        return
    assert raw.values.shape == VALUES.shape
    np.testing.assert_array_equal(raw.values.ravel()[:-1], VALUES.ravel()[:-1])


def test_damaged_xz_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "a.bvh.xz"
    path.write_bytes(lzma.compress(TEXT.encode())[:-20])
    with pytest.raises(FormatError, match="damaged or cut off"):
        read_raw(path)
    with pytest.raises(FormatError, match="cannot be opened"):
        read_raw(tmp_path / "none.bvh")


def test_memory_stays_near_the_numbers(tmp_path: Path) -> None:
    """200 MB of text must stay under 1 GB; here the same ratio on 9 MB, measured by Python's own accounting."""
    rows = 120_000
    path = tmp_path / "long.bvh"
    line = "1.5 -2.25 30.125 10.5 -20.75 30.5 40.25 50.5 -60.125\n"
    path.write_text(edited(17, f"Frames: {rows}").split("1 2 3 10")[0] + line * rows)
    size = path.stat().st_size
    tracemalloc.start()
    raw = read_raw(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert raw.frames == rows and raw.values.nbytes < peak
    assert peak - raw.values.nbytes < 24 * bvh_raw._BLOCK_BYTES, f"{peak / size:.1f} bytes a byte of text"
