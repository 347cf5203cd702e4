"""CMU's skeleton on the 22 joints: against the published check, and by what the mapping must keep."""

import os
from pathlib import Path

import numpy as np
import pytest

from anchorroute.errors import FormatError
from anchorroute.motion import retarget
from anchorroute.motion.bvh_raw import read_raw
from anchorroute.motion.skeleton import BONE_LENGTHS, PARENTS, joint_index

SHARED = Path(os.environ.get("ANCHORROUTE_SHARED", Path(__file__).resolve().parents[1] / "../shared"))
CMU = SHARED / "data" / "open-cmu"
needs_cmu = pytest.mark.skipif(not CMU.is_dir(), reason=f"open-cmu is not at {CMU}; set ANCHORROUTE_SHARED")
CHECKED = ("02_01", "05_06", "07_01", "13_18", "35_01", "49_02", "90_05")


@needs_cmu
@pytest.mark.parametrize("take", CHECKED)
def test_cmu_mapping_agrees_with_the_check_to_a_millimetre(take: str) -> None:
    with np.load(CMU / "mapping-check.npz", allow_pickle=False) as check:
        wanted = check[take]
    joints = retarget.cmu_to_22(read_raw(CMU / "bvh" / f"{take}.bvh.xz"))
    np.testing.assert_allclose(joints[: len(wanted)], wanted, atol=1e-3)


@needs_cmu
def test_cmu_bones_are_canonical_and_shoulders_are_where_shoulders_are() -> None:
    joints = retarget.cmu_to_22(read_raw(CMU / "bvh" / "02_01.bvh.xz")).astype(np.float64)
    bones = np.linalg.norm(joints[:, 1:] - joints[:, PARENTS[1:]], axis=-1)
    np.testing.assert_allclose(bones, np.broadcast_to(BONE_LENGTHS[1:], bones.shape), atol=1e-4)
    left, right = joints[:, joint_index("left_shoulder")], joints[:, joint_index("right_shoulder")]
    hips = 0.5 * (joints[:, joint_index("left_hip")] + joints[:, joint_index("right_hip")])
    assert abs(np.linalg.norm(left - right, axis=-1).mean() - 0.38) < 0.03
    assert abs((0.5 * (left + right) - hips)[:, 1].mean() - 0.53) < 0.04


@needs_cmu
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = read_raw(CMU / "bvh" / "07_01.bvh.xz")
    whole = retarget.cmu_to_22(raw)
    monkeypatch.setattr(retarget, "_BLOCK", 7)
    np.testing.assert_array_equal(retarget.cmu_to_22(raw), whole)


def test_a_skeleton_without_cmus_names_is_refused_by_name() -> None:
    text = "HIERARCHY\nROOT Hips\n{\nOFFSET 0 0 0\nCHANNELS 3 Xposition Yposition Zposition\n}\nMOTION\n"
    raw = read_raw(text + "Frames: 1\nFrame Time: 0.05\n0 0 0\n")
    with pytest.raises(FormatError, match="Spine"):
        retarget.cmu_to_22(raw)
