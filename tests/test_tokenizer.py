"""The motion tokenizer: exact padding, two routes to each token, training that moves what it should."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from anchorroute import tokenizer as tokenizers
from anchorroute.errors import CheckpointError, RequestError
from anchorroute.tokenizer import PAD, Reconstruction, Tokenizer, TokenizerTrainer, perplexity, tokenizer_loss


def make(config=None, seed=0):
    torch.manual_seed(seed)
    tokenizer = Tokenizer(config or tokenizers.debug()).eval()
    tokenizer.codebooks.normal_(std=0.3)
    rng = np.random.default_rng(seed)
    tokenizer.set_statistics(rng.normal(size=263), rng.uniform(0.5, 2, size=263))
    return tokenizer


def features(batch, frames, seed=0):
    return torch.randn(batch, frames, 263, generator=torch.Generator().manual_seed(seed))


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_paper_preset_has_momasks_number_of_parameters():
    assert count(Tokenizer(tokenizers.paper())) == 19_436_807


def test_open_preset_is_small_and_cheap_to_decode():
    tokenizer = Tokenizer(tokenizers.open()).eval()
    assert count(tokenizer) < 8e6
    macs = []
    for module in tokenizer.decoder.modules():
        if isinstance(module, torch.nn.Conv1d):
            module.register_forward_hook(lambda m, _, y: macs.append(m.weight.numel() * y.shape[-1]))
    tokenizer.decode(torch.zeros(1, 49, 128))
    assert sum(macs) <= 0.25e9


def test_a_clip_does_not_depend_on_its_batch_mates_or_on_what_its_padding_holds():
    tokenizer = make()
    x = features(3, 48)
    lengths = torch.tensor([48, 24, 32])
    u = tokenizer.latents(x, lengths)
    dirty = x.clone()
    dirty[1, 24:] = 1e6
    torch.testing.assert_close(tokenizer.latents(dirty, lengths), u, rtol=0, atol=0)
    alone = tokenizer.latents(x[1:2, :24])
    torch.testing.assert_close(u[1:2, :6], alone, rtol=1e-5, atol=1e-5)
    decoded = tokenizer.decode(u, lengths)
    torch.testing.assert_close(decoded[1:2, :24], tokenizer.decode(alone), rtol=1e-4, atol=1e-4)
    assert decoded[1, 24:].abs().max() == 0
    z = tokenizer.encode(x, lengths)
    assert (z[1, 6:] == PAD).all() and (z[1, :6] >= 0).all()


def test_momask_parity_pads_every_clip_to_its_full_length():
    tokenizer = make(replace(tokenizers.debug(), pad_to=16))
    u = torch.randn(2, 10, 16)
    lengths = torch.tensor([40, 20])
    by_hand = u.clone()
    by_hand[1, 5:] = 0
    by_hand = F.pad(by_hand, (0, 0, 0, 6)).transpose(1, 2)
    expected = tokenizer.denormalise(tokenizer.decoder(by_hand).transpose(1, 2))
    out = tokenizer.decode(u, lengths)
    torch.testing.assert_close(out[0], expected[0, :40])
    torch.testing.assert_close(out[1, :20], expected[1, :20])
    assert tokenizer.latents(features(2, 40), lengths).shape == (2, 10, 16)


def test_embed_is_the_sum_of_codes_and_padding_adds_nothing():
    tokenizer = make()
    z = torch.tensor([[[3, 7, 1], [4, PAD, PAD], [PAD, PAD, PAD]]])
    books = tokenizer.codebooks
    expected = torch.stack([books[0, 3] + books[1, 7] + books[2, 1], books[0, 4], torch.zeros(16)])
    torch.testing.assert_close(tokenizer.embed(z)[0], expected)
    torch.testing.assert_close(tokenizer.embed(z[..., :1])[0, 0], books[0, 3])


def test_each_level_takes_the_nearest_code_to_what_is_left():
    tokenizer = make()
    latents = torch.randn(2, 5, 16)
    z = tokenizer.quantize(latents)
    rest = latents
    for level, book in enumerate(tokenizer.codebooks):
        far = (rest[:, :, None] - book).square().sum(-1)
        torch.testing.assert_close(z[..., level], far.argmin(-1))
        rest = rest - book[z[..., level]]
    exact = tokenizer.codebooks[0, 5][None, None]
    assert tokenizer.quantize(exact)[0, 0, 0] == 5


def test_our_quantiser_agrees_with_the_library_that_learns_the_codes():
    tokenizer = make()
    trainer = TokenizerTrainer(tokenizer)
    trainer.initialise(features(32, 40))
    trainer.eval()
    result = trainer(features(4, 40, seed=1))
    torch.testing.assert_close(result.z, tokenizer.encode(features(4, 40, seed=1)))
    torch.testing.assert_close(trainer.quantizer.codebooks, tokenizer.codebooks)


def test_decode_is_differentiable_and_takes_jacobian_products():
    tokenizer = make().double()
    u = torch.randn(1, 6, 16, dtype=torch.float64)
    direction = torch.randn_like(u)
    out, forward = torch.func.jvp(tokenizer.decode, (u,), (direction,))
    step = 1e-6
    numeric = (tokenizer.decode(u + step * direction) - tokenizer.decode(u - step * direction)) / (2 * step)
    torch.testing.assert_close(forward, numeric, rtol=1e-5, atol=1e-6)
    assert out.shape == (1, 24, 263)


def test_training_lowers_the_loss_and_publishes_the_codes():
    tokenizer = make()
    trainer = TokenizerTrainer(tokenizer).train()
    generator = torch.Generator().manual_seed(0)
    x = features(8, 40).cumsum(1) * 0.1
    optimiser = torch.optim.Adam(tokenizer.parameters(), lr=3e-3)
    losses = []
    for step in range(40):
        if step == 10:
            trainer.initialise(x, generator)
        parts = tokenizer_loss(trainer(x, generator, quantize=step >= 10), tokenizer)
        optimiser.zero_grad()
        parts["loss"].backward()
        optimiser.step()
        losses.append(parts["features"].item())
    assert losses[9] < losses[0]
    assert losses[-1] < 0.7 * losses[10]
    torch.testing.assert_close(trainer.quantizer.codebooks, tokenizer.codebooks)


def test_a_generator_fixes_a_training_pass_and_leaves_the_global_one_alone():
    config = replace(tokenizers.debug(), dropout=0.3, sample_temperature=0.5)
    outs = []
    for _ in range(2):
        trainer = TokenizerTrainer(make(config)).train()
        trainer.initialise(features(16, 40), torch.Generator().manual_seed(1))
        torch.manual_seed(len(outs))
        before = torch.get_rng_state()
        outs.append(trainer(features(4, 40), torch.Generator().manual_seed(5)))
        assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(outs[0].output, outs[1].output, rtol=0, atol=0)
    assert not torch.equal(outs[0].output, trainer(features(4, 40), torch.Generator().manual_seed(6)).output)


def test_quantizer_dropout_keeps_as_many_levels_as_it_is_told():
    trainer = TokenizerTrainer(make(replace(tokenizers.debug(), keep_levels=(0.5, 0.0, 0.5)))).train()
    z = torch.zeros(400, 2, 3, dtype=torch.long)
    torch.manual_seed(0)
    kept = (trainer._drop_levels(z) >= 0).sum(-1)
    assert set(kept.flatten().tolist()) == {1, 3}
    assert (kept[:, 0] == kept[:, 1]).all()
    assert 140 < (kept[:, 0] == 1).sum() < 260
    trainer.eval()
    assert torch.equal(trainer._drop_levels(z), z)


def test_dead_codes_come_back_to_life_and_only_if_asked():
    for dead_below, expected in ((0.1, True), (0.0, False)):
        trainer = TokenizerTrainer(make(replace(tokenizers.debug(), dead_below=dead_below))).train()
        trainer.initialise(features(32, 40), torch.Generator().manual_seed(0))
        for layer in trainer.quantizer.layers:
            layer._codebook.embed[:, 3] = 1e3
            layer._codebook.embed_avg[:, 3] = 1e3
            layer._codebook.cluster_size[:, 3] = 1e-3
        trainer(features(8, 40), torch.Generator().manual_seed(1))
        assert (trainer.tokenizer.codebooks[0, 3].abs().max() < 100) == expected


def test_loss_is_zero_for_a_perfect_reconstruction_and_feels_the_integrated_root():
    tokenizer = make()
    target = torch.randn(2, 30, 263)
    zero = torch.zeros(())
    z = torch.zeros(2, 1, 3, dtype=torch.long)
    parts = tokenizer_loss(Reconstruction(target, target.clone(), zero, z), tokenizer)
    assert parts["loss"] == 0
    drift = target.clone()
    drift[..., 1] += 0.1
    short = tokenizer_loss(Reconstruction(target[:, :8], drift[:, :8], zero, z), tokenizer)["root"]
    long = tokenizer_loss(Reconstruction(target, drift, zero, z), tokenizer)["root"]
    assert long > 2 * short > 0


def test_perplexity_counts_codes_in_use():
    uniform = torch.arange(8).repeat(10)[:, None]
    one = torch.zeros(80, 1, dtype=torch.long)
    torch.testing.assert_close(perplexity(torch.cat((uniform, one), 1), 8), torch.tensor([8.0, 1.0]))
    assert perplexity(torch.full((4, 1), PAD), 8).isfinite().all()


def test_forbidden_input():
    tokenizer = make()
    with pytest.raises(RequestError, match="cut the clip to 40"):
        tokenizer.encode(features(1, 42))
    with pytest.raises(RequestError, match="4 levels"):
        tokenizer.embed(torch.zeros(1, 2, 4, dtype=torch.long))
    with pytest.raises(RequestError, match="deviation of zero"):
        tokenizer.set_statistics(np.zeros(263), np.zeros(263))
    with pytest.raises(RequestError, match="one chance a level"):
        replace(tokenizers.open(), levels=1)


def test_one_level_works():
    config = replace(tokenizers.debug(), levels=1, keep_levels=(1.0,))
    tokenizer = make(config)
    trainer = TokenizerTrainer(tokenizer).train()
    trainer.initialise(features(16, 40))
    assert trainer(features(2, 40)).z.shape == (2, 10, 1)
    assert tokenizer.decode(tokenizer.embed(tokenizer.encode(features(2, 40)))).shape == (2, 40, 263)


def test_using_a_tokenizer_does_not_import_the_library_that_trains_it():
    code = "import sys, anchorroute.tokenizer; assert 'vector_quantize_pytorch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --------------------------------------------------------------------------------------------------------------- MoMask


def momask_file(folder, config, change=None):
    """A file laid out like the official one, with random numbers: names as in MoMask's module tree."""
    torch.manual_seed(3)
    w, c = 512, config.code_width
    shapes = {"encoder.model.0": (w, 263, 3), "encoder.model.4": (c, w, 3)}
    shapes |= {"decoder.model.0": (w, c, 3), "decoder.model.4": (w, w, 3), "decoder.model.6": (263, w, 3)}
    for stage in (2, 3):
        shapes[f"encoder.model.{stage}.0"] = (w, w, 4)
        shapes[f"decoder.model.{stage}.2"] = (w, w, 3)
        for i in range(3):
            for side, place in (("encoder", 1), ("decoder", 0)):
                shapes[f"{side}.model.{stage}.{place}.model.{i}.conv1"] = (w, w, 3)
                shapes[f"{side}.model.{stage}.{place}.model.{i}.conv2"] = (w, w, 1)
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = torch.randn(shape) / (shape[1] * shape[2]) ** 0.5
        state[f"{name}.bias"] = torch.randn(shape[0]) * 0.1
    state |= {f"quantizer.layers.{q}.codebook": torch.randn(512, c) for q in range(6)}
    if change:
        change(state)
    (folder / "model").mkdir(parents=True)
    (folder / "meta").mkdir()
    torch.save({"vq_model": state, "ep": 49}, folder / "model" / "net_best_fid.tar")
    np.save(folder / "meta" / "mean.npy", np.full(263, 0.5, dtype=np.float32))
    np.save(folder / "meta" / "std.npy", np.full(263, 2.0, dtype=np.float32))
    return state


