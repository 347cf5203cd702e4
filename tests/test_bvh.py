"""BVH out and in: a millimetre whatever the names, the unit and the rate; foreign skeletons by their joints."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from anchorroute.errors import FormatError
from anchorroute.motion import bvh
from anchorroute.motion.bvh_names import MIXAMO
from anchorroute.motion.bvh_raw import read_raw
from anchorroute.motion.motion import Motion
from anchorroute.motion.rotation import normalise
from anchorroute.motion.skeleton import JOINTS, REST_OFFSETS, joint_index

from motions import walk


def tumbling(seed: int = 0, frames: int = 30) -> Motion:
    """Every joint turned anyhow, through every gimbal lock: harder than any human motion."""
    generator = torch.Generator().manual_seed(seed)
    turns = normalise(torch.randn(frames, 22, 4, generator=generator).cumsum(0))
    root = torch.randn(frames, 3, generator=generator).cumsum(0)
    return Motion(root=root.numpy(), rotations=turns.numpy())


def distance(a: Motion, b: Motion) -> float:
    return float(np.linalg.norm(a.joints - b.joints, axis=-1).max())


@given(
    seed=st.integers(0, 1000),
    names=st.sampled_from(["mixamo", "smpl"]),
    units=st.sampled_from(["cm", "m"]),
    fps=st.sampled_from([None, 24.0, 30.0, 59.94, 60.0, 120.0]),
)
@settings(max_examples=15, deadline=None)
def test_written_then_read_is_the_same_motion(tmp_path_factory, seed, names, units, fps) -> None:  # type: ignore[no-untyped-def]
    motion = tumbling(seed)
    path = bvh.save(motion, tmp_path_factory.mktemp("bvh") / "a.bvh", names=names, units=units, fps=fps)
    found, wanted = bvh.load(path), motion.resample(fps or 20.0)
    assert found.fps == pytest.approx(wanted.fps, rel=1e-6)
    assert distance(found, wanted) < 1e-4
    assert min(np.abs((found.rotations * wanted.rotations).sum(-1)).min(), 1.0) > 1 - 1e-6


def test_two_frames_are_enough_and_one_is_not(tmp_path: Path) -> None:
    path = bvh.save(tumbling(frames=2), tmp_path / "a.bvh")
    assert bvh.load(path).frames == 2
    lines = path.read_text().replace("Frames: 2", "Frames: 1").split("\n")
    with pytest.raises(FormatError, match="two frames"):
        bvh.load(("\n".join(lines[:-2]) + "\n").encode())


def test_the_rest_pose_is_a_standing_t_pose_with_end_sites(tmp_path: Path) -> None:
    raw = read_raw(bvh.save(tumbling(), tmp_path / "a.bvh", units="m"))
    assert raw.names[0] == "Hips" and set(MIXAMO) < set(raw.names)
    assert {"Head:end", "LeftHand:end", "RightHand:end", "LeftToeBase:end", "RightToeBase:end"} < set(raw.names)
    order = [raw.index(name) for name in MIXAMO]
    np.testing.assert_allclose(raw.offsets[order], REST_OFFSETS, atol=1e-6)
    raw.values[:] = 0.0
    rest = raw.world(0, 1)[0][0]
    at = {name: rest[raw.index(name)] for name in raw.names}
    assert at["Head:end"][1] > at["Neck"][1] > at["Hips"][1] > at["LeftLeg"][1] > at["LeftFoot"][1]
    assert at["LeftHand"][0] > 0.5 and at["RightHand"][0] < -0.5
    assert abs(at["LeftHand"][1] - at["LeftArm"][1]) < 1e-6 and at["LeftToeBase"][2] > at["LeftFoot"][2]


def test_angles_do_not_jump_where_the_motion_does_not(tmp_path: Path) -> None:
    """A body that spins several times about the vertical: the written angle grows past 360 degrees, frame by frame."""
    yaw = np.linspace(0.0, 5 * np.pi, 100)
    turns = np.tile([1.0, 0, 0, 0], (100, 22, 1))
    turns[:, 0] = np.stack((np.cos(yaw / 2), 0 * yaw, np.sin(yaw / 2), 0 * yaw), -1)
    angles = bvh.euler_zxy(turns)[:, 0]
    np.testing.assert_allclose(angles[:, 2], np.rad2deg(yaw), atol=1e-3)


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_angles_mean_the_rotations_by_scipy(seed: int) -> None:
    turns = tumbling(seed, 10).rotations
    angles = bvh.euler_zxy(turns).reshape(-1, 3)
    ours = Rotation.from_euler("ZXY", angles, degrees=True)
    wanted = Rotation.from_quat(turns.reshape(-1, 4)[:, [1, 2, 3, 0]])
    assert (ours.inv() * wanted).magnitude().max() < 1e-6


@pytest.mark.parametrize("pitch", [90.0, -90.0])
def test_gimbal_lock_is_still_the_right_rotation(pitch: float) -> None:
    wanted = Rotation.from_euler("ZXY", [[20.0, pitch, 50.0]], degrees=True)
    quats = wanted.as_quat()[:, [3, 0, 1, 2]][:, None]
    found = Rotation.from_euler("ZXY", bvh.euler_zxy(np.repeat(quats, 2, axis=0))[:, 0], degrees=True)
    assert (found[0].inv() * wanted[0]).magnitude() < 1e-6


def renamed(path: Path, change: dict[str, str]) -> str:
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines):
        words = line.split()
        if words[:1] in (["JOINT"], ["ROOT"]):
            lines[number] = line.replace(words[1], change.get(words[1], words[1]))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "change",
    [
        {name: f"mixamorig:{name}" for name in MIXAMO},
        {name: f"Character1_Ctrl:{name.upper()}" for name in MIXAMO},
        dict(zip(MIXAMO, JOINTS)),
        dict(zip(MIXAMO, ["Pelvis", "L_Hip", "R_Hip", "Spine1", "L_Knee", "R_Knee", "Spine2", "L_Ankle", "R_Ankle",
                          "Spine3", "L_Foot", "R_Foot", "Neck", "L_Collar", "R_Collar", "Head", "L_Shoulder",
                          "R_Shoulder", "L_Elbow", "R_Elbow", "L_Wrist", "R_Wrist"])),
    ],
    ids=["mixamorig", "namespace and capitals", "smpl", "smpl, short"],
)  # fmt: skip
def test_names_with_namespaces_and_habits(change: dict[str, str], tmp_path: Path) -> None:
    motion = tumbling()
    path = bvh.save(motion, tmp_path / "a.bvh")
    assert distance(bvh.load(renamed(path, change).encode()), motion) < 1e-3


def test_a_missing_joint_is_named(tmp_path: Path) -> None:
    path = bvh.save(tumbling(), tmp_path / "a.bvh")
    with pytest.raises(FormatError, match=r"fit mixamo best.*missing: LeftToeBase"):
        bvh.load(renamed(path, {"LeftToeBase": "LeftBall"}).encode())


def foreign(tmp_path: Path, scale: float) -> tuple[str, Motion]:
    """The walk on a skeleton of another size whose rest pose hangs its arms: same directions, other rotations."""
    motion = Motion.from_joints(walk(40).numpy())
    lines = bvh.save(motion, tmp_path / "a.bvh").read_text().split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("Frame Time")) + 1
    for number, line in enumerate(lines):
        words = line.split()
        if words[:1] == ["OFFSET"]:
            lines[number] = "OFFSET " + " ".join(str(scale * float(word)) for word in words[1:])
        elif number >= start and words:
            lines[number] = " ".join([*(str(scale * float(word)) for word in words[:3]), *words[3:]])
    return "\n".join(lines), motion


@pytest.mark.parametrize("scale", [0.4, 1.7, 39.37])
def test_another_size_or_unit_is_scaled_by_the_legs(scale: float, tmp_path: Path) -> None:
    text, motion = foreign(tmp_path, scale)
    assert distance(bvh.load(text.encode()), motion) < 1e-3


@pytest.mark.parametrize("source", ["mixamo", "cmu"])
def test_z_up_files_such_as_blenders_stand_up(source: str, tmp_path: Path) -> None:
    """The same file in Blender's axes: every offset, position and rotation axis renamed, nothing else."""
    text = foreign(tmp_path, 2.0)[0] if source == "mixamo" else CMU_STICK
    turned = z_up(text)
    assert abs(read_raw(turned.encode()).world()[0][0, 0, 2]) > abs(read_raw(turned.encode()).world()[0][0, 0, 1])
    assert distance(bvh.load(turned.encode()), bvh.load(text.encode())) < 1e-4


