"""Reading HumanML3D's layout: the length rule, captions about parts, and what is set aside and why."""

from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute.data.humanml3d import load
from anchorroute.errors import DataError
from anchorroute.motion.features import from_joints

from motions import walk


def _clip(folder: Path, ident: str, frames: int, text: str = "a man walks##0.0#0.0\n", split: str = "train") -> None:
    rows = from_joints(walk(frames + 1, seed=frames)).numpy()
    for name in ("new_joint_vecs", "texts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    np.save(folder / "new_joint_vecs" / f"{ident}.npy", rows.astype(np.float32))
    (folder / "texts" / f"{ident}.txt").write_text(text)
    with (folder / f"{split}.txt").open("a") as file:
        file.write(f"{ident}\n")
    np.save(folder / "Mean.npy", rows.mean(0))
    np.save(folder / "Std.npy", rows.std(0) + 0.1)


def test_clips_have_forty_to_199_rows(tmp_path: Path) -> None:
    for frames in (39, 40, 199, 200):
        _clip(tmp_path, f"{frames:06d}", frames)
    data = load(tmp_path)
    assert [clip.frames for clip in data] == [40, 199]
    assert {one.id: one.reason for one in data.quarantine} == {
        "000039": "39 rows; clips have 40 to 199",
        "000200": "200 rows; clips have 40 to 199",
    }
    with pytest.raises(DataError, match="set aside: 39 rows"):
        data.find("000039")
    with pytest.raises(DataError, match="did you mean 000199"):
        data.find("00199")


def test_a_caption_about_a_part_makes_a_clip_of_that_part(tmp_path: Path) -> None:
    text = "all of it##nan#nan\nthe start##0.0#3.0\nthe end##2.05#6.0\na moment##1.0#2.5\n"
    _clip(tmp_path, "000001", 120, text)
    data = load(tmp_path)
    assert [(clip.id, clip.frames, clip.captions) for clip in data] == [
        ("000001", 120, ("all of it",)),
        ("A_000001", 60, ("the start",)),
        ("B_000001", 79, ("the end",)),
    ]
    assert torch.equal(data[2].features, data[0].features[41:120])
    assert [one.id for one in data.quarantine] == ["C_000001"]


def test_a_clip_whose_captions_are_all_about_parts_is_only_its_parts(tmp_path: Path) -> None:
    _clip(tmp_path, "000001", 120, "the start##0.0#3.0\n")
    assert [clip.id for clip in load(tmp_path)] == ["A_000001"]


def test_what_cannot_be_read_is_set_aside_with_its_reason_and_nothing_else_is_lost(tmp_path: Path) -> None:
    for number in range(8):
        _clip(tmp_path, f"{number:06d}", 60 + number)
    vectors, texts = tmp_path / "new_joint_vecs", tmp_path / "texts"
    broken = np.load(vectors / "000001.npy")
    broken[17, 3] = np.nan
    np.save(vectors / "000001.npy", broken)
    np.save(vectors / "000002.npy", broken[:, :260])
    (vectors / "000003.npy").write_bytes(b"not an array")
    (vectors / "000004.npy").unlink()
    (texts / "000005.txt").write_bytes(b"caf\xe9##0.0#0.0\n")
    (texts / "000006.txt").write_text("no tags at all\n")
    data = load(tmp_path)
    assert [clip.id for clip in data] == ["000000", "000007"]
    reasons = {one.id: one.reason for one in data.quarantine}
    words = {
        "000001": "not finite at row 17",
        "000002": "260)",
        "000003": "not a readable .npy",
        "000004": "missing",
        "000005": "UTF-8",
        "000006": "'#'",
    }
    assert reasons.keys() == words.keys()
    assert all(word in reasons[ident] for ident, word in words.items())


@pytest.mark.parametrize("other", ["000001", "M000001"])
def test_a_clip_in_two_splits_even_as_its_mirror_image_is_refused(tmp_path: Path, other: str) -> None:
    _clip(tmp_path, "000001", 60)
    _clip(tmp_path, other, 60, split="test")
    with pytest.raises(DataError, match=r"000001 is in train.txt and in test.txt"):
        load(tmp_path)


def test_a_folder_without_an_index_knows_mirrored_clips_by_their_m(tmp_path: Path) -> None:
    _clip(tmp_path, "000001", 60)
    _clip(tmp_path, "M000001", 60)
    assert [clip.mirrored for clip in load(tmp_path)] == [False, True]
    assert [clip.id for clip in load(tmp_path, mirrored=False)] == ["000001"]
    assert [clip.source for clip in load(tmp_path)] == ["humanml3d"] * 2


def test_clips_without_captions_are_read_unless_captions_are_asked_for(tmp_path: Path) -> None:
    _clip(tmp_path, "000001", 60, "")
    _clip(tmp_path, "000002", 60)
    assert len(load(tmp_path)) == 2
    assert [clip.id for clip in load(tmp_path, captioned=True)] == ["000002"]


def test_normalising_and_back_changes_nothing(tmp_path: Path) -> None:
    _clip(tmp_path, "000001", 60)
    data = load(tmp_path)
    x = data[0].features
    torch.testing.assert_close(data.denormalise(data.normalise(x)), x, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(data.normalise(data.mean), torch.zeros(263))


def test_a_subset_is_a_data_set_with_the_same_statistics(tmp_path: Path) -> None:
    for number in range(4):
        _clip(tmp_path, f"{number:06d}", 60 + number)
    data = load(tmp_path)
    some = data.where(lambda clip: clip.frames > 61)
    assert [clip.id for clip in some] == ["000002", "000003"]
    assert some.mean is data.mean
    assert some.fingerprint == data[:1].fingerprint == data.fingerprint


def test_the_fingerprint_changes_with_any_content(tmp_path: Path) -> None:
    _clip(tmp_path, "000001", 60)
    before = load(tmp_path).fingerprint
    assert load(tmp_path).fingerprint == before
    (tmp_path / "texts" / "000001.txt").write_text("a woman walks##0.0#0.0\n")
    assert load(tmp_path).fingerprint != before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "Mean.npy").unlink(), "Mean.npy"),
        (lambda f: np.save(f / "Std.npy", np.ones(12)), "263"),
        (lambda f: (f / "train.txt").unlink(), "no such split"),
        (lambda f: (f / "train.txt").write_bytes(b"\xff\xfe0"), "UTF-8"),
    ],
)
def test_a_folder_that_is_no_data_set_says_what_is_missing(tmp_path: Path, damage, words: str) -> None:
    _clip(tmp_path, "000001", 60)
    damage(tmp_path)
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data build"):
        load(tmp_path / "nowhere")
