"""The packed data set: small errors, the same interface as the folder, damage refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute.data.build import build
from anchorroute.data.check import check
from anchorroute.data.humanml3d import clip_ids, load
from anchorroute.data.pack import Packed, all_joints, pack
from anchorroute.errors import DataError
from anchorroute.motion.features import SLICES, from_joints, to_joints
from open_source import small_source

from motions import walk


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Packed]:
    base = tmp_path_factory.mktemp("pack")
    build(small_source(base / "source"), base / "out", processes=1)
    return base / "out", base / "set.pack", pack(base / "out", base / "set.pack")


def test_features_give_back_every_joint_of_every_frame_they_were_made_from() -> None:
    joints = walk(90, seed=2).double()
    torch.testing.assert_close(all_joints(from_joints(joints)), joints, atol=1e-6, rtol=0)


@pytest.mark.parametrize("split", ["train", "val", "test", "all", "train_val"])
def test_a_pack_reads_like_its_folder(packed: tuple[Path, Path, Packed], split: str) -> None:
    folder, file, _ = packed
    ours, theirs = load(file, split), load(folder, split)
    about = [
        [(c.id, c.captions, c.weak, c.source, c.strict, c.mirrored, c.take, c.start, c.frames) for c in data]
        for data in (ours, theirs)
    ]
    assert sorted(about[0]) == sorted(about[1])
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.std, theirs.std)
    assert sorted(clip_ids(file, split)) == sorted(clip_ids(folder, split))
    for clip in ours:
        off = (to_joints(clip.features) - to_joints(theirs.find(clip.id).features)).norm(dim=-1)
        assert off.max() < 0.0006


def test_the_error_it_reports_is_the_error_it_has(packed: tuple[Path, Path, Packed]) -> None:
    folder, file, report = packed
    found = 0.0
    for clip in load(folder, "all"):
        again = load(file, "all", ids=[clip.id])[0]
        off = (all_joints(again.features) - all_joints(clip.features)).norm(dim=-1)
        found = max(found, float(off.max()))
    assert report.error == pytest.approx(found, abs=2e-6)
    assert report.error <= 0.0005


def test_mirrored_clips_are_rebuilt_and_not_stored(packed: tuple[Path, Path, Packed]) -> None:
    folder, file, report = packed
    assert report.rebuilt == len([ident for ident in clip_ids(folder, "train") if ident.startswith("M")])
    assert report.size == file.stat().st_size


def test_a_mirrored_clip_that_is_something_else_is_stored_as_it_is(
    packed: tuple[Path, Path, Packed], tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(packed[0], folder)
    other = from_joints(walk(80, seed=77)).numpy().astype(np.float32)
    np.save(folder / "new_joint_vecs" / "M000001.npy", other)
    report = pack(folder, tmp_path / "x.pack")
    assert report.rebuilt == packed[2].rebuilt - 1
    clip = load(tmp_path / "x.pack", ids=["M000001"])[0]
    assert (to_joints(clip.features) - to_joints(torch.from_numpy(other))).norm(dim=-1).max() < 0.0006


def test_packing_twice_gives_the_same_bytes(packed: tuple[Path, Path, Packed], tmp_path: Path) -> None:
    folder, file, _ = packed
    pack(folder, tmp_path / "again.pack")
    assert (tmp_path / "again.pack").read_bytes() == file.read_bytes()
    assert load(tmp_path / "again.pack").fingerprint == load(file).fingerprint


def test_a_clip_that_cannot_be_read_is_left_out_by_name(packed: tuple[Path, Path, Packed], tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(packed[0], folder)
    (folder / "new_joint_vecs" / "000002.npy").unlink()
    report = pack(folder, tmp_path / "x.pack")
    assert [one.id for one in report.left_out] == ["000002"]
    assert "000002" not in clip_ids(tmp_path / "x.pack")


@pytest.mark.parametrize("damage", ["cut", "header", "joints", "other"])
def test_a_damaged_pack_is_refused(packed: tuple[Path, Path, Packed], tmp_path: Path, damage: str) -> None:
    content = bytearray(packed[1].read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "header":
        content[40] ^= 0xFF
    elif damage == "joints":
        content[-60] ^= 0xFF
    else:
        content = bytearray(b"PK a zip file")
    (tmp_path / "x.pack").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.pack"):
        load(tmp_path / "x.pack")


def test_an_unknown_split_is_named(packed: tuple[Path, Path, Packed]) -> None:
    with pytest.raises(DataError, match="train"):
        load(packed[1], "tset")


def test_a_clip_of_humanml3d_itself_is_checked_and_packed(shared: Path, tmp_path: Path) -> None:
    sample = shared / "data" / "humanml3d-sample"
    folder = tmp_path / "set"
    for name in ("new_joint_vecs", "new_joints", "texts"):
        (folder / name).mkdir(parents=True)
    rows = np.load(sample / "012314.features.npy")
    np.save(folder / "new_joint_vecs" / "012314.npy", rows)
    np.save(folder / "new_joints" / "012314.npy", np.load(sample / "012314.joints.npy"))
    for name in ("Mean.npy", "Std.npy"):
        np.save(folder / name, np.load(sample / name))
    (folder / "texts" / "012314.txt").write_text("a person walks#a/DET person/NOUN walk/VERB#0.0#0.0\n")
    (folder / "train.txt").write_text("012314\n")
    (folder / "val.txt").write_text("")
    (folder / "test.txt").write_text("")
    rules = {finding.rule for finding in check(folder).findings}
    assert rules == {"statistics are not those of the train clips"}  # they are of all of HumanML3D, this is one clip
    assert pack(folder, tmp_path / "set.pack").error <= 0.0005
    again = load(tmp_path / "set.pack")[0].features
    off = (to_joints(again) - to_joints(torch.from_numpy(rows))).norm(dim=-1)
    assert off.max() < 0.0006
    for part in (SLICES.ric, SLICES.velocities):
        assert (again - torch.from_numpy(rows))[:, part].abs().max() < 0.003
