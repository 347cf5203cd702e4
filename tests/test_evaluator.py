"""The open evaluator: invariances of its networks, its objective against hand cases, and what training sees."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import train_data
from anchorroute import checkpoint
from anchorroute.data.humanml3d import Clip
from anchorroute.errors import CheckpointError, DataError
from anchorroute.evaluate import contrastive
from anchorroute.evaluate.degrade import DEGRADATIONS
from anchorroute.evaluate.evaluator import EvaluatorConfig, OpenEvaluator, embed_clips, motion_inputs
from anchorroute.motion import features as feats
from anchorroute.motion.skeleton import MIRROR
from anchorroute.train import evaluator_preset
from anchorroute.train.corpus import Corpus
from anchorroute.train.evaluator import EvaluatorTaskConfig, build
from anchorroute.train.presets import Options

SHARED = Path(os.environ.get("ANCHORROUTE_SHARED", Path(__file__).parents[2] / "shared"))
SMALL = EvaluatorConfig(embed=16, width=32, layers=1, heads=2, text_dim=24, text_width=32)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def toy_encoder(texts: list[str]) -> SimpleNamespace:
    """Letters as tokens: enough to tell texts apart."""
    width = max(len(text) for text in texts)
    tokens = torch.zeros(len(texts), width, 24)
    mask = torch.zeros(len(texts), width, dtype=torch.bool)
    for i, text in enumerate(texts):
        for j, letter in enumerate(text):
            tokens[i, j, ord(letter) % 24] = 1
            mask[i, j] = True
    return SimpleNamespace(pooled=tokens.sum(dim=1), tokens=tokens, mask=mask)


@pytest.fixture
def evaluator() -> OpenEvaluator:
    torch.manual_seed(0)
    return OpenEvaluator(SMALL, toy_encoder).eval()


def test_motion_embeddings_have_length_one_and_ignore_padding_and_mates(evaluator: OpenEvaluator) -> None:
    clips = torch.randn(3, 80, 263, generator=rng(1))
    lengths = torch.tensor([60, 80, 43])
    found = evaluator.motion(clips, lengths)
    assert torch.allclose(found.norm(dim=-1), torch.ones(3))
    spoiled = clips.clone()
    spoiled[0, 60:] = 7
    spoiled[2, 40:] = 7
    assert torch.allclose(evaluator.motion(spoiled, lengths), found, atol=1e-5)
    assert torch.allclose(evaluator.motion(clips[2:, :40], lengths[2:]), found[2:], atol=1e-5)
    assert torch.allclose(embed_clips(evaluator, [clips[0, :60], clips[1]], batch=1), found[:2], atol=1e-5)
    with pytest.raises(DataError, match="at least 4"):
        evaluator.motion(clips[:, :3], torch.tensor([3, 3, 3]))


def test_only_positions_move_a_motions_embedding(evaluator: OpenEvaluator) -> None:
    clips = torch.randn(1, 40, 263, generator=rng(1))
    other = clips.clone()
    other[..., 67:] += 1
    length = torch.tensor([40])
    assert torch.equal(evaluator.motion(clips, length), evaluator.motion(other, length))
    other[:, 20, 30] += 5
    assert not torch.allclose(evaluator.motion(clips, length), evaluator.motion(other, length))


def test_text_embeddings_ignore_mates(evaluator: OpenEvaluator) -> None:
    both = evaluator.text(["a man walks", "jump"])
    assert torch.allclose(both[1:], evaluator.text(["jump"]), atol=1e-5)
    assert torch.allclose(both.norm(dim=-1), torch.ones(2))
    with pytest.raises(DataError, match="text encoder"):
        OpenEvaluator(SMALL).text(["jump"])


def test_inputs_hold_positions_and_their_differences() -> None:
    clip = torch.randn(1, 5, 263, generator=rng(2))
    inputs = motion_inputs(clip)
    assert torch.equal(inputs[..., :67], clip[..., :67])
    assert torch.allclose(inputs[0, 3, 67:], clip[0, 3, 4:67] - clip[0, 2, 4:67])
    assert torch.equal(inputs[0, 0, 67:], torch.zeros(63))


# the objective


def test_loss_of_uniform_and_of_perfect_embeddings() -> None:
    eye = torch.eye(4, dtype=torch.bool)
    none = torch.zeros_like(eye)
    same = torch.ones(4, 3) / 3**0.5
    assert float(contrastive.contrastive_loss(same, same, eye, none, temperature=0.1)) == pytest.approx(np.log(4))
    unit = torch.eye(4)
    expected = -np.log(np.e**10 / (np.e**10 + 3))
    assert float(contrastive.contrastive_loss(unit, unit, eye, none, temperature=0.1)) == pytest.approx(
        expected, rel=1e-3
    )


def test_spoiled_candidates_are_negatives_of_texts_alone() -> None:
    eye = torch.eye(4, dtype=torch.bool)
    unit = torch.eye(4)
    copies = torch.cat([unit, unit])
    loss = contrastive.contrastive_loss(unit, copies, eye, ~eye, temperature=0.1)
    # clean negatives are ignored: text -> motion splits its mass between a motion and its copy; the way back is sure
    forward = np.log((2 * np.e**10 + 3) / np.e**10)
    assert float(loss) == pytest.approx(forward / 2, rel=1e-4)


def test_ignored_pairs_cost_nothing_and_positives_share() -> None:
    eye = torch.eye(2, dtype=torch.bool)
    same = torch.ones(2, 3) / 3**0.5
    assert float(contrastive.contrastive_loss(same, same, eye, ~eye, temperature=0.1)) == 0
    both = torch.ones(2, 2, dtype=torch.bool)
    shared = contrastive.contrastive_loss(same, same, both, torch.zeros_like(both), temperature=0.1)
    assert float(shared) == pytest.approx(np.log(2)), "the best a text can do with two positives"


def test_near_duplicates_need_the_same_directions() -> None:
    captions = ["A man turns left.", "a man turns left", "a man turns right", "the man turns left"]
    reading = [contrastive.reading_of(text) for text in captions]
    directions = [contrastive.directions_of(text) for text in captions]
    ids = [torch.tensor([keys.index(key) for key in keys]) for keys in (reading, directions)]
    pooled = torch.ones(4, 5) + 0.01 * torch.randn(4, 5, generator=rng())
    positive, ignored = contrastive.duplicate_masks(*ids, pooled, near=0.9)
    assert positive.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert ignored.tolist() == [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]


# augmentation and spoiling


@pytest.fixture
def walk() -> torch.Tensor:
    path = SHARED / "data/humanml3d-sample/012314.features.npy"
    if not path.exists():
        pytest.skip("the HumanML3D sample clip is not at ANCHORROUTE_SHARED")
    return torch.from_numpy(np.load(path)).float()


def joints_of(clip: torch.Tensor) -> torch.Tensor:
    return feats.to_joints(torch.nn.functional.pad(clip, (0, 263 - 67)))


def test_mirror_is_the_mirror_image_of_the_joints(walk: torch.Tensor) -> None:
    mirrored = joints_of(contrastive.mirror(walk[:, :67]))
    expected = joints_of(walk[:, :67])[:, list(MIRROR)] * torch.tensor([-1.0, 1.0, 1.0])
    assert torch.allclose(mirrored, expected, atol=1e-4)


def test_reverse_walks_the_same_path_backwards(walk: torch.Tensor) -> None:
    clip = walk[:160, :67]
    back, forth = joints_of(contrastive.reverse(clip)), joints_of(clip)
    steps = forth.diff(dim=0).norm(dim=-1)
    # exact up to the turn within one frame, which the local velocities do not say
    assert (back.diff(dim=0).norm(dim=-1) - steps.flip(0)).abs().mean() < 1e-3
    assert steps.mean() > 0.02
    assert torch.equal(contrastive.reverse(clip)[:, 3:], clip[:, 3:].flip(0))


def test_retime_keeps_the_path_length(walk: torch.Tensor) -> None:
    clip = walk[:160, :67]
    slow = contrastive.retime(clip, 0.9)
    assert len(slow) == 176

    def path(x: torch.Tensor) -> float:
        return float(joints_of(x)[:, 0, [0, 2]].diff(dim=0).norm(dim=-1).sum())

    assert path(slow) == pytest.approx(path(clip), rel=0.03)


def test_augment_and_spoil_keep_their_promises(walk: torch.Tensor) -> None:
    clip = walk[:, :67]
    for seed in range(20):
        seen = contrastive.augment(clip, contrastive.ContrastiveConfig(), rng(seed))
        assert len(seen) % 4 == 0
        assert 40 <= len(seen) <= 196
        spoiled = contrastive.spoil(seen, "a person turns left", rng(seed))
        assert spoiled.shape == seen.shape
        assert (spoiled - seen).abs().max() > 1e-3
    assert torch.equal(contrastive.spoil(clip, "x", rng(3)), contrastive.spoil(clip, "x", rng(3)))


def test_hiding_never_hides_everything() -> None:
    inputs = torch.ones(200, 8, 130)
    hidden = contrastive.hide(inputs, 0.9, rng())
    shown = hidden[:, 0].sum(dim=1)
    assert shown.min() >= 3
    assert (hidden == hidden[:, :1]).all(), "a part is hidden for the whole clip"
    assert torch.equal(contrastive.hide(inputs, 0.0, rng()), inputs)


@pytest.mark.parametrize("damage", DEGRADATIONS, ids=lambda d: d.name)
def test_damage_grows_from_nothing(damage, walk: torch.Tensor) -> None:
    joints = feats.to_joints(walk)
    assert torch.equal(damage.apply(joints, 0.0, rng(1)), joints)
    half, full = (
        np.mean([float((damage.apply(joints, a, rng(s)) - joints).norm(dim=-1).mean()) for s in range(6)])
        for a in (0.4, 1.0)
    )
    assert full > half > 0
    assert damage.apply(joints, 1.0, rng(1)).shape == joints.shape


# training


def corpus(clips: int, seed: int, weak: int = 0) -> Corpus:
    """Clips whose first letter says how the root moves: something to learn."""
    rand = np.random.default_rng(seed)
    made = []
    for i in range(clips):
        features = 0.1 * rand.standard_normal((60, 263)).astype(np.float32)
        features[:, 1] += 0.3 * (i % 6 - 2.5)
        text = "abcdef"[i % 6] * 5 + "xyz"[i % 3]
        made.append(Clip(id=str(i), features=torch.from_numpy(features), captions=(text,), weak=i < weak))
    return Corpus.of(made)


def test_draws_are_pure_and_a_few_steps_learn() -> None:
    task = build(corpus(48, 0, weak=6), corpus(40, 1), toy_encoder, sizes=SMALL, config=EvaluatorTaskConfig())
    first, again, other = task.draw(3, 16), task.draw(3, 16), task.draw(4, 16)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["pooled"], other["pooled"])
    assert all(len(value) == 16 for value in first.values())
    before = task.eval().validate()
    optimizer = torch.optim.AdamW(task.parameters(), 3e-3)
    task.train()
    for step in range(60):
        optimizer.zero_grad()
        task(task.draw(step, 16))["loss"].backward()
        optimizer.step()
    after = task.eval().validate()
    assert after["score"] < before["score"] - 0.3
    assert after["r_top1"] > before["r_top1"] + 0.15


def test_statistics_make_inputs_standard() -> None:
    train = corpus(12, 0)
    task = build(train, corpus(12, 1), toy_encoder, sizes=SMALL)
    rows = [task.evaluator.inputs(train.whole(i))[0, 1:] for i in range(12)]
    every = torch.cat(rows)
    assert torch.allclose(every.mean(dim=0), torch.zeros(130), atol=0.05)
    assert torch.allclose(every.std(dim=0), torch.ones(130), atol=0.05)


def test_a_trained_evaluator_reads_back_and_survives_eight_bits(tmp_path: Path) -> None:
    data = train_data.write(tmp_path / "data")
    finished = evaluator_preset.evaluator("debug", data, tmp_path / "run", Options(accelerator="cpu"))
    assert finished.step == 6
    loaded = OpenEvaluator.load(tmp_path / "run" / "evaluator")
    assert loaded.id.startswith("debug-")
    checkpoint.recode(tmp_path / "run" / "evaluator", tmp_path / "small", "int8", build=loaded.rebuild)
    small = OpenEvaluator.load(tmp_path / "small")
    assert small.id == loaded.id, "the same network in other bits"
    clips, lengths = torch.randn(4, 60, 263, generator=rng()), torch.tensor([60, 60, 40, 44])
    assert (loaded.motion(clips, lengths) * small.motion(clips, lengths)).sum(dim=1).min() > 0.995
    text = ["a person walks forward", "someone jumps"]
    assert (loaded.text(text) * small.text(text)).sum(dim=1).min() > 0.995


def test_a_missing_or_foreign_checkpoint_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        OpenEvaluator.load(tmp_path)
