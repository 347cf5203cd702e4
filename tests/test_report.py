"""The report: distances by hand, times between frames, rates, and the same figures as the evaluation's."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.evaluate.metrics import physics
from anchorroute.motion.motion import Motion
from anchorroute.report import Report, foot_skating, mean_jerk, measure

from motions import walk


@pytest.fixture(scope="module")
def motion() -> Motion:
    return Motion.from_joints(walk(61).numpy())


def _at(motion: Motion, frame: int, joint: int) -> np.ndarray:
    return np.asarray(motion.joints[frame, joint], dtype=float)


def test_distance_counts_set_coordinates_alone(motion: Motion) -> None:
    x, y, z = _at(motion, 20, 20)
    anchors = AnchorSet((Anchor(1.0, "left_wrist", (x + 0.003, None, z - 0.004)),))
    report = measure(motion, anchors)
    assert report.anchors[0].error_mm == pytest.approx(5.0, abs=1e-3)
    assert report.anchors[0].reached == pytest.approx((x, y, z), abs=1e-6)


def test_tolerance_decides(motion: Motion) -> None:
    x, y, z = _at(motion, 40, 0)
    near = Anchor(2.0, "pelvis", (x + 0.006, y, z))
    assert not measure(motion, AnchorSet((near,))).all_met
    assert measure(motion, AnchorSet((dataclasses.replace(near, tolerance=0.007),))).all_met


def test_heading_is_judged_in_degrees(motion: Motion) -> None:
    yaw = math.atan2(
        *(motion.joints[20, 1] - motion.joints[20, 2])[[2, 0]]
    )  # rough; the report's own is measured below
    line = measure(motion, AnchorSet((Anchor(1.0, "pelvis", (None, None, None), heading=yaw),))).anchors[0]
    assert line.heading_error_deg is not None
    truth = yaw + math.radians(line.heading_error_deg)
    exact = measure(motion, AnchorSet((Anchor(1.0, "pelvis", (None, None, None), heading=truth),))).anchors[0]
    off = measure(motion, AnchorSet((Anchor(1.0, "pelvis", (None, None, None), heading=truth + 0.1),))).anchors[0]
    assert exact.met and abs(exact.heading_error_deg or 0) < 1e-3
    assert not off.met and abs(abs(off.heading_error_deg or 0) - math.degrees(0.1)) < 1e-3


def test_between_frames_is_the_line_between_neighbours(motion: Motion) -> None:
    middle = (_at(motion, 10, 15) + _at(motion, 11, 15)) / 2
    line = measure(motion, AnchorSet((Anchor(0.525, "head", tuple(middle)),))).anchors[0]
    assert line.error_mm < 1e-3
    assert "between two frames" in line.note


@pytest.mark.parametrize("fps", [20.0, 40.0, 60.0])
def test_frame_times_hold_at_multiples_of_the_rate(motion: Motion, fps: float) -> None:
    anchors = AnchorSet(tuple(Anchor(f / 20, "right_foot", tuple(_at(motion, f, 11))) for f in (0, 13, 60)))
    report = measure(motion.resample(fps), anchors)
    assert report.worst_mm < 0.01
    assert not [line.note for line in report.anchors if line.note]


def test_file_is_what_is_measured(motion: Motion, tmp_path: Path) -> None:
    anchors = AnchorSet((Anchor(1.0, "head", tuple(_at(motion, 20, 15))),))
    path = motion.save(tmp_path / "a.bvh")
    report = measure(path, anchors)
    assert report.source == str(path)
    assert 0 <= report.worst_mm < 1.0


def test_a_motion_brings_its_own_anchors(motion: Motion) -> None:
    own = {"at": 1.0, "joint": "head", "position": [0.0, 1.5, 0.0]}
    report = measure(dataclasses.replace(motion, anchors=(own,)))
    assert [line.joint for line in report.anchors] == ["head"]


def test_figures_agree_with_the_evaluation() -> None:
    joints = walk(80, speed=2.5)
    joints[..., 1] -= 0.02  # toes low enough to count
    assert foot_skating(joints.numpy(), 20.0) == pytest.approx(float(physics.foot_skating(joints)), abs=1e-6)
    assert mean_jerk(joints.numpy(), 20.0) == pytest.approx(float(physics.jerk(joints.double())), rel=1e-4)
    still = torch.zeros(10, 22, 3)
    assert foot_skating(still.numpy(), 20.0) == 0.0


def test_table_and_json_say_the_same(motion: Motion) -> None:
    far = Anchor(1.0, "head", (9.0, 1.5, 0.0))
    report = measure(motion, AnchorSet((far,)))
    plain = json.loads(report.to_json())
    assert plain["met"] == 0 and plain["of"] == 1
    assert plain["anchors"][0]["met"] is False
    assert "NOT MET" in str(report) and "0 of 1 anchors met" in str(report)


def test_no_anchors_is_all_met(motion: Motion) -> None:
    report: Report = measure(motion, AnchorSet(()))
    assert report.all_met and report.worst_mm == 0.0
    assert str(report).startswith("no anchors")
