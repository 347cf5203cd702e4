import json
import math
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute import anchor_file
from anchorroute.anchors import Anchor, AnchorSet, Placement, canonicalise
from anchorroute.errors import AnchorError, FormatError

ANCHORS = AnchorSet(
    (
        Anchor(0.1 + 0.2, "left_wrist", (1 / 3, None, -0.8), tolerance=0.02),
        Anchor(2.0, "pelvis", (None, None, None), heading=-0.5),
    ),
    Placement(0.25, (1.0, -2.0)),
    loop=True,
)
ONE = {"at": 1, "joint": "pelvis", "position": [1, 2, 3]}


def test_writing_and_reading_gives_the_same_set(tmp_path) -> None:
    path = tmp_path / "anchors.json"
    ANCHORS.save(path)
    assert AnchorSet.load(path) == ANCHORS
    assert AnchorSet.from_json(path.read_text()) == ANCHORS == AnchorSet.from_json(ANCHORS.to_json())
    assert [file.name for file in tmp_path.iterdir()] == ["anchors.json"]


def test_the_schema_accepts_what_is_written_and_refuses_what_the_reader_refuses() -> None:
    schema = anchor_file.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(ANCHORS.to_json())
    assert validator.is_valid({"version": 1, "anchors": []})
    for broken in (
        {"version": 2, "anchors": []},
        {"version": 1},
        {"version": 1, "anchors": [{**ONE, "weight": 1}]},
        {"version": 1, "anchors": [{**ONE, "position": [1, 2]}]},
        {"version": 1, "anchors": [{**ONE, "at": -1}]},
        {"version": 1, "anchors": [{**ONE, "tolerance": 0}]},
    ):
        assert not validator.is_valid(broken)
        with pytest.raises((AnchorError, FormatError)):
            AnchorSet.from_json(broken)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([("m", 1.0), ("cm", 0.01), ("mm", 0.001)]),
    st.sampled_from([12.0, 20.0, 30.0, 23.976]),
    st.integers(0, 200),
    st.floats(-300, 300),
    st.floats(-180, 180),
)
def test_units_mean_what_they_say(units, fps: float, frame: int, length: float, degrees: float) -> None:
    name, metre = units
    document = {
        "version": 1,
        "time": "frames",
        "fps": fps,
        "units": name,
        "angles": "degrees",
        "start": {"position": [length, 0], "heading": degrees},
        "anchors": [{"at": frame, "joint": "Left Knee", "position": [length, None, 0], "tolerance": 3}],
    }
    found = AnchorSet.from_json(document)
    (anchor,) = found.anchors
    assert anchor.at * fps == pytest.approx(frame)
    assert anchor.joint == "left_knee"
    assert anchor.position[0] == pytest.approx(length * metre) and anchor.position[1] is None
    assert anchor.tolerance == pytest.approx(3 * metre)
    assert found.start.yaw == pytest.approx(math.radians(degrees))
    assert found.start.xz[0] == pytest.approx(length * metre)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[]", "KIMODO"),
        ('{"anchors": []}', 'write "version": 1'),
        ('{"version": 7, "anchors": []}', "version 7: this program knows version 1"),
        ('{"version": 1, "ancors": []}', "'ancors' is unknown; known there: version, anchors"),
        ('{"version": 1, "anchors": [{"when": 1}]}', "'when' in anchors is unknown; known there: at, joint, position"),
        ('{"version": 1, "anchors": [], "start": {"x": 1}}', "'x' in start is unknown; known there: position, heading"),
        ('{"version": 1, "anchors": [{"at": 1, "joint": "pelvis", "position": [0, NaN, 0]}]}', "NaN"),
        ('{"version": 1, "anchors": [{"at": 1, "joint": "pelvis", "position": [0, 1e999, 0]}]}', "no JSON"),
        ('{"version": 1, "anchors": [{"at": "1 s", "joint": "pelvis"}]}', r"anchors\[0\]\.at"),
        ('{"version": 1, "time": "frames", "anchors": []}', '"fps": 20'),
        ('{"version": 1, "fps": 20, "anchors": []}', '"time": "frames"'),
        ('{"version": 1, "units": "in", "anchors": []}', "units"),
        ("{", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_breaks_the_format_says_how(document: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        AnchorSet.from_json(document)


def test_a_bad_anchor_is_named_by_its_place(tmp_path) -> None:
    document = {"version": 1, "anchors": [ONE, {**ONE, "at": 2, "joint": "hed"}]}
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    with pytest.raises(AnchorError, match=r"bad\.json: anchors\[1\]: joint 'hed'.*did you mean 'head'"):
        AnchorSet.load(path)


def test_a_hundred_megabytes_are_refused_unread(tmp_path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(FormatError, match="100 MB are too much"):
        AnchorSet.load(path)


def test_missing_files_and_folders_are_format_errors(tmp_path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        AnchorSet.load(tmp_path / "none.json")
    with pytest.raises(FormatError, match="cannot be read"):
        AnchorSet.load(tmp_path)
    with pytest.raises(FormatError, match="cannot be written"):
        ANCHORS.save(tmp_path / "no" / "folder.json")


def test_a_half_free_target_in_turned_axes_cannot_be_written() -> None:
    canonical, placement = canonicalise(ANCHORS)
    AnchorSet.from_json(canonical.to_json())  # x and z both set: fine in any axes
    half = AnchorSet((Anchor(1.0, "head", (1.0, None, None)),), Placement(0.3, (0.0, 0.0)))
    canonical, placement = canonicalise(half)
    with pytest.raises(AnchorError, match="world's frame"):
        canonical.to_json()
    assert canonical.moved(placement).to_json()["anchors"] == half.to_json()["anchors"]


def test_the_documents_examples_run(tmp_path, monkeypatch) -> None:
    text = (Path(__file__).parents[1] / "docs/concepts/anchors.md").read_text(encoding="utf-8")
    (code,), (document,) = (re.findall(f"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "json"))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert len(AnchorSet.load("shelf.json")) == 3
    assert AnchorSet.from_json(document).anchors[1].at == 2.5
    jsonschema.validate(json.loads(document), anchor_file.schema())
