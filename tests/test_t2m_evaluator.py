"""The official evaluator: parameter counts, the file layout end to end, the normalisation trap."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute.errors import CheckpointError, DataError, FormatError
from anchorroute.evaluate.t2m_evaluator import (
    MotionEncoder,
    MovementEncoder,
    T2MEvaluator,
    T2MStatistics,
    TextEncoder,
)
from anchorroute.evaluate.word_vectors import PARTS_OF_SPEECH, WordVectors

SHARED = Path(os.environ.get("ANCHORROUTE_SHARED", Path(__file__).parents[2] / "shared"))
WORDS = ["sos", "eos", "unk", "man", "walk", "forward", "gently"]


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_are_the_published_ones() -> None:
    assert count(TextEncoder()) == 4_100_288
    assert count(MotionEncoder()) == 15_747_584
    assert count(MovementEncoder()) == 1_842_688


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated checkpoint in the published layout."""
    root = tmp_path_factory.mktemp("evaluator")
    torch.manual_seed(0)
    home = root / "checkpoints" / "t2m"
    (home / "text_mot_match" / "model").mkdir(parents=True)
    (home / "Comp_v6_KLD005" / "meta").mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.save(home / "Comp_v6_KLD005/meta/mean.npy", rng.normal(size=263).astype(np.float32))
    np.save(home / "Comp_v6_KLD005/meta/std.npy", rng.uniform(0.5, 2, 263).astype(np.float32))
    nets = {"movement_encoder": MovementEncoder(), "text_encoder": TextEncoder(), "motion_encoder": MotionEncoder()}
    saved = {name: net.state_dict() for name, net in nets.items()}
    torch.save({**saved, "epoch": 3, "iter": 9}, home / "text_mot_match/model/finest.tar")
    glove = root / "glove"
    glove.mkdir()
    np.save(glove / "our_vab_data.npy", rng.normal(size=(len(WORDS), 300)).astype(np.float32))
    (glove / "our_vab_words.pkl").write_bytes(pickle.dumps(WORDS))
    (glove / "our_vab_idx.pkl").write_bytes(pickle.dumps({word: i for i, word in enumerate(WORDS)}))
    return root


@pytest.fixture(scope="module")
def evaluator(folder: Path) -> T2MEvaluator:
    return T2MEvaluator.load(folder)


def test_published_parameter_names() -> None:
    text = set(TextEncoder().state_dict())
    assert {"hidden", "pos_emb.weight", "input_emb.bias", "gru.weight_hh_l0_reverse", "output_net.3.weight"} <= text
    movement = {"main.0.weight", "main.0.bias", "main.3.weight", "main.3.bias", "out_net.weight", "out_net.bias"}
    assert set(MovementEncoder().state_dict()) == movement


def test_text_to_embedding_end_to_end(evaluator: T2MEvaluator) -> None:
    both = evaluator.text(["man/NOUN walk/VERB forward/ADV", "walk/VERB"])
    assert both.shape == (2, 512)
    assert torch.allclose(both[1:], evaluator.text(["walk/VERB"]), atol=1e-5), "batch mates do not matter"
    assert not torch.allclose(both[0], both[1])
    assert torch.equal(evaluator.text(["forward/ADV"]), evaluator.text(["forward/NOUN"])), "its own list wins"
    assert not torch.equal(evaluator.text(["gently/ADV"]), evaluator.text(["gently/NOUN"]))
    assert torch.equal(evaluator.text(["zzz/NOUN"]), evaluator.text(["yyy/VERB"])), "unknown words are all unk"


