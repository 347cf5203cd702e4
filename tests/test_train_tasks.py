"""What training is fed: stored tokens and texts, how clips are drawn, what the anchor loss watches, what may move."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from anchorroute import checkpoint, models, scaffold, tmd
from anchorroute import tokenizer as tokenizers
from anchorroute import transformer as transformers
from anchorroute.conditioning import Conditioner, ConditionerConfig
from anchorroute.data.anchor_sampling import training_anchors
from anchorroute.data.humanml3d import Clip
from anchorroute.errors import DataError, RequestError
from anchorroute.losses import anchor_support
from anchorroute.motion.features import from_joints, to_joints
from anchorroute.text import Text, TextEncoder
from anchorroute.train.assemble import Parts, assemble, latents
from anchorroute.train.control import ControlTask, ControlTaskConfig, Frozen
from anchorroute.train.corpus import Corpus, rng
from anchorroute.train.loop import LoopConfig, fit
from anchorroute.train.prior import Captioned, DrawConfig, PriorTask, PriorTaskConfig
from anchorroute.train.texts import TextStore
from anchorroute.train.tokens import TokenStore, encoder_hash

from motions import walk

WIDTH = 12


class Letters:
    """A text encoder whose numbers are plain: one piece a word, its length everywhere."""

    width = WIDTH

    def __call__(self, texts: list[str]) -> Text:
        words = [text.split() or ["-"] for text in texts]
        size = max(len(w) for w in words)
        tokens = torch.zeros(len(texts), size, WIDTH)
        mask = torch.zeros(len(texts), size, dtype=torch.bool)
        for row, found in enumerate(words):
            tokens[row, : len(found)] = torch.tensor([len(w) for w in found]).float()[:, None]
            mask[row, : len(found)] = True
        return Text(tokens.mean(1), tokens, mask)


ENCODER = cast("TextEncoder", Letters())


@pytest.fixture(scope="module")
def tokenizer() -> tokenizers.Tokenizer:
    torch.manual_seed(0)
    made = tokenizers.Tokenizer(tokenizers.debug())
    made.codebooks.normal_(std=0.5)
    made.set_statistics(np.zeros(263, np.float32), np.ones(263, np.float32))
    return made.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    clips = []
    for i in range(8):
        features = from_joints(walk(45 + 8 * i, seed=i, turn=0.1 * i))
        weak = i >= 6
        clips.append(Clip(f"{i}", features, (f"walk number {i}", "a person walks"), weak=weak))
    return Corpus.of(clips)


@pytest.fixture
def captioned(tokenizer: tokenizers.Tokenizer, corpus: Corpus, tmp_path: Path) -> Captioned:
    texts = TextStore.of(ENCODER, [text for clip in corpus.captions for text in clip])
    return Captioned(corpus, TokenStore.of(tokenizer, corpus, (0, 2), tmp_path), texts)


def test_tokens_are_the_tokenizers_own(tokenizer: tokenizers.Tokenizer, corpus: Corpus, tmp_path: Path) -> None:
    store = TokenStore.of(tokenizer, corpus, (0, 2), tmp_path)
    for offset_row, offset in enumerate((0, 2)):
        for clip in (1, 7):
            length = (int(corpus.lengths[clip]) - offset) // 4
            start = int(corpus.starts[clip]) + offset
            alone = tokenizer.encode(torch.from_numpy(corpus.features[start : start + 4 * length])[None])[0]
            found = store.batch(np.array([clip, 0]), np.array([offset_row, 0]))[0]
            assert torch.equal(found[:length], alone)
            assert (found[length:] == -1).all()
    again = TokenStore.of(tokenizer, corpus, (0, 2), tmp_path)
    assert (again.ids == store.ids).all() and len(list(tmp_path.rglob("*.npy"))) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_windows_of_tokens_carry_their_own_frames(
    tokenizer: tokenizers.Tokenizer, corpus: Corpus, tmp_path: Path
) -> None:
    store = TokenStore.of(tokenizer, corpus, (0, 2), tmp_path)
    z, features = store.windows(corpus, np.random.default_rng(0), 50, 6)
    assert z.shape == (50, 6, 3) and features.shape == (50, 24, 263)
    for ids, frames in zip(z, features):
        at = np.flatnonzero((corpus.features[:, :] == frames[0].numpy()).all(1))
        assert len(at) == 1
        clip = int(np.searchsorted(corpus.starts, at[0], side="right")) - 1
        within = int(at[0] - corpus.starts[clip])
        assert within + 24 <= corpus.lengths[clip] and within % 4 in (0, 2)
        variant, first = (0, within // 4) if within % 4 == 0 else (1, (within - 2) // 4)
        whole = store.batch(np.array([clip]), np.array([variant]))[0]
        assert torch.equal(whole[first : first + 6], ids)
    with pytest.raises(DataError, match="100 tokens"):
        store.windows(corpus, np.random.default_rng(0), 1, 100)


def test_hash_of_tokens_ignores_the_decoder(tokenizer: tokenizers.Tokenizer) -> None:
    before = encoder_hash(tokenizer)
    other = tokenizers.Tokenizer(tokenizer.config)
    other.load_state_dict(tokenizer.state_dict())
    with torch.no_grad():
        other.decoder.output.weight.add_(1.0)
    assert encoder_hash(other) == before
    with torch.no_grad():
        other.codebooks[2, 0, 0] += 1.0
    assert encoder_hash(other) != before


def test_stored_texts_are_the_encoders(captioned: Captioned) -> None:
    store, captions = captioned.texts, ["Walk number 3", "a person walks", "walk number 7"]
    found = store.batch([store.row(caption) for caption in captions])
    direct = ENCODER([caption.lower() for caption in captions])
    assert torch.equal(found.mask, direct.mask)
    assert torch.allclose(found.tokens, direct.tokens) and torch.allclose(found.pooled, direct.pooled, rtol=1e-3)


def test_clips_are_drawn_in_proportion_and_by_length(captioned: Captioned) -> None:
    config = DrawConfig(weak=0.5, buckets=4)
    seen = np.concatenate([captioned.choose(rng(0, step), 16, config)[0] for step in range(200)])
    assert captioned.corpus.weak[seen].mean() == pytest.approx(0.5, abs=0.03)
    assert set(seen) == set(range(8))
    for step in range(5):
        clips, _ = captioned.choose(rng(0, step), 16, config)
        spread = captioned.corpus.lengths[clips]
        assert spread.max() - spread.min() <= 8 * 5  # a quarter of the crowd, not all of it
        assert (captioned.choose(rng(0, step), 16, config)[0] == clips).all()


def frozen_networks(tokenizer: tokenizers.Tokenizer) -> Frozen:
    torch.manual_seed(1)
    sizes = transformers.debug()
    changes = {"text_width": WIDTH}
    prior = transformers.Transformer(type(sizes)(**{**vars(sizes), **changes}))
    fine = transformers.residual_debug()
    residual = transformers.ResidualTransformer(type(fine)(**{**vars(fine), **changes}))
    return Frozen(tokenizer, prior, residual, tmd.Path(tokenizer.codebooks[0]))


@pytest.fixture
def control(tokenizer: tokenizers.Tokenizer, captioned: Captioned) -> ControlTask:
    frozen = frozen_networks(tokenizer)
    assert frozen.residual is not None
    config = ConditionerConfig.of("body", frozen.prior.config, frozen.residual.config, rank=4, fine_rank=4, hidden=8)
    how = ControlTaskConfig(prior=PriorTaskConfig(draw=DrawConfig(validation_clips=3)), counts=(2,), steps=2)
    return ControlTask(Conditioner(config), frozen, captioned, captioned, how, seed=3)


def test_only_the_adapter_moves(control: ControlTask, tmp_path: Path) -> None:
    before = [p.clone() for module in control.frozen.modules() for p in module.state_dict().values()]
    start = [p.detach().clone() for p in control.model.parameters()]
    loop = LoopConfig(batch=4, steps=4, lr=1e-2, warmup=1, validations=1, precision="32-true")
    done = fit(control, loop, tmp_path, fabric=Fabric(accelerator="cpu"), seed=3)
    after = [p for module in control.frozen.modules() for p in module.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    moved = [not torch.equal(a, b) for a, b in zip(start, control.model.parameters())]
    assert sum(moved) > 0.8 * len(moved)
    assert set(done.figures) >= {"score", "error_2", "prior_2", "oracle_level1_2", "oracle_2"}
    stored = checkpoint_names(tmp_path / "last.safetensors")
    assert all(name.startswith(("model.model.", "average.", "moment.")) for name in stored)


def checkpoint_names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return list(file.keys())


def test_anchor_loss_by_a_second_route(control: ControlTask) -> None:
    """The batched loss is `losses.anchor_support`, clip by clip, of the decoded expectation."""
    batch = dict(control.draw(0, 5))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(*batch["z"].shape[:2], 32, generator=generator)
    loss = control._anchor_loss(logits, batch)
    # The same anchors again: draw() takes clips, captions, then anchors from one generator.
    chance = rng(control.seed, 0)
    clips, variants = control.data.choose(chance, 5, control.config.prior.draw)
    control.data.captions(chance, clips)
    tokenizer, total = control.frozen.tokenizer, 0.0
    for row, (clip, variant) in enumerate(zip(clips, variants)):
        length = 4 * int(control.data.tokens.lengths[variant, clip])
        start = int(control.data.corpus.starts[clip]) + control.data.tokens.offsets[variant]
        truth = to_joints(torch.from_numpy(control.data.corpus.features[start : start + length]))
        observed = training_anchors(truth, control.family, chance, control.config.sampling)["body"]
        u = torch.softmax(logits[row, : length // 4], -1) @ tokenizer.codebooks[0]
        made = to_joints(tokenizer.decode(u[None]))[0]
        total += float(anchor_support(made, truth, scaffold.support(observed, length)))
    assert float(loss) == pytest.approx(total / 5, rel=1e-3)


def test_prior_learns_a_constant_clip(tokenizer: tokenizers.Tokenizer, corpus: Corpus, tmp_path: Path) -> None:
    """One clip, one caption: cross-entropy must fall far below chance, and validation must see it."""
    texts = TextStore.of(ENCODER, ["walk number 0", "a person walks"])
    one = corpus.subset([0])
    data = Captioned(one, TokenStore.of(tokenizer, one, (0,), tmp_path), texts)
    sizes = transformers.debug()
    network = transformers.Transformer(type(sizes)(**{**vars(sizes), "text_width": WIDTH}))
    task = PriorTask(network, tmd.Path(tokenizer.codebooks[0]), data, data, PriorTaskConfig(), 0)
    with torch.no_grad():
        untrained = task.validate()["ce"]
    loop = LoopConfig(batch=8, steps=40, lr=1e-2, warmup=5, validations=1, ema=0.9, precision="32-true")
    done = fit(task, loop, tmp_path / "run", fabric=Fabric(accelerator="cpu"))
    assert untrained > 3.0 and done.figures["ce"] < 0.3 * untrained


def test_assembled_folder_loads(tokenizer: tokenizers.Tokenizer, corpus: Corpus, tmp_path: Path) -> None:
    torch.manual_seed(0)
    prior = transformers.Transformer(transformers.debug())
    mine = checkpoint.save(tmp_path / "t", tokenizer, tokenizer.config, {"data": "x"})
    about = {"data": "x", "path": {"a": 0.9, "c": 3.0, "centre": False}}
    checkpoint.save(tmp_path / "p", prior, prior.config, about, on_top_of={"tokenizer": mine})
    fine = transformers.ResidualTransformer(transformers.residual_debug())
    checkpoint.save(tmp_path / "r", fine, fine.config, {"data": "x"}, on_top_of={"tokenizer": mine})
    parts = Parts(tmp_path / "t", tmp_path / "p", tmp_path / "r")
    sizes = assemble(parts, corpus, tmp_path / "out", settings={"guidance": 3.0})
    assert sizes["prior/weights.safetensors"] < (tmp_path / "p" / "weights.safetensors").stat().st_size / 2
    loaded = models.load(tmp_path / "out")
    assert loaded.settings.guidance == 3.0 and loaded.covariance is not None
    found = latents(loaded.tokenizer, corpus, len(corpus))
    assert len(found) == int((corpus.lengths // 4).sum())
    assert torch.allclose(loaded.covariance, torch.cov(found.T), rtol=1e-3, atol=1e-5)
    with pytest.raises(RequestError, match="root3d"):
        assemble(Parts(tmp_path / "t", tmp_path / "p", control={"hand": tmp_path}), corpus, tmp_path / "o")