def z_up(text: str) -> str:
    """(x, y, z) to (x, -z, y) in offsets and positions, and the same for the axes that angles turn about."""
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("Frame Time")) + 1
    for number, line in enumerate(lines):
        words = line.split()
        if words[:1] == ["OFFSET"]:
            x, y, z = (float(word) for word in words[1:])
            lines[number] = f"OFFSET {x} {-z} {y}"
        elif words[:1] == ["CHANNELS"]:
            lines[number] = line.translate(str.maketrans("YZ", "ZY"))
    columns = [word for line in lines for word in line.split()[2:] if line.split()[0] == "CHANNELS"]
    turned = [-1.0 if word.startswith("Y") else 1.0 for word in columns]  # what was +Z is now -Y
    for number in range(start, len(lines)):
        if lines[number]:
            lines[number] = " ".join(str(sign * float(word)) for sign, word in zip(turned, lines[number].split()))
    return "\n".join(lines)


def cmu_stick() -> str:
    """A small body with CMU's joint names, bent a little everywhere, two frames."""
    tree = {
        "Hips": (None, (0, 0, 0)), "LHipJoint": ("Hips", (0, 0, 0)), "LeftUpLeg": ("LHipJoint", (1.3, -1.8, 0.8)),
        "LeftLeg": ("LeftUpLeg", (2.4, -6.7, 0)), "LeftFoot": ("LeftLeg", (2.5, -7, 0)),
        "LeftToeBase": ("LeftFoot", (0.2, -0.4, 2.3)), "RHipJoint": ("Hips", (0, 0, 0)),
        "RightUpLeg": ("RHipJoint", (-1.3, -1.8, 0.8)), "RightLeg": ("RightUpLeg", (-2.5, -7, 0)),
        "RightFoot": ("RightLeg", (-2.5, -7, 0)), "RightToeBase": ("RightFoot", (-0.2, -0.4, 2.3)),
        "LowerBack": ("Hips", (0, 0, 0)), "Spine": ("LowerBack", (0, 2, -0.2)), "Spine1": ("Spine", (0, 2, 0)),
        "Neck": ("Spine1", (0, 0, 0)), "Neck1": ("Neck", (0, 1.7, 0.2)), "Head": ("Neck1", (0.1, 1.7, -0.1)),
        "LeftShoulder": ("Spine1", (0, 0, 0)), "LeftArm": ("LeftShoulder", (3.4, 1.2, -0.3)),
        "LeftForeArm": ("LeftArm", (5, 0, 0)), "LeftHand": ("LeftForeArm", (3.5, 0, 0)),
        "RightShoulder": ("Spine1", (0, 0, 0)), "RightArm": ("RightShoulder", (-3.1, 1.4, -0.4)),
        "RightForeArm": ("RightArm", (-5.2, 0, 0)), "RightHand": ("RightForeArm", (-3.4, 0, 0)),
    }  # fmt: skip
    lines = ["HIERARCHY"]

    def write(name: str) -> None:
        parent, offset = tree[name]
        position = "" if parent else "Xposition Yposition Zposition "
        lines.extend([f"{'JOINT' if parent else 'ROOT'} {name}", "{", "OFFSET " + " ".join(map(str, offset)),
                      f"CHANNELS {3 if parent else 6} {position}Zrotation Yrotation Xrotation"])  # fmt: skip
        below = [child for child, (above, _) in tree.items() if above == name]
        for child in below:
            write(child)
        if not below:
            lines.extend(["End Site", "{", "OFFSET 0 1.5 0.1", "}"])
        lines.append("}")

    write("Hips")
    rows = [[1.0, 17.0, 2.0, *((number * step) % 23 - 11 for number in range(75))] for step in (7, 5)]
    lines += ["MOTION", "Frames: 2", "Frame Time: 0.05", *(" ".join(map(str, row)) for row in rows)]
    return "\n".join(lines) + "\n"


