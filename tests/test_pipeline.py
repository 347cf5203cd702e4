"""The pipeline on tiny random weights: every stage runs, and what must hold whatever the weights are, holds."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import anchorroute as ar
from anchorroute import models
from anchorroute.card import card
from anchorroute.motion.features import to_joints
from anchorroute.pipeline import AnchorRoute


@pytest.fixture(scope="module")
def pipe() -> AnchorRoute:
    return ar.untrained(0)


START = ar.Anchor(0.0, "pelvis", (3.0, None, -2.0), heading=math.pi / 2)


@pytest.fixture(scope="module")
def waypoints(pipe: AnchorRoute) -> ar.AnchorSet:
    """Far from the origin, turned, and centimetres away from what the untrained model does by itself."""
    raw = pipe("a person walks", ar.AnchorSet((START,)), seconds=2, solver="none").motion.joints
    x, _, z = map(float, raw[20, 0])
    hand = [float(value) + shift for value, shift in zip(raw[38, 21], (0.04, 0.03, -0.02))]
    step = ar.Anchor(1.0, "pelvis", (x + 0.06, None, z - 0.04))
    return ar.AnchorSet((START, step, ar.Anchor(1.9, "right_wrist", (hand[0], None, hand[2]))))


@pytest.fixture(scope="module")
def result(pipe: AnchorRoute, waypoints: ar.AnchorSet) -> ar.Result:
    return pipe("a person walks", waypoints, seconds=2)


def test_anchors_are_met_where_the_user_put_them(result: ar.Result) -> None:
    assert result.report.all_met, str(result.report)
    assert result.report.worst_mm < 1.0
    assert np.allclose(result.motion.joints[0, 0, [0, 2]], [3.0, -2.0], atol=1e-4)


def test_motion_carries_what_made_it(result: ar.Result) -> None:
    motion = result.motion
    assert (motion.text, motion.seed, motion.fps, motion.frames) == ("a person walks", 0, 20.0, 40)
    assert [anchor["joint"] for anchor in motion.anchors] == ["pelvis", "pelvis", "right_wrist"]
    assert motion.provenance["solver"] == "gauss-newton"


@pytest.mark.parametrize("ending", [".bvh", ".glb", ".npz", ".html"])
def test_the_written_file_meets_them_too(result: ar.Result, tmp_path: Path, ending: str) -> None:
    report = result.save(tmp_path / f"motion{ending}")
    assert report.source.endswith(ending)
    assert report.worst_mm < 1.0


@pytest.mark.parametrize("fps", [40, 60])
def test_at_other_rates(result: ar.Result, tmp_path: Path, fps: float) -> None:
    assert result.save(tmp_path / "fast.bvh", fps=fps).worst_mm < 1.0


def test_same_seed_same_motion_whatever_the_batch(pipe: AnchorRoute) -> None:
    alone = pipe("a person jumps", seconds=2, seed=5)
    batch = pipe(["walk", "a person jumps", "turn"], seconds=[3.0, 2.0, 4.0], seed=[1, 5, 9])
    assert np.allclose(alone.motion.joints, batch[1].motion.joints, atol=1e-4)
    assert not np.allclose(alone.motion.joints, pipe("a person jumps", seconds=2, seed=6).motion.joints, atol=1e-2)


def test_sample_k_is_seed_plus_k(pipe: AnchorRoute) -> None:
    both = pipe("a person jumps", seconds=2, seed=5, samples=2)
    third = next(sample for sample in both.samples if sample.seed == 6)
    assert np.allclose(third.motion.joints, pipe("a person jumps", seconds=2, seed=6).motion.joints, atol=1e-4)


def test_samples_are_ranked(pipe: AnchorRoute, waypoints: ar.AnchorSet) -> None:
    samples = pipe("a person walks", waypoints, seconds=2, samples=3, solver=ar.GaussNewton(iterations=3)).samples
    keys = [(len(s.report.anchors) - s.report.met, s.unnaturalness) for s in samples]
    assert keys == sorted(keys)


def test_lists_of_anchor_sets(pipe: AnchorRoute, waypoints: ar.AnchorSet) -> None:
    first, second = pipe(["walk", "walk"], [waypoints, None], seconds=2)
    assert first.report.all_met and len(first.report.anchors) == 3
    assert second.report.anchors == ()
    alone = pipe("walk", waypoints, seconds=2)
    assert np.allclose(first.motion.joints, alone.motion.joints, atol=2e-2), "same tokens, both solved"


def test_threads_do_not_disturb_each_other(pipe: AnchorRoute) -> None:
    def one(seed: int) -> np.ndarray:
        return pipe("a person walks", seconds=2, seed=seed).motion.joints

    alone = [one(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(one, range(4)))
    for a, b in zip(alone, together):
        assert np.allclose(a, b, atol=1e-5)


def test_no_anchors_is_the_prior_alone(pipe: AnchorRoute) -> None:
    bare = AnchorRoute(replace(pipe.models, control={}))
    assert np.array_equal(bare("walk", seconds=2).motion.joints, pipe("walk", seconds=2).motion.joints)


def test_solver_none_measures_and_changes_nothing(pipe: AnchorRoute, waypoints: ar.AnchorSet) -> None:
    raw = pipe("walk", waypoints, seconds=2, solver="none")
    assert raw.samples[0].before_mm == pytest.approx([line.error_mm for line in raw.report.anchors], abs=0.1)


def test_adam_is_the_papers(pipe: AnchorRoute, waypoints: ar.AnchorSet) -> None:
    solved = pipe("walk", waypoints, seconds=2, solver=ar.Adam(steps=15, learning_rate=0.05))
    assert solved.report.solver == "adam-15"
    assert solved.samples[0].trace[-1] < solved.samples[0].trace[0]


def test_progress_and_cancel(pipe: AnchorRoute, waypoints: ar.AnchorSet) -> None:
    steps: list[ar.Step] = []
    pipe("walk", waypoints, seconds=2, on_step=steps.append)
    assert [s.done for s in steps if s.stage == "tokens"] == list(range(1, 21))
    assert any(s.error_mm is not None for s in steps if s.stage == "solving")
    with pytest.raises(ar.Cancelled):
        pipe("walk", seconds=2, cancel=lambda: True)


def test_stream(pipe: AnchorRoute) -> None:
    events = list(pipe.stream("walk", seconds=2, seed=3))
    assert isinstance(events[-1], ar.Result) and all(isinstance(event, ar.Step) for event in events[:-1])
    assert np.array_equal(events[-1].motion.joints, pipe("walk", seconds=2, seed=3).motion.joints)
    with pytest.raises(ar.RequestError):
        list(pipe.stream("", seconds=2))


def test_adjust_follows_a_dragged_anchor(pipe: AnchorRoute, waypoints: ar.AnchorSet, result: ar.Result) -> None:
    x, y, z = waypoints.anchors[2].position
    assert x is not None and y is None and z is not None
    moved = replace(waypoints.anchors[2], position=(x + 0.02, None, z - 0.02))
    dragged = replace(waypoints, anchors=(*waypoints.anchors[:2], moved))
    sample = pipe.adjust(result.samples[0], dragged)
    assert sample.report.all_met, str(sample.report)
    assert np.allclose(sample.motion.joints[0, 0, [0, 2]], [3.0, -2.0], atol=1e-3), "the start stays"


def test_refine_without_wishes_gives_the_same_motion_back(pipe: AnchorRoute, result: ar.Result) -> None:
    trivial = ar.AnchorSet((ar.Anchor(1.0, "head", tuple(map(float, result.motion.joints[20, 15]))),))
    again = pipe.refine(result.motion, trivial)
    assert np.abs(again.motion.joints - result.motion.joints).max() < 1e-3


def test_refine_meets_anchors_in_the_motions_own_world(pipe: AnchorRoute, result: ar.Result) -> None:
    lifted = replace(result.motion, root=result.motion.root + np.float32([0, 0.5, 0]))  # on a stage half a metre high
    x, y, z = map(float, lifted.joints[30, 20])
    refined = pipe.refine(lifted, ar.AnchorSet((ar.Anchor(1.5, "left_wrist", (x + 0.05, y, z)),)))
    assert refined.report.all_met, str(refined.report)
    assert refined.motion.frames == lifted.frames


def test_refine_keeps_the_motions_own_rate(pipe: AnchorRoute, result: ar.Result) -> None:
    take = result.motion.resample(60)
    x, y, z = map(float, take.joints[90, 20])  # 1.5 s
    refined = pipe.refine(take, ar.AnchorSet((ar.Anchor(1.5, "left_wrist", (x + 0.03, None, z)),)))
    assert (refined.motion.fps, refined.motion.frames) == (60.0, take.frames)
    assert refined.report.worst_mm < 1.0, str(refined.report)
    trivial = pipe.refine(take, ar.AnchorSet((ar.Anchor(1.5, "left_wrist", (x, y, z)),)))
    assert np.abs(trivial.motion.joints - take.joints).max() < 1e-3


def test_an_anchor_at_the_last_moment(pipe: AnchorRoute) -> None:
    anchors = ar.AnchorSet((ar.Anchor(2.0, "pelvis", (0.1, None, 0.2)),))
    ended = pipe("walk", anchors, seconds=2)
    assert ended.motion.frames == 41 and ended.report.anchors[0].note == ""


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"text": ""}, ar.RequestError, "empty"),
        ({"text": "walk", "seconds": 30}, ar.RequestError, "9.8 s"),
        ({"text": "walk", "solver": "newton"}, ar.RequestError, "gauss-newton"),
        ({"text": "walk", "samples": 0}, ar.RequestError, "samples"),
        ({"text": ["a walk", "b walk"], "seed": [1]}, ar.RequestError, "seed"),
        ({"text": "walk", "seconds": 2, "frames": 40}, ar.RequestError, "one"),
        ({"text": "walk", "anchors": "anchors.json"}, ar.RequestError, "AnchorSet"),
    ],
)
def test_refusals(pipe: AnchorRoute, call: dict, error: type[Exception], match: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(error, match=match):
        pipe(**call)


def test_strict_refuses_what_people_do_not_do(pipe: AnchorRoute) -> None:
    fast = ar.AnchorSet((ar.Anchor(0, "pelvis", (0, 0.9, 0)), ar.Anchor(0.5, "pelvis", (0, 0.9, 6))))
    with pytest.raises(ar.RequestError, match="m/s"):
        pipe("a person runs", fast, seconds=2, strict=True)
    warned = pipe("a person runs", fast, seconds=2, solver="none")
    assert any("m/s" in warning for warning in warned.report.warnings)


def test_absent_weights_are_told(tmp_path: Path) -> None:
    with pytest.raises(ar.CheckpointError, match="holds no weights"):
        ar.load(tmp_path)


def test_saved_and_loaded_parts_make_the_same_motion(
    pipe: AnchorRoute, waypoints: ar.AnchorSet, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    from anchorroute import checkpoint

    parts = pipe.models
    told = {"path": {"a": 0.9, "c": 3.0, "centre": False}, "text_encoder": parts.text.id}
    below = {"tokenizer": checkpoint.save(tmp_path / "tokenizer", parts.tokenizer, parts.tokenizer.config, {})}
    prior = checkpoint.save(tmp_path / "prior", parts.prior, parts.prior.config, told, on_top_of=below)
    assert parts.residual is not None and parts.covariance is not None
    checkpoint.save(tmp_path / "residual", parts.residual, parts.residual.config, told, on_top_of=below)
    for name, adapter in parts.control.items():
        above = {**below, "prior": prior}
        checkpoint.save(tmp_path / f"control-{name}", adapter, adapter.config, {}, on_top_of=above)
    save_file({"covariance": parts.covariance}, tmp_path / "latents.safetensors")
    (tmp_path / "settings.json").write_text('{"steps": 7}')
    loaded = ar.load(tmp_path)
    assert loaded.models.settings.steps == 7
    same = loaded("walk", waypoints, seconds=2, steps=20)
    assert np.allclose(same.motion.joints, pipe("walk", waypoints, seconds=2).motion.joints, atol=1e-3)
    told_parts = card(str(tmp_path))["parts"]
    assert told_parts["prior"]["kind"] == "Transformer" and told_parts["prior"]["provenance"] == told
    (tmp_path / "prior" / "weights.safetensors").write_bytes(b"not weights")
    with pytest.raises(ar.CheckpointError, match="damaged"):
        ar.load(tmp_path)


def test_debug_body_stands(pipe: AnchorRoute) -> None:
    mean = pipe.models.tokenizer.mean
    joints = to_joints(mean.expand(1, 4, -1))
    assert torch.allclose(joints[..., 1].min(), torch.tensor(0.0), atol=1e-4)
    assert 0.8 < float(joints[0, 0, 0, 1]) < 1.1
    assert set(models.untrained().control) == {"root3d", "planar", "body"}
