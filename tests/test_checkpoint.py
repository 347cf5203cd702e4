"""Checkpoints: what is read is what was saved, and everything else is refused with a reason."""

import json
from dataclasses import asdict, dataclass

import pytest
import torch

from anchorroute import checkpoint, tokenizer, transformer
from anchorroute.conditioning import Conditioner, ConditionerConfig
from anchorroute.errors import CheckpointError


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    config = tokenizer.debug()
    module = tokenizer.Tokenizer(config).eval()
    module.codebooks.normal_()
    identity = checkpoint.save(tmp_path / "tokenizer", module, config, {"data": "abc", "steps": 3})
    return tmp_path / "tokenizer", module, identity


def test_what_is_read_is_what_was_saved(saved):
    path, module, identity = saved
    loaded = checkpoint.load(path, kind="Tokenizer")
    assert loaded.config == tokenizer.debug()
    assert loaded.id == identity
    assert loaded.provenance == {"data": "abc", "steps": 3}
    assert not loaded.module.training
    assert not any(p.requires_grad for p in loaded.module.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name], value)


@pytest.mark.parametrize(
    ("module", "config"),
    [
        (transformer.Transformer, transformer.debug()),
        (transformer.ResidualTransformer, transformer.residual_debug()),
        (Conditioner, ConditionerConfig.of("root3d", transformer.debug(), transformer.residual_debug())),
    ],
    ids=["prior", "residual", "adapter"],
)
def test_every_kind_comes_back_as_itself(tmp_path, module, config):
    original = module(config)
    checkpoint.save(tmp_path / "it", original, config, {}, on_top_of={"tokenizer": "1234"})
    loaded = checkpoint.load(tmp_path / "it", kind=module.__name__, on_top_of={"tokenizer": "1234"})
    assert type(loaded.module) is module
    assert loaded.config == config
    for name, value in original.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name], value)


def test_a_kind_from_elsewhere_brings_its_builder(tmp_path):
    @dataclass(frozen=True)
    class Sizes:
        width: int = 3

    class Judge(torch.nn.Linear):
        def __init__(self, config):
            super().__init__(config.width, 2)
            self.config = config

    original = Judge(Sizes(4))
    checkpoint.save(tmp_path / "judge", original, Sizes(4), {})
    loaded = checkpoint.load(tmp_path / "judge", build=lambda values: Judge(Sizes(**values)))
    assert torch.equal(loaded.module.weight, original.weight)
    with pytest.raises(CheckpointError, match="holds a 'Judge'"):
        checkpoint.load(tmp_path / "judge")


@pytest.mark.parametrize("shape", [(24, 64), (16, 8, 3), (5, 12, 32)])
def test_eight_bits_are_within_half_a_step_of_each_channels_scale(shape):
    weight = torch.randn(shape) * torch.logspace(-6, 3, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    weight[1] = 0
    stored, scale = checkpoint.quantise(weight)
    assert stored.dtype == torch.int8
    assert ((stored.float() * scale - weight).abs() <= 0.5001 * scale).all()
    assert (stored[1] == 0).all()


@pytest.mark.parametrize(("storage", "share"), [("float32", 1.0), ("float16", 0.55), ("int8", 0.35)])
def test_recoding_keeps_the_id_and_nearly_the_numbers(saved, storage, share):
    path, _, _ = saved
    small = path.with_name("small")
    module = tokenizer.Tokenizer(tokenizer.open()).eval()
    module.codebooks.normal_()
    identity = checkpoint.save(path, module, tokenizer.open(), {})
    assert checkpoint.recode(path, small, storage) == identity
    sizes = [(folder / checkpoint.WEIGHTS).stat().st_size for folder in (small, path)]
    assert sizes[0] <= share * sizes[1]
    loaded = checkpoint.load(small)
    assert loaded.id == identity
    u = torch.randn(1, 5, 128)
    error = (loaded.module.decode(u) - module.decode(u)).norm() / module.decode(u).norm()
    assert error < {"float32": 1e-7, "float16": 1e-2, "int8": 0.05}[storage]
    assert torch.equal(loaded.module.mean, module.mean)


def test_an_id_is_of_the_numbers(saved):
    path, module, identity = saved
    again = checkpoint.save(path.with_name("again"), module, tokenizer.debug(), {"other": "provenance"})
    assert again == identity
    with torch.no_grad():
        module.encoder.input.bias[0] += 1e-6
    assert checkpoint.save(path.with_name("moved"), module, tokenizer.debug(), {}) != identity


def test_a_prior_refuses_another_tokenizer(saved, tmp_path):
    _, _, identity = saved
    config = transformer.debug()
    prior = transformer.Transformer(config)
    checkpoint.save(tmp_path / "prior", prior, config, {}, on_top_of={"tokenizer": identity})
    assert checkpoint.load(tmp_path / "prior", on_top_of={"tokenizer": identity}).on_top_of == {"tokenizer": identity}
    with pytest.raises(CheckpointError, match=f"trained on tokenizer {identity[:12]}"):
        checkpoint.load(tmp_path / "prior", on_top_of={"tokenizer": "f" * 64})
    with pytest.raises(CheckpointError, match="trained on prior nothing"):
        checkpoint.load(tmp_path / "prior", on_top_of={"prior": "f" * 64})
    with pytest.raises(CheckpointError, match="holds a Transformer, not a Tokenizer"):
        checkpoint.load(tmp_path / "prior", kind="Tokenizer")


@pytest.mark.parametrize("place", [0.01, 0.5, 0.999])
def test_one_flipped_bit_is_found(saved, place):
    path, _, _ = saved
    weights = path / checkpoint.WEIGHTS
    content = bytearray(weights.read_bytes())
    content[int(place * len(content))] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.load(path)


def edit(path, **changes):
    about = json.loads((path / checkpoint.CONFIG).read_text())
    (path / checkpoint.CONFIG).write_text(json.dumps(about | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "has format 99, this version reads format 1"),
        ({"config": {"latitude": 3}}, "no field 'latitude'"),
        ({"config": {"codes": "many"}}, "Expected `int`, got `str`"),
        ({"config": asdict(tokenizer.open())}, "do not fit the configuration"),
        ({"kind": "Oracle"}, "holds a 'Oracle'"),
    ],
)
def test_a_configuration_that_is_not_what_was_saved_is_refused(saved, changes, message):
    path, _, _ = saved
    edit(path, **changes)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(path)


def test_what_is_missing_is_named(saved, tmp_path):
    path, _, _ = saved
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        checkpoint.load(tmp_path / "nowhere")
    about = json.loads((path / checkpoint.CONFIG).read_text())
    del about["id"]
    (path / checkpoint.CONFIG).write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match="lacks 'id'"):
        checkpoint.load(path)
    (path / checkpoint.CONFIG).write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.load(path)


def test_numbers_that_are_not_finite_are_never_written(tmp_path):
    module = tokenizer.Tokenizer(tokenizer.debug())
    with torch.no_grad():
        module.decoder.input.weight[0, 0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"decoder.input.weight.* not finite"):
        checkpoint.save(tmp_path / "it", module, tokenizer.debug(), {})
    assert not (tmp_path / "it").exists()


def test_a_failed_save_leaves_the_old_checkpoint_whole(saved, monkeypatch):
    path, module, _ = saved

    def full(content):
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(path, module, tokenizer.debug(), {"steps": 4})
    assert checkpoint.load(path).provenance["steps"] == 3
    assert sorted(p.name for p in path.iterdir()) == [checkpoint.CONFIG, checkpoint.WEIGHTS]
