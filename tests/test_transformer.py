"""The token networks: without memory they are the prior, and each way in does what it says."""

from dataclasses import dataclass, replace

import pytest
import torch

from anchorroute import transformer as transformers
from anchorroute.transformer import Memory, ResidualTransformer, Transformer, rotate


@dataclass(frozen=True)
class Words:
    pooled: torch.Tensor
    tokens: torch.Tensor
    mask: torch.Tensor

    def __getitem__(self, rows):
        return Words(self.pooled[rows], self.tokens[rows], self.mask[rows])


def words(batch, pieces=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    mask = torch.arange(pieces) < torch.randint(2, pieces + 1, (batch, 1), generator=g)
    return Words(torch.randn(batch, 384, generator=g), torch.randn(batch, pieces, 384, generator=g), mask)


def stirred(module, seed=0):
    """Leave the zeros of initialisation: they would hide what a path does."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return module.eval()


def network(**changes):
    return stirred(Transformer(replace(transformers.debug(), **changes)))


def memory(batch, slots, config, seed=0, **extra):
    g = torch.Generator().manual_seed(seed)
    shape = (batch, config.heads, slots, config.width // config.heads)
    parts = [tuple(torch.randn(shape, generator=g) for _ in range(config.layers)) for _ in range(2)]
    return Memory(*parts, mask=extra.pop("mask", torch.ones(batch, slots, dtype=torch.bool)), **extra)


def tokens(batch, length, seed=0):
    return torch.randint(32, (batch, length), generator=torch.Generator().manual_seed(seed))


def test_sizes():
    def count(module):
        return sum(p.numel() for p in module.parameters())

    assert count(Transformer(transformers.open())) < 12e6
    assert count(ResidualTransformer(transformers.residual_open())) < 3.2e6
    paper = transformers.paper()
    assert (paper.width, paper.layers) == (512, 8)


def test_rotary_positions_make_attention_depend_on_distance_alone():
    q, k = torch.randn(1, 1, 1, 16).expand(1, 1, 12, 16), torch.randn(1, 1, 1, 16).expand(1, 1, 12, 16)
    scores = rotate(q) @ rotate(k).transpose(-1, -2)
    for shift in (-3, 0, 5):
        diagonal = scores[0, 0].diagonal(shift)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rotate(q).norm(dim=-1), q.norm(dim=-1))


def test_padding_changes_nothing():
    net, text = network(), words(2)
    z = tokens(2, 9)
    mask = torch.arange(9) < torch.tensor([9, 5])[:, None]
    out = net(z, text, mask)
    other = z.clone()
    other[1, 5:] = -1
    torch.testing.assert_close(net(other, text, mask)[mask], out[mask], rtol=0, atol=0)
    alone = net(z[1:, :5], text[1:], None)
    torch.testing.assert_close(out[1:, :5], alone, rtol=1e-4, atol=1e-5)


def test_absent_word_pieces_change_nothing_and_present_ones_do():
    net, text, z = network(), words(2, seed=1), tokens(2, 6)
    assert not text.mask.all()
    out = net(z, text, None)
    noise = torch.where(text.mask[..., None], text.tokens, torch.full_like(text.tokens, 7.0))
    torch.testing.assert_close(net(z, replace(text, tokens=noise), None), out, rtol=0, atol=0)
    assert not torch.allclose(net(z, replace(text, tokens=text.tokens + 1e-1 * torch.randn(2, 5, 384)), None), out)
    assert not torch.allclose(net(z, replace(text, pooled=torch.randn(2, 384)), None), out)


def test_a_dropped_text_leaves_no_trace_of_itself():
    net, z = network(), tokens(2, 6)
    drop = torch.tensor([True, False])
    out = net(z, words(2), None, drop=drop)
    again = net(z, words(2, seed=5), None, drop=drop)
    torch.testing.assert_close(out[0], again[0], rtol=0, atol=0)
    assert not torch.allclose(out[1], again[1])
    torch.testing.assert_close(out[1], net(z, words(2), None)[1])


def test_no_memory_is_the_prior_bit_for_bit():
    net, text, z = network(), words(2), tokens(2, 6)
    assert torch.equal(net(z, text, None), net(z, text, None, memory=[]))
    assert torch.equal(net.logits(z, None, net.context(text)), net(z, text, None, memory=()))


def test_memory_of_a_sample_without_anchors_changes_nothing():
    net, text, z = network(), words(2), tokens(2, 6)
    heads, layers = net.config.heads, net.config.layers
    mask = torch.tensor([[False] * 6, [True] * 6])
    gates = tuple(torch.full((heads,), 0.7) for _ in range(layers))
    with_memory = net(z, text, None, [memory(2, 6, net.config, mask=mask, text_gate=gates, memory_gate=gates)])
    without = net(z, text, None)
    torch.testing.assert_close(with_memory[0], without[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(with_memory[1], without[1], atol=1e-2)


def test_memory_is_attention_over_appended_keys_and_values():
    net, text = network(layers=1), words(1)
    x = torch.randn(1, 6, 32)
    m = memory(1, 4, net.config, bias=(torch.tensor([-1.0, 0.5]),))
    layer, context = net.layers[0], net.context(text, [m])
    seen = layer._self_attention(x, None, context.layers[0])
    q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in layer.qkv(x).chunk(3, -1))
    own = rotate(q) @ rotate(k).transpose(-1, -2) / 4
    extra = rotate(q) @ rotate(m.keys[0]).transpose(-1, -2) / 4 + m.bias[0][None, :, None, None]
    heads = torch.softmax(torch.cat((own, extra), -1), -1) @ torch.cat((v, m.values[0]), 2)
    torch.testing.assert_close(seen, layer.out(heads.transpose(1, 2).flatten(2)))


def test_a_bias_of_minus_infinity_silences_memory_and_masked_slots_are_silent():
    net, text, z = network(), words(2), tokens(2, 6)
    without = net(z, text, None)
    silent = tuple(torch.full((2,), -1e9) for _ in range(2))
    torch.testing.assert_close(net(z, text, None, [memory(2, 4, net.config, bias=silent)]), without)
    mask = torch.tensor([[True, True, False, False]]).expand(2, 4)
    part = memory(2, 4, net.config, mask=mask)
    cut = Memory(tuple(k[:, :, :2] for k in part.keys), tuple(v[:, :, :2] for v in part.values), mask[:, :2])
    torch.testing.assert_close(net(z, text, None, [part]), net(z, text, None, [cut]))


def test_gates_scale_heads_of_text_and_of_memory():
    net, text, z = network(), words(2), tokens(2, 6)
    heads, layers = net.config.heads, net.config.layers
    zero, minus = (tuple(torch.full((heads,), g) for _ in range(layers)) for g in (0.0, -1.0))
    plain = net(z, text, None, [memory(2, 4, net.config)])
    same = net(z, text, None, [memory(2, 4, net.config, text_gate=zero, memory_gate=zero)])
    torch.testing.assert_close(same, plain)
    deaf = net(z, text, None, [memory(2, 4, net.config, text_gate=minus)])
    other = net(z, replace(text, tokens=torch.randn(2, 5, 384)), None, [memory(2, 4, net.config, text_gate=minus)])
    torch.testing.assert_close(deaf, other)
    gated = memory(2, 4, net.config, memory_gate=minus)
    nothing = replace(gated, keys=tuple(0 * k for k in gated.keys), values=tuple(0 * v for v in gated.values))
    torch.testing.assert_close(net(z, text, None, [gated]), net(z, text, None, [replace(nothing, memory_gate=None)]))


def test_memories_stand_side_by_side_in_any_order():
    net, text, z = network(), words(2), tokens(2, 6)
    a = memory(2, 4, net.config, 1, condition=torch.randn(2, 32))
    b = memory(2, 3, net.config, 2, condition=torch.randn(2, 32))
    both = net(z, text, None, [a, b])
    torch.testing.assert_close(net(z, text, None, [b, a]), both, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(net(z, text, None, [a]), both, atol=1e-2)


def test_predictor_is_the_network_with_and_without_text():
    net, text, z = network(), words(2), tokens(2, 6)
    mask = torch.arange(6) < torch.tensor([6, 4])[:, None]
    m = memory(2, 6, net.config, condition=torch.randn(2, 32))
    predict = net.predictor(text, mask, [m])
    with_text, without = predict(z, 0.3, True)
    torch.testing.assert_close(with_text[mask], net(z, text, mask, [m])[mask], rtol=1e-4, atol=1e-5)
    bare = net(z, text, mask, [m], drop=torch.tensor([True, True]))
    torch.testing.assert_close(without[mask], bare[mask], rtol=1e-4, atol=1e-5)
    assert predict(z, 0.3, False)[1] is None


def test_time_is_heard_only_by_a_network_that_asks_for_it():
    text, z = words(2), tokens(2, 6)
    early, late = torch.tensor([0.1, 0.1]), torch.tensor([0.9, 0.9])
    deaf = network()
    assert torch.equal(deaf(z, text, None, t=early), deaf(z, text, None, t=late))
    net = network(time_input=True)
    assert not torch.allclose(net(z, text, None, t=early), net(z, text, None, t=late))
    predict = net.predictor(text, None)
    torch.testing.assert_close(predict(z, 0.9, True)[0], net(z, text, None, t=late), rtol=1e-4, atol=1e-5)


def test_gradients_reach_every_parameter():
    net = Transformer(replace(transformers.debug(), time_input=True))
    stirred(net).train()
    drop = torch.tensor([True, False])
    net(tokens(2, 6), words(2), None, drop=drop, t=torch.tensor([0.2, 0.4])).square().sum().backward()
    silent = [name for name, p in net.named_parameters() if p.grad is None or p.grad.abs().sum() == 0]
    assert silent == []


def test_a_network_learns_to_copy_by_its_text():
    """The smallest task that needs tokens and text: keep the token, or add one, as the text says."""
    torch.manual_seed(0)
    net = Transformer(transformers.debug())
    text = words(2, pieces=3)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(100):
        z = tokens(16, 8, seed=step)
        which = torch.arange(16) % 2
        target = (z + which[:, None]) % 32
        loss = torch.nn.functional.cross_entropy(net(z, text[which], None).flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.5


def test_residual_levels_have_heads_of_their_own():
    net = stirred(ResidualTransformer(transformers.residual_debug()))
    text, u = words(2), torch.randn(2, 6, 16)
    mixed = net(u, torch.tensor([1, 2]), text, None)
    torch.testing.assert_close(mixed[0], net(u, torch.tensor([1, 1]), text, None)[0])
    torch.testing.assert_close(mixed[1], net(u, torch.tensor([2, 2]), text, None)[1])
    assert not torch.allclose(net(u, torch.tensor([1, 1]), text, None), net(u, torch.tensor([2, 2]), text, None))
    m = memory(2, 6, net.config)
    with_text, without = net.predictor(text, None, [m])(u, 2, True)
    torch.testing.assert_close(with_text, net(u, torch.tensor([2, 2]), text, None, [m]), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(with_text, without)


def test_residual_input_does_not_depend_on_the_codes_scale():
    text, u, books = words(1), torch.randn(1, 4, 16), torch.randn(3, 32, 16)
    outs = []
    for scale in (1.0, 30.0):
        torch.manual_seed(0)
        net = stirred(ResidualTransformer(transformers.residual_debug()))
        net.set_scale(books * scale)
        outs.append(net(u * scale, torch.tensor([1]), text, None))
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="leaves nothing to refine"):
        ResidualTransformer(transformers.debug())
