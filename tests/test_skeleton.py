import itertools

import numpy as np
import pytest

from anchorroute.errors import AnchorError
from anchorroute.motion import skeleton


def test_every_joint_hangs_on_an_earlier_one() -> None:
    assert len(skeleton.JOINTS) == len(skeleton.PARENTS) == 22
    assert all(parent < joint for joint, parent in enumerate(skeleton.PARENTS))


def test_chains_follow_parents() -> None:
    for chain in skeleton.CHAINS:
        assert all(skeleton.PARENTS[child] == parent for parent, child in itertools.pairwise(chain))


def test_rest_pose_stands_with_arms_out() -> None:
    assert np.allclose(np.linalg.norm(skeleton.REST_OFFSETS, axis=-1), skeleton.BONE_LENGTHS, atol=1e-6)
    places = np.zeros((22, 3))
    for j in range(1, 22):
        places[j] = places[skeleton.PARENTS[j]] + skeleton.REST_OFFSETS[j]
    named = dict(zip(skeleton.JOINTS, places, strict=True))
    assert named["left_wrist"][0] > 0.6 and named["right_wrist"][0] < -0.6
    assert named["head"][1] > named["neck"][1] > named["pelvis"][1] > named["left_ankle"][1]
    assert named["left_foot"][2] > 0.1
    assert 0.5 < named["left_shoulder"][1] - named["left_hip"][1] < 0.8


def test_mirror_is_an_involution_that_swaps_sides() -> None:
    twice = [skeleton.MIRROR[j] for j in skeleton.MIRROR]
    assert twice == list(range(22))
    assert skeleton.JOINTS[skeleton.MIRROR[20]] == "right_wrist"


def test_joints_are_found_by_name_however_spelt() -> None:
    assert skeleton.joint_index("Left Wrist") == skeleton.joint_index("left-wrist") == skeleton.joint_index(20) == 20


@pytest.mark.parametrize(("wrong", "hint"), [("left_wirst", "left_wrist"), (22, "0 to 21"), (-1, "0 to 21")])
def test_an_unknown_joint_names_what_exists(wrong: str | int, hint: str) -> None:
    with pytest.raises(AnchorError, match=hint):
        skeleton.joint_index(wrong)
