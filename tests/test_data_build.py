"""Building a data set: the same bytes however it went, held-out frames kept out, statistics as HumanML3D's."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute.data.build import BuildConfig, build
from anchorroute.data.cmu import read_joints, read_source
from anchorroute.data.humanml3d import load
from anchorroute.data.layout import fingerprint, read_index, read_split
from anchorroute.data.planning import unbroken, uncovered
from anchorroute.data.processing import breaks, mirror_joints, mirror_rounded
from anchorroute.errors import DataError
from anchorroute.motion.canonical import canonicalise
from anchorroute.motion.features import SLICES, from_joints, to_joints
from anchorroute.motion.skeleton import BONE_LENGTHS, MIRROR
from open_source import cmu_bvh, npz_source, segment, small_source, tables, take

from motions import walk


def _bytes(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("build")
    build(small_source(base / "source"), base / "out", processes=1)
    return base


def test_a_build_killed_on_the_way_goes_on_and_ends_in_the_same_bytes(built: Path, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill_after(calls: int):
        def progress(done: int, total: int) -> None:
            nonlocal calls
            calls -= 1
            if calls == 0:
                raise Killed

        return progress

    for calls in (2, 3):  # the first call says how much there is to do
        with pytest.raises(Killed):
            build(built / "source", tmp_path / "out", processes=1, progress=kill_after(calls))
    (tmp_path / "out" / "new_joint_vecs" / "000001.npy").write_bytes(b"half a file of a killed process")
    for name in [p.name for p in (tmp_path / "out" / ".build").glob("*.json")]:
        (tmp_path / "out" / ".build" / name).unlink()
    build(built / "source", tmp_path / "out", processes=1)
    assert _bytes(tmp_path / "out") == _bytes(built / "out")


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_as_one(built: Path, tmp_path: Path) -> None:
    build(built / "source", tmp_path / "out", processes=2)
    assert _bytes(tmp_path / "out") == _bytes(built / "out")


def test_the_noted_fingerprint_is_that_of_the_files(built: Path) -> None:
    noted = json.loads((built / "out" / "build.json").read_text())["fingerprint"]
    assert noted == fingerprint(built / "out")


def test_a_clip_holds_the_features_of_its_canonical_frames(built: Path) -> None:
    joints = torch.from_numpy(read_joints(read_source(built / "source")[0])[:80])
    expected = from_joints(canonicalise(joints)[0])
    rows = torch.from_numpy(np.load(built / "out" / "new_joint_vecs" / "000001.npy"))
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.double(), expected, atol=1e-4, rtol=0)
    recovered = torch.from_numpy(np.load(built / "out" / "new_joints" / "000001.npy"))
    torch.testing.assert_close(recovered, to_joints(rows.double()).float())


def test_mirrored_copies_are_for_train_alone_with_sides_swapped_in_body_and_words(built: Path) -> None:
    train = load(built / "out", "train")
    one, twin = train.find("000001"), train.find("M000001")
    assert twin.mirrored
    assert twin.captions == ("a person walks right.", "someone turns counterclockwise")
    assert twin.frames == one.frames
    torch.testing.assert_close(twin.features[:, 3], one.features[:, 3], atol=0.02, rtol=0)
    assert {clip.id for clip in train if clip.mirrored} == {f"M{clip.id}" for clip in train if not clip.mirrored}
    for split in ("val", "test"):
        assert not any(clip.mirrored for clip in load(built / "out", split))


def test_a_mirror_image_keeps_the_body_and_points_its_limbs_the_other_way() -> None:
    joints = walk(50, seed=3).double()
    mirror = mirror_joints(joints)
    swapped = joints[:, list(MIRROR)] * torch.tensor([-1.0, 1.0, 1.0])
    for parent, child in ((1, 4), (4, 7), (7, 10), (13, 16), (16, 18), (18, 20), (12, 15), (3, 6)):
        bone, other = mirror[:, child] - mirror[:, parent], swapped[:, child] - swapped[:, parent]
        torch.testing.assert_close(torch.cosine_similarity(bone, other, -1), torch.ones(50).double())
        torch.testing.assert_close(bone.norm(dim=-1), torch.full((50,), BONE_LENGTHS[child]).double())


def test_mirroring_gently_is_mirroring_and_keeps_small_errors_small() -> None:
    joints = walk(60, seed=4).double()
    torch.testing.assert_close(mirror_rounded(joints), mirror_joints(joints), atol=1e-6, rtol=0)
    rounded = (joints / 0.0005).round() * 0.0005
    assert (mirror_rounded(rounded) - mirror_joints(joints)).norm(dim=-1).max() < 0.0006


def test_a_mirror_image_of_a_mirror_image_is_the_motion_again() -> None:
    joints = walk(50, seed=3).double()
    torch.testing.assert_close(mirror_joints(mirror_joints(joints)), joints, atol=1e-5, rtol=0)


def test_every_frame_is_in_a_clip_or_accounted_for(built: Path) -> None:
    index = read_index(built / "out" / "index.jsonl")
    left = json.loads((built / "out" / "report.json").read_text())["left_out"]
    for name, frames in (("01_01", 330), ("01_02", 260)):
        seen = np.zeros(frames, dtype=int)
        for entry in index.values():
            if entry.take == name and not entry.mirrored:
                assert entry.rows == entry.end - entry.start - 1
                seen[entry.start : entry.end] += 1
        for one in left:
            if one["take"] == name:
                seen[one["start"] : one["end"]] += 1
        assert (seen > 0).all()
    reasons = {one["id"]: one["reason"] for one in left}
    assert "shorter than 40" in reasons["000004"]
    assert "held-out" in reasons["000005"]


def test_weak_clips_share_no_frame_with_any_segment_and_carry_the_title(built: Path) -> None:
    clips = load(built / "out", "train", mirrored=False)
    segments = [json.loads(line) for line in (built / "source" / "segments.jsonl").read_text().splitlines()]
    weak = [clip for clip in clips if clip.id.startswith("w")]
    assert weak
    for clip in weak:
        assert clip.weak
        assert clip.captions == ("walk left", "walk, walk left") or clip.captions == ("walk left",)
        for one in segments:
            apart = clip.start >= one["end"] or clip.start + clip.frames + 1 <= one["start"]
            assert one["take"] != clip.take or apart
    assert clips.find("000006").weak
    assert not clips.find("000001").weak
    assert len(load(built / "out", "train", mirrored=False, weak=False)) == 1


def test_statistics_are_numpys_over_train_rows_with_one_deviation_a_group(built: Path) -> None:
    rows = torch.cat([clip.features for clip in load(built / "out", "train")]).numpy().astype(np.float64)
    np.testing.assert_allclose(np.load(built / "out" / "Mean.npy"), rows.mean(0), atol=1e-6)
    std = np.load(built / "out" / "Std.npy")
    for part in SLICES:
        np.testing.assert_allclose(std[part], rows.std(0)[part].mean(), rtol=1e-5)


def test_options_leave_out_weak_clips_and_mirrored_ones(built: Path, tmp_path: Path) -> None:
    build(built / "source", tmp_path / "out", BuildConfig(weak=False, mirror=False), processes=1)
    assert read_split(tmp_path / "out", "train") == ["000001", "000006"]
    with pytest.raises(DataError, match="other options"):
        build(built / "source", tmp_path / "out", processes=1)


def test_a_folder_with_other_things_in_it_is_not_touched(built: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="not empty"):
        build(built / "source", tmp_path, processes=1)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_a_recording_under_two_names_counts_as_one(tmp_path: Path) -> None:
    motion = walk(300, seed=5).numpy()
    source = npz_source(
        tmp_path / "source",
        {"07_01": motion, "08_01": motion, "09_01": motion[::2], "10_01": walk(300, seed=6).numpy()},
        [
            segment("000001", "07_01", 0, 60, "test", "a test", strict=True),
            segment("000002", "08_01", 50, 110, "train", "shares ten frames with the test clip"),
            segment("000003", "08_01", 110, 170, "train", "shares none"),
            segment("000004", "09_01", 20, 80, "train", "the same at half the frames: shares twenty"),
            segment("000005", "10_01", 0, 60, "train", "another recording"),
        ],
    )
    build(source, tmp_path / "out", BuildConfig(mirror=False), processes=1)
    left = {one["id"]: one for one in json.loads((tmp_path / "out" / "report.json").read_text())["left_out"]}
    for ident in ("000002", "000004"):
        assert "under another name" in left[ident]["reason"]
        assert "000001" in left[ident]["detail"]
    index = read_index(tmp_path / "out" / "index.jsonl")
    assert {"000003", "000005"} <= index.keys()
    # Training sees the rest of the recording, so its held-out clip cannot promise that it does not.
    assert not index["000001"].strict
    weak = sorted((e.take, e.start, e.end) for e in index.values() if e.id.startswith("w"))
    assert {name for name, _, _ in weak} == {"07_01", "10_01"}
    assert [(a, b) for name, a, b in weak if name == "07_01"] == [(170, 300)]


def test_a_strict_clip_keeps_its_whole_recording_out_of_training(tmp_path: Path) -> None:
    motion = walk(300, seed=5).numpy()
    source = npz_source(
        tmp_path / "source",
        {"07_01": motion, "08_01": motion, "10_01": walk(100, seed=6).numpy()},
        [segment("000001", "07_01", 0, 60, "test", "a test", strict=True)],
    )
    build(source, tmp_path / "out", BuildConfig(mirror=False), processes=1)
    index = read_index(tmp_path / "out" / "index.jsonl")
    assert index["000001"].strict
    assert {entry.take for entry in index.values() if entry.split == "train"} == {"10_01"}


def test_breaks_are_pops_skips_and_single_broken_frames_but_not_fast_limbs() -> None:
    joints = walk(120, seed=1).double().numpy()
    assert breaks(joints) == []
    fast = joints.copy()
    fast[:, 21, 1] += 0.8 * np.sin(0.7 * np.arange(120))
    assert np.linalg.norm(np.diff(fast, axis=0), axis=-1).max() > 0.5
    assert breaks(fast) == []
    popped = joints.copy()
    popped[60:, 12, 1] += 0.6
    assert breaks(popped) == [59]
    glitch = joints.copy()
    glitch[60, 12, 1] += 0.6
    assert breaks(glitch) == [59, 60]
    skipped = joints.copy()
    skipped[60:, :, 0] += 1.5
    assert breaks(skipped) == [59]
    lost = joints.copy()
    lost[60, 3] = np.nan
    assert breaks(lost) == [59, 60]


def test_a_broken_capture_is_left_out_and_weak_clips_end_at_the_break(tmp_path: Path) -> None:
    motion = walk(200, seed=1).numpy()
    motion[100:, 12, 1] += 0.7
    other = walk(120, seed=2).numpy()
    source = npz_source(
        tmp_path / "source",
        {"01_01": motion, "01_02": other, "01_03": motion},
        [segment("000001", "01_01", 60, 160, "train", "x"), segment("000002", "01_02", 0, 60, "train", "y")],
        **{"01_03": {"fps_source": "assumed"}},
    )
    build(source, tmp_path / "out", BuildConfig(mirror=False), processes=1)
    left = {one["id"]: one for one in json.loads((tmp_path / "out" / "report.json").read_text())["left_out"]}
    assert left["000001"]["reason"] == "the capture breaks within the clip"
    assert left["000001"]["detail"] == "after frame 39"


def test_stretches_between_segments() -> None:
    assert uncovered(100, [(10, 20), (15, 30), (90, 120)]) == [(0, 10), (30, 90)]
    assert uncovered(50, [(60, 80)]) == [(0, 50)]
    assert uncovered(50, []) == [(0, 50)]
    assert unbroken([(0, 50), (60, 90)], [9, 49, 60, 89, 200]) == [(0, 10), (10, 50), (60, 61), (61, 90)]


@pytest.mark.parametrize("rate", [120, 60])
def test_the_original_rate_gives_the_same_joints_as_twenty_frames_a_second(tmp_path: Path, rate: int) -> None:
    every = rate // 20
    fine = cmu_bvh(1 + 60 * every, rate)
    head, rows = fine.split("Frame Time:")
    # The originals claim 120 whatever the rate, and begin with a T-pose that the thinned file lacks.
    lines = rows.strip().splitlines()[1:]
    head = head[: head.index("Frames:")]
    (tmp_path / "o" / "deep" / "er").mkdir(parents=True)
    original = f"{head}Frames: {len(lines)}\nFrame Time: 0.0083333\n" + "\n".join(lines)
    (tmp_path / "o" / "deep" / "er" / "01_01.bvh").write_text(original)
    thinned = lines[1::every]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "01_01.bvh").write_text(f"{head}Frames: {len(thinned)}\nFrame Time: 0.05\n" + "\n".join(thinned))
    found = []
    for name in ("o", "t"):
        tables(tmp_path / name, [take("01_01", fps=rate)], [])
        found.append(read_joints(read_source(tmp_path / name)[0]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert found[0].shape == (60, 22, 3)


def test_takes_that_cannot_be_read_are_named_and_the_others_built(tmp_path: Path) -> None:
    good = cmu_bvh(100, 20)
    texts = {
        "01_01": good,
        "01_02": good[: len(good) * 2 // 3],
        "01_03": good.replace("17.0000", "nan", 1),
        "01_04": good.replace("CHANNELS 3", "CHANNELS 4", 1),
        "01_05": good.replace("OFFSET 2.6 -7.1 0", "OFFSET 0 0 0"),
        "01_06": cmu_bvh(2, 20),
    }
    tables(
        tmp_path / "source",
        [take(name, description=f"number {name}") for name in (*texts, "01_07")],
        [segment(f"00000{i}", f"01_0{i}", 0, 60, "train", "a walk") for i in range(1, 8)],
    )
    for name, text in texts.items():
        (tmp_path / "source" / f"{name}.bvh").write_text(text)
    built = build(tmp_path / "source", tmp_path / "out", BuildConfig(mirror=False), processes=1)
    left = {one["id"]: one for one in json.loads((tmp_path / "out" / "report.json").read_text())["left_out"]}
    for number in (2, 3, 4, 5):
        assert left[f"00000{number}"]["reason"] == "the take cannot be read"
        assert f"01_0{number}.bvh" in left[f"00000{number}"]["detail"]
    assert "shorter" in left["000006"]["reason"]
    assert "no .bvh" in left["000007"]["detail"]
    assert "000001" in read_split(tmp_path / "out", "train")
    assert sum(built.left_out.values()) >= 6


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"id": "a", "take": "01_01", "start": 9, "end": 3, "use": "train", "captions": []}', "9 to 3"),
        ('{"id": "a", "take": "01_01", "start": 0, "end": 60, "use": "training", "captions": []}', "'training'"),
        ('{"id": "a", "take": "77_77", "start": 0, "end": 60, "use": "train", "captions": []}', "77_77"),
        ('{"id": 7, "take": "01_01", "start": 0, "end": 60, "use": "train", "captions": []}', "'id'"),
        ('{"id": "a", ', "not JSON"),
        ("[1]", "JSON object"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path: Path, row: str, words: str) -> None:
    tables(tmp_path, [take("01_01")], [])
    (tmp_path / "segments.jsonl").write_text(row + "\n")
    with pytest.raises(DataError, match="segments") as caught:
        read_source(tmp_path)
    assert words in str(caught.value)


def test_the_whole_source_maps_and_finds_cmus_doubled_takes(shared: Path) -> None:
    takes = read_source(shared / "data" / "open-cmu", extra=("cmu-long", "rocketbox"))
    assert len(takes) == 2341 + 87 + 287
    assert all(one.path is not None for one in takes)
    pair = {one.name: read_joints(one) for one in takes if one.name in ("91_42", "105_42")}
    np.testing.assert_allclose(pair["91_42"], pair["105_42"], atol=1e-6)
