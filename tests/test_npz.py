"""NPZ: self-describing, exact, and never a pickle."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from anchorroute.errors import FormatError
from anchorroute.motion import npz
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import JOINTS, PARENTS

from motions import walk


def example() -> Motion:
    return Motion.from_joints(
        walk(25).numpy(),
        text="geht, läuft; 歩く",
        anchors=({"at": 0.5, "joint": "pelvis", "position": [1.0, None, 2.0]},),
        seed=2**40,
        model="open",
        provenance={"nested": {"a": [1, None, "x"]}},
        loop=True,
    )


def test_reads_back_bit_for_bit(tmp_path: Path) -> None:
    motion = example()
    assert npz.load(npz.save(motion, tmp_path / "a.npz")) == motion
    bare = Motion(root=motion.root, rotations=motion.rotations, fps=59.94)
    assert npz.load(npz.save(bare, tmp_path / "b.npz")) == bare


def test_the_file_explains_itself_without_this_package(tmp_path: Path) -> None:
    motion = example()
    with np.load(npz.save(motion, tmp_path / "a.npz"), allow_pickle=False) as found:
        assert tuple(found["joint_names"]) == JOINTS and tuple(found["parents"]) == PARENTS
        assert "metres" in str(found["units"]) and "Y up" in str(found["axes"])
        assert float(found["fps"]) == 20.0 and str(found["text"]) == motion.text
        np.testing.assert_array_equal(found["joints"], motion.joints)
        assert all(found[name].dtype != object for name in found.files)


def test_the_same_motion_makes_the_same_bytes(tmp_path: Path) -> None:
    one, two = (npz.save(example(), tmp_path / name).read_bytes() for name in ("a.npz", "b.npz"))
    assert one == two


def rewritten(path: Path, **changes: np.ndarray | None) -> Path:
    with np.load(path) as found:
        values = {**found, **changes}
    np.savez(path, **{name: value for name, value in values.items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fps": None}, "missing: fps"),
        ({"format": np.array("other")}, "no anchorroute-motion file"),
        ({"version": np.array(99)}, "version 99"),
        ({"joints": np.zeros((25, 22, 3))}, "edited or damaged"),
        ({"local_rotations": np.zeros((25, 22, 4))}, "unit quaternions"),
        ({"contacts": None}, "contacts"),
        ({"anchors": np.array("{")}, "Expecting"),
        ({"text": np.array([{}], dtype=object)}, "plain arrays"),
    ],
)
def test_damaged_files_are_refused(changes: dict, words: str, tmp_path: Path) -> None:
    path = rewritten(npz.save(example(), tmp_path / "a.npz"), **changes)
    with pytest.raises(FormatError, match=words):
        npz.load(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\x80\x04K\x01."])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.npz"):
        npz.load(path)
    with pytest.raises(FormatError, match="cannot be read"):
        npz.load(tmp_path / "none.npz")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = npz.save(example(), tmp_path / "a.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FormatError, match="damaged"):
        npz.load(path)


def test_a_write_that_reads_back_wrong_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = npz._arrays
    monkeypatch.setattr(npz, "_arrays", lambda motion: {**honest(motion), "text": np.array("other")})
    with pytest.raises(FormatError, match="nothing was written"):
        npz.save(dataclasses.replace(example(), text="one"), tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())