CMU_STICK = cmu_stick()


def test_a_bone_without_length_names_its_line(tmp_path: Path) -> None:
    text, _ = foreign(tmp_path, 2.0)
    lines = text.split("\n")
    where = next(number for number, line in enumerate(lines) if line.split() == ["JOINT", "LeftForeArm"])
    lines[where + 2] = "OFFSET 0 0 0"
    with pytest.raises(FormatError, match=f"line {where + 1}: .*'LeftForeArm' has no length"):
        bvh.load("\n".join(lines).encode())


def test_a_file_that_reads_back_wrong_is_an_error_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bvh.save(tumbling(1), tmp_path / "a.bvh")
    before = path.read_bytes()
    honest = bvh.euler_zxy
    monkeypatch.setattr(bvh, "euler_zxy", lambda turns: honest(turns) + 0.5)
    with pytest.raises(FormatError, match=r"a\.bvh: joints read back differ by .* \(nothing was written\)"):
        bvh.save(tumbling(2), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_options_out_of_the_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="'mixamo' or 'smpl'"):
        bvh.save(tumbling(), tmp_path / "a.bvh", names="unreal")  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"ends in \.bvh"):
        bvh.save(tumbling(), tmp_path / "a.bvh.xz")


def test_cmu_takes_load_as_people(shared: Path) -> None:
    motion = bvh.load(shared / "data" / "open-cmu" / "bvh" / "02_01.bvh.xz")
    assert motion.frames == 58 and motion.fps == 20.0
    heights = motion.joints[..., 1]
    assert np.all(heights[:, joint_index("head")] > heights[:, joint_index("neck")])
    assert abs(heights[:, joint_index("pelvis")].mean() - 0.93) < 0.08
