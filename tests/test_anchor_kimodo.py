import json
import math

import numpy as np
import pytest
import torch

from anchorroute import anchor_kimodo as kimodo
from anchorroute.anchors import Anchor, AnchorSet, Placement
from anchorroute.errors import AnchorError, FormatError
from anchorroute.motion.body import forward_kinematics
from anchorroute.motion.skeleton import JOINTS, REST_OFFSETS

PATH = {
    "type": "root2d",
    "frame_indices": [0, 90, 180],
    "smooth_root_2d": [[0.0, -0.013], [-1.169, 1.533], [0.739, 1.447]],
}


def test_a_root_path_is_planar_anchors_in_seconds() -> None:
    found = kimodo.read([{**PATH, "global_root_heading": [[1, 0], [0, 1], [-1, 0]]}])
    assert [anchor.at for anchor in found.anchors.anchors] == [0, 3, 6]
    assert found.anchors.anchors[1].position == (-1.169, None, 1.533)
    assert [anchor.heading for anchor in found.anchors.anchors] == pytest.approx([0, math.pi / 2, math.pi])
    assert "smoothed root" in found.dropped[0]
    with_height = {**PATH, "smooth_root_2d": [[0, 0.9, -0.013], [-1.169, 0.9, 1.533], [0.739, 0.9, 1.447]]}
    assert [a.position for a in kimodo.read([with_height]).anchors.anchors] == [
        a.position for a in found.anchors.anchors
    ]


def test_a_hand_of_the_smpl_skeleton_is_posed_on_this_body() -> None:
    rotations = np.zeros((1, 22, 3))
    rotations[0, JOINTS.index("left_shoulder")] = [0, 0, math.pi / 2]  # the left arm straight up
    entry = {
        "type": "left-hand",
        "frame_indices": [28],
        "root_positions": [[0.0, 0.96, 0.4]],
        "smooth_root_2d": [[0.0, 0.4]],
        "local_joints_rot": rotations.tolist(),
    }
    found = kimodo.read(json.dumps([entry]))
    root, wrist = found.anchors.anchors
    assert root == Anchor(28 / 30, "pelvis", (0.0, 0.96, 0.4))
    rest = np.zeros((22, 4))
    rest[:, 0] = 1
    pose = forward_kinematics(torch.tensor([[0.0, 0.96, 0.4]]), torch.tensor(rest, dtype=torch.float32)[None])[0]
    arm = np.linalg.norm(REST_OFFSETS[[JOINTS.index("left_elbow"), JOINTS.index("left_wrist")]], axis=1).sum()
    expected = pose[JOINTS.index("left_shoulder")].numpy() + np.array([0, arm, 0])
    assert wrist.joint == "left_wrist" and wrist.position == pytest.approx(expected, abs=1e-5)
    assert "rotations of hands" in found.dropped[-1]


def test_a_pose_wins_over_the_smoothed_root_of_the_same_frame() -> None:
    pose = {
        "type": "fullbody",
        "frame_indices": [90],
        "root_positions": [[-1.14, 0.95, 1.55]],
        "local_joints_rot": np.zeros((1, 22, 3)).tolist(),
    }
    found = kimodo.read([PATH, pose])
    at_three = [anchor for anchor in found.anchors.anchors if anchor.at == 3]
    assert [anchor.joint for anchor in at_three] == list(JOINTS)
    assert at_three[0].position == (-1.14, 0.95, 1.55)
    assert "smoothed root at frame 90" in found.dropped[-1]


def test_another_skeleton_keeps_the_root_and_says_so() -> None:
    entry = {
        "type": "end-effector",
        "joint_names": ["LeftHand", "nose"],
        "frame_indices": [0],
        "root_positions": [[0, 1, 0]],
        "local_joints_rot": np.zeros((1, 77, 3)).tolist(),
        "weight": 2,
    }
    found = kimodo.read([entry])
    assert found.anchors.anchors == (Anchor(0, "pelvis", (0, 1, 0)),)
    assert [text for text in found.dropped if "77 joints" in text]
    assert [text for text in found.dropped if "'nose'" in text] and [
        text for text in found.dropped if "'weight'" in text
    ]


def test_writing_a_path_and_reading_it_gives_the_path_back(tmp_path) -> None:
    anchors = AnchorSet(
        (
            Anchor(0.0, "pelvis", (0.0, None, 0.0), tolerance=0.05),
            Anchor(2.0, "pelvis", (1.0, None, 2.5), tolerance=0.05),
            Anchor(4.0, "pelvis", (0.25, None, 3.0), heading=0.5, tolerance=0.05),
        )
    )
    path = tmp_path / "constraints.json"
    dropped = kimodo.save(anchors, path)
    assert len(dropped) == 1 and "first_heading_angle=0.38" in dropped[0]
    back = kimodo.load(path).anchors
    assert [a.position for a in back.anchors] == [a.position for a in anchors.anchors]
    assert back.anchors[2].heading == pytest.approx(0.5)


def test_what_cannot_be_written_is_said_item_by_item() -> None:
    anchors = AnchorSet(
        (
            Anchor(1.0, "left_wrist", (0.3, 1.2, 0.5)),
            Anchor(1.0, "pelvis", (11.0, 0.9, 20.0)),
            Anchor(1.01, "pelvis", (11.0, None, 20.01)),
        ),
        Placement(0.0, (10.0, 20.0)),
        loop=True,
    )
    document, dropped = kimodo.write(anchors)
    assert document == [{"type": "root2d", "frame_indices": [30], "smooth_root_2d": [[1.0, 0.0]]}]
    told = "\n".join(dropped)
    for item in ("start at (10, 20)", "loop", "left_wrist", "height 0.9", "frame 30 at 30 a second"):
        assert item in told
    assert kimodo.write(AnchorSet()) == ([], ())


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": "root2d"}, "list of objects"),
        ([{"type": "root3d", "frame_indices": []}], "constraint 0: type 'root3d' is unknown; KIMODO has root2d"),
        ([{**PATH, "frame_indices": [0, -1, 2]}], "whole numbers from 0"),
        ([{**PATH, "frame_indices": [0, 1]}], "a row for each of 2 frames"),
        ([PATH, {"type": "root2d", "frame_indices": [0]}], "constraint 1: 'smooth_root_2d' is missing"),
        ([{**PATH, "smooth_root_2d": [[0, 0], [0], [1, 1]]}], "rows of numbers"),
        ([{**PATH, "smooth_root_2d": [[0, 0], [0, math.inf], [1, 1]]}], "not finite"),
        ([{"type": "end-effector", "frame_indices": [0], "root_positions": [[0, 1, 0]]}], "joint_names"),
        ([{"type": "left-foot", "frame_indices": [0], "root_positions": [[0, 1]]}], "root_positions"),
    ],
)
def test_broken_lists_say_how(document, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        kimodo.read(document)


def test_contradictions_are_found_here_too() -> None:
    with pytest.raises(AnchorError, match="contradict"):
        kimodo.read([PATH, {**PATH, "frame_indices": [0, 91, 181], "smooth_root_2d": [[1, 1], [2, 2], [3, 3]]}])