def momask_decoder(state, u):
    """MoMask's decoder written out over its own names, as an independent route to the same numbers."""

    def conv(x, name, dilation=1):
        weight = state[f"{name}.weight"]
        return F.conv1d(x, weight, state[f"{name}.bias"], padding=dilation * (weight.shape[-1] // 2), dilation=dilation)

    h = conv(u, "decoder.model.0").relu()
    for stage in (2, 3):
        for i, dilation in enumerate((9, 3, 1)):
            name = f"decoder.model.{stage}.0.model.{i}"
            h = h + conv(conv(h.relu(), f"{name}.conv1", dilation).relu(), f"{name}.conv2")
        h = conv(F.interpolate(h, scale_factor=2, mode="nearest"), f"decoder.model.{stage}.2")
    return conv(conv(h, "decoder.model.4").relu(), "decoder.model.6")


def test_momasks_checkpoint_loads_and_decodes_to_the_same_numbers(tmp_path):
    from anchorroute import momask

    state = momask_file(tmp_path, tokenizers.paper())
    tokenizer = momask.load(tmp_path)
    z = torch.randint(512, (1, 49, 6))
    u = sum(state[f"quantizer.layers.{q}.codebook"][z[..., q]] for q in range(6))
    torch.testing.assert_close(tokenizer.embed(z), u)
    expected = momask_decoder(state, u.transpose(1, 2)).transpose(1, 2) * 2 + 0.5
    torch.testing.assert_close(tokenizer.decode(u), expected, rtol=1e-3, atol=1e-3)
    assert not tokenizer.training


def test_momask_files_that_are_something_else_are_refused(tmp_path):
    from anchorroute import momask

    with pytest.raises(CheckpointError, match="does not exist"):
        momask.load(tmp_path / "nowhere")
    momask_file(tmp_path / "a", tokenizers.paper(), lambda state: state.pop("encoder.model.4.bias"))
    with pytest.raises(CheckpointError, match=r"lacks \['encoder.model.4.bias'\]"):
        momask.load(tmp_path / "a")
    (tmp_path / "a" / "model" / "net_best_fid.tar").write_bytes(b"not a file of tensors")
    with pytest.raises(CheckpointError, match="cannot be read as plain tensors"):
        momask.load(tmp_path / "a")