def test_motion_to_embedding_ignores_padding_and_contacts(evaluator: T2MEvaluator) -> None:
    features = torch.randn(3, 80, 263, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([60, 80, 43])
    found = evaluator.motion(features, lengths)
    changed = features.clone()
    changed[0, 60:] = 9
    changed[2, 40:] = -9  # 43 frames are ten units: the last three frames are not read
    changed[..., -4:] = 5
    assert torch.equal(found, evaluator.motion(changed, lengths))
    alone = evaluator.motion(features[2:], lengths[2:])
    assert torch.allclose(found[2:], alone, atol=1e-5), "order and batch mates do not matter"
    with pytest.raises(DataError, match="four frames"):
        evaluator.motion(features, torch.tensor([3, 80, 80]))


def test_features_are_normalised_with_the_evaluators_own_statistics(folder: Path, evaluator: T2MEvaluator) -> None:
    meta = folder / "checkpoints/t2m/Comp_v6_KLD005/meta"
    mean, std = (torch.from_numpy(np.load(meta / f"{name}.npy")) for name in ("mean", "std"))
    features = torch.randn(1, 196, 263, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        movements = evaluator.movement_encoder(((features - mean) / std)[..., :-4])
        expected = evaluator.motion_encoder(movements, torch.tensor([49]))
    assert torch.allclose(evaluator.motion(features, torch.tensor([196])), expected, atol=1e-5)


def test_the_samples_statistics_show_the_trap() -> None:
    home = SHARED / "data/humanml3d-sample"
    if not home.exists():
        pytest.skip("the HumanML3D sample statistics are not at ANCHORROUTE_SHARED")
    ratio = np.load(home / "Std.npy") / np.load(home / "eval_std.npy")
    assert np.allclose(ratio[[0, 1, 2, 3, 259, 260, 261, 262]], 25, rtol=0.02)
    assert np.allclose(ratio[4:259], 1, rtol=0.01)


def test_wrong_folders_and_files_are_explained(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="text_mot_match"):
        T2MEvaluator.load(tmp_path)
    broken = tmp_path / "t2m" / "text_mot_match" / "model"
    broken.mkdir(parents=True)
    (tmp_path / "t2m" / "Comp_v6_KLD005").mkdir()
    (tmp_path / "t2m" / "Comp_v6_KLD005" / "meta").symlink_to(folder / "checkpoints/t2m/Comp_v6_KLD005/meta")
    torch.save({"movement_encoder": MovementEncoder().state_dict()}, broken / "finest.tar")
    with pytest.raises(CheckpointError, match="text_encoder"):
        T2MEvaluator.load(tmp_path)
    torch.save({name: {} for name in ("movement_encoder", "text_encoder", "motion_encoder")}, broken / "finest.tar")
    with pytest.raises(CheckpointError, match="movement_encoder"):
        T2MEvaluator.load(tmp_path)


def test_without_a_word_table_motions_still_embed() -> None:
    evaluator = T2MEvaluator(T2MStatistics(torch.zeros(263), torch.ones(263)))
    assert evaluator.motion(torch.zeros(1, 8, 263), torch.tensor([8])).shape == (1, 512)
    with pytest.raises(CheckpointError, match="glove"):
        evaluator.text(["walk/VERB"])


def test_word_tables_refuse_code_and_bad_tokens(tmp_path: Path) -> None:
    np.save(tmp_path / "our_vab_data.npy", np.zeros((1, 300)))
    (tmp_path / "our_vab_words.pkl").write_bytes(pickle.dumps(OrderedDict(a=1)))
    (tmp_path / "our_vab_idx.pkl").write_bytes(pickle.dumps({}))
    with pytest.raises(FormatError, match="OrderedDict"):
        WordVectors.load(tmp_path)
    with pytest.raises(FormatError, match="unk"):
        WordVectors({})
    with pytest.raises(DataError, match="word/POS"):
        WordVectors({"unk": np.zeros(300)})([["walk"]])


def test_words_are_cut_marked_and_padded() -> None:
    table = {word: np.full(300, i, np.float32) for i, word in enumerate(WORDS)}
    words = WordVectors(table)([["man/NOUN"] * 30, ["walk/XYZ"]])
    assert words.lengths.tolist() == [22, 3]
    assert words.vectors[0, :, 0].tolist() == [0] + [3] * 20 + [1]
    assert words.vectors[1, :, 0].tolist() == [0, 4, 1] + [2] * 19
    assert words.parts[0, 1].argmax() == PARTS_OF_SPEECH.index("NOUN")
    assert words.parts[1, 1].argmax() == PARTS_OF_SPEECH.index("Act_VIP")
