from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorroute import scaffold, transformer
from anchorroute.anchors import BODY, FAMILIES, PLANAR, ROOT3D, Anchor, AnchorSet, Observed
from anchorroute.conditioning import (
    COMPONENTS,
    Conditioner,
    ConditionerConfig,
    Memories,
    needs_draft,
    parameter_table,
    remember,
    statistics,
    trainable,
)
from anchorroute.errors import AnchorError, RequestError
from anchorroute.transformer import ResidualTransformer, Transformer


@dataclass(frozen=True)
class Words:
    pooled: torch.Tensor
    tokens: torch.Tensor
    mask: torch.Tensor


def words(batch: int = 2) -> Words:
    g = torch.Generator().manual_seed(5)
    return Words(
        torch.randn(batch, 384, generator=g), torch.randn(batch, 5, 384, generator=g), torch.ones(batch, 5) > 0
    )


@pytest.fixture(scope="module")
def prior() -> Transformer:
    """A prior whose every part matters, as after training (fresh ones ignore the condition)."""
    torch.manual_seed(0)
    made = Transformer(transformer.debug()).eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def adapter(name: str, *, shaken: bool = False, fine: bool = False, **changes) -> Conditioner:
    """An adapter at its start, or with every parameter moved as training would."""
    torch.manual_seed(1)
    config = ConditionerConfig.of(name, transformer.debug(), transformer.residual_debug() if fine else None, **changes)
    made = Conditioner(config)
    if shaken:
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


ROOT = AnchorSet.from_points([(0, 0, (0, 0.9, 0)), (30, 0, (0.5, 0.9, 2))])
WRIST = AnchorSet.from_points([(20, "left_wrist", (0.3, 1.2, 1))])
NONE = AnchorSet()
LENGTHS = torch.tensor([48, 40])
TOKENS = torch.randint(0, 32, (2, 12), generator=torch.Generator().manual_seed(2))
VALID = torch.arange(12)[None] < (LENGTHS // 4)[:, None]


def observed(*sets: AnchorSet) -> list[Observed]:
    return [anchors.observed(int(length)) for anchors, length in zip(sets, LENGTHS)]


def test_without_anchors_the_generator_is_the_prior_bit_for_bit(prior) -> None:
    adapters = {name: adapter(name, shaken=True) for name in FAMILIES}
    memories = remember(adapters, observed(NONE, NONE), LENGTHS)
    assert memories == Memories([], [])
    with torch.no_grad():
        assert torch.equal(prior(TOKENS, words(), VALID, memories.prior), prior(TOKENS, words(), VALID))


def test_a_clip_without_anchors_is_not_changed_by_its_batch_mates(prior) -> None:
    memories = remember({"root3d": adapter("root3d", shaken=True)}, observed(ROOT, NONE), LENGTHS)
    with torch.no_grad():
        alone, together = prior(TOKENS, words(), VALID), prior(TOKENS, words(), VALID, memories.prior)
    assert torch.allclose(together[1, :10], alone[1, :10], atol=1e-5)
    assert (together[0] - alone[0]).abs().max() > 1e-2


@pytest.mark.parametrize(("initial", "share"), [("zero-values", 0.25), ("noise", 0.5)])
def test_an_adapter_starts_near_the_prior_and_every_parameter_learns(prior, initial, share) -> None:
    fresh = adapter("root3d", initial=initial)
    both = observed(ROOT, ROOT)
    alone = prior(TOKENS, words(), VALID)
    near = prior(TOKENS, words(), VALID, remember({"root3d": fresh}, both, LENGTHS).prior)
    assert 0 < (near - alone).std() < share * alone.std()
    optimiser = torch.optim.AdamW(fresh.parameters(), lr=1e-2)
    still = dict(fresh.named_parameters())
    for _ in range(3):  # silent values let gradients through to the rest from the second step on
        optimiser.zero_grad()
        logits = prior(TOKENS, words(), VALID, remember({"root3d": fresh}, both, LENGTHS).prior)
        torch.nn.functional.cross_entropy(logits[VALID], TOKENS[VALID]).backward()
        still = {name: p for name, p in still.items() if p.grad is None or not p.grad.any()}
        optimiser.step()
    assert not still


def test_families_compose(prior) -> None:
    adapters = {name: adapter(name, shaken=True) for name in FAMILIES}
    mixed = AnchorSet(ROOT.anchors + WRIST.anchors)
    together = remember(adapters, observed(mixed, mixed), LENGTHS)
    root, wrist = (remember(adapters, observed(part, part), LENGTHS) for part in (ROOT, WRIST))
    assert len(together.prior) == 2
    with torch.no_grad():
        both = prior(TOKENS, words(), VALID, together.prior)
        side_by_side = prior(TOKENS, words(), VALID, root.prior + wrist.prior)
        swapped = prior(TOKENS, words(), VALID, wrist.prior + root.prior)
        one = prior(TOKENS, words(), VALID, root.prior)
    assert torch.equal(both, side_by_side)
    assert torch.allclose(both, swapped, atol=1e-4)
    assert (both - one).abs().max() > 1e-2


def test_a_memory_depends_on_nothing_that_shares_its_batch() -> None:
    conditioner = adapter("root3d", shaken=True)
    rows = ROOT.observed(40)
    alone = conditioner(scaffold.batch([rows], ROOT3D, [40]), torch.tensor([40]))
    longer = AnchorSet.from_points([(90, 0, (5, 5, 5))]).observed(100)
    beside = conditioner(scaffold.batch([longer, rows], ROOT3D, [100, 40]), torch.tensor([100, 40]))
    assert beside.mask[1].tolist() == [True] * 10 + [False] * 15
    for one, other in zip((*alone.keys, *alone.values), (*beside.keys, *beside.values)):
        assert torch.allclose(one[0], other[1, :, :10], atol=1e-4)
    assert torch.allclose(alone.condition[0], beside.condition[1], atol=1e-4)


def test_memory_is_token_aligned() -> None:
    """Moving an anchor by one token moves the memory by one token, away from both ends."""
    conditioner = adapter("planar", shaken=True, outside=False)
    one, other = (AnchorSet.from_points([(frame, 0, (1, None, 2))]).observed(160) for frame in (80, 84))
    lengths = torch.tensor([160])
    first, _ = conditioner.encode(scaffold.batch([one], PLANAR, [160]), lengths)
    second, _ = conditioner.encode(scaffold.batch([other], PLANAR, [160]), lengths)
    assert torch.allclose(first[0, 5:-6], second[0, 6:-5], atol=1e-5)
    far = first[0, :12]
    assert torch.allclose(far[5:], far[5].expand_as(far[5:]), atol=1e-5)


def test_low_rank_keys_and_values() -> None:
    conditioner = adapter("root3d", shaken=True, rank=4)
    h, mask = conditioner.encode(scaffold.batch(observed(ROOT, ROOT), ROOT3D, LENGTHS.tolist()), LENGTHS)
    memory = conditioner.reader(h, mask)
    kv = conditioner.reader.anchor_kv
    for layer in range(2):
        keys = memory.keys[layer].transpose(1, 2).flatten(2)
        assert torch.allclose(keys, h @ kv.project[layer] @ kv.keys[layer], atol=1e-5)
        values = memory.values[layer].transpose(1, 2).flatten(2)
        assert torch.allclose(values, h @ kv.project[layer] @ kv.values[layer], atol=1e-5)
        assert torch.linalg.matrix_rank(keys.flatten(0, 1), atol=1e-4) <= 4


def test_the_encoder_sees_the_way_from_the_origin_to_the_first_anchor() -> None:
    rows = AnchorSet.from_points([(10, 0, (1.0, 0.9, 2.0)), (20, 0, (3.0, 0.8, 2.0))]).observed(40)
    encoder = adapter("root3d", gait=False).encoder
    encoder.deviation.fill_(1.0)
    encoder.step.fill_(1.0)
    inputs = encoder._scaled(scaffold.batch([rows], ROOT3D, [40]))[0]
    path, steps = inputs[:, -6:-3], inputs[:, -3:]
    assert torch.allclose(path[5], torch.tensor([0.5, 0.9, 1.0])) and not path[0, [0, 2]].any()
    assert torch.allclose(steps[3], torch.tensor([0.1, 0.0, 0.2]))
    assert not path[10:21].any() and not steps[10:].any()
    assert torch.allclose(path[30], torch.tensor([3.0, 0.8, 2.0]))
    empty = encoder._scaled(scaffold.batch([NONE.observed(40)], ROOT3D, [40]))
    assert not empty.any()


def test_the_encoder_sees_speed_and_turns_whichever_way_the_path_heads() -> None:
    """Anchors on a circle of 2 m, walked at 1 m/s (5 cm a frame): a turn of .025 rad a frame, towards +X from +Z."""
    encoder = adapter("planar").encoder
    frames = np.arange(0, 121, 10)
    for start in (0.0, 1.9):
        angle = start + frames / 40
        circle = [(float(2 * np.sin(a)), None, float(2 * np.cos(a))) for a in angle]
        rows = AnchorSet.from_points(list(zip(frames.tolist(), [0] * len(frames), circle))).observed(121)
        gait = encoder._scaled(scaffold.batch([rows], PLANAR, [121]))[0, 30:90, -2:]
        assert torch.allclose(gait[:, 0], torch.tensor(1.0), atol=0.01)
        fade = 0.05**2 / (0.05**2 + 1e-4)
        assert torch.allclose(gait[:, 1], torch.tensor(fade * 0.025 / 0.1), atol=0.01)


def test_the_finer_levels_read_the_anchors_too() -> None:
    torch.manual_seed(0)
    fine = ResidualTransformer(transformer.residual_debug()).eval()
    conditioner = adapter("body", shaken=True, fine=True)
    memories = remember({"body": conditioner}, observed(WRIST, WRIST), LENGTHS)
    u, level = torch.randn(2, 12, 16), torch.tensor([1, 1])
    with torch.no_grad():
        alone = fine(u, level, words(), VALID)
        led = fine(u, level, words(), VALID, memories.residual)
    assert (alone - led).abs().max() > 1e-3
    assert remember({"body": adapter("body")}, observed(WRIST, WRIST), LENGTHS).residual == []


def test_statistics_bring_the_inputs_to_order_one() -> None:
    g = torch.Generator().manual_seed(3)
    motions = [torch.randn(60, 22, 3, generator=g) * 3 + 7 for _ in range(20)]
    mean, deviation, step = statistics(motions, BODY)
    assert mean.shape == (66,) and torch.allclose(mean, torch.tensor(7.0), atol=0.4)
    assert torch.allclose(deviation, torch.tensor(3.0), atol=0.3)
    assert torch.allclose(step, torch.tensor(3.0 * 2**0.5), atol=0.5)
    conditioner = adapter("body")
    conditioner.set_statistics(mean, deviation, step)
    assert torch.equal(Conditioner(conditioner.config).encoder.mean, torch.zeros(66))
    copy = Conditioner(conditioner.config)
    copy.load_state_dict(conditioner.state_dict())
    assert torch.equal(copy.encoder.deviation, deviation)


@pytest.mark.parametrize("name", FAMILIES)
def test_trainable_parameters_at_the_papers_width(name: str) -> None:
    """1.2 million within 15 %, with the finer levels' part or without; dual context at most 5 % of it."""
    for residual in (None, transformer.residual_paper()):
        with_dual, without = (
            trainable(Conditioner(ConditionerConfig.of(name, transformer.paper(), residual, dual=dual)))
            for dual in (True, False)
        )
        assert 1.02e6 < without < with_dual < 1.38e6
        assert with_dual / without < 1.05


def test_anchors_without_their_adapter_are_refused() -> None:
    with pytest.raises(RequestError, match=r"need the adapter 'body'.*carries root3d"):
        remember({"root3d": adapter("root3d")}, observed(WRIST, NONE), LENGTHS)


def test_a_draft_fills_what_no_anchor_sets() -> None:
    height = AnchorSet((Anchor(1.0, "head", (None, 1.2, None)),)).observed(48)
    conditioners = {"body": adapter("body")}
    assert needs_draft(height) and not needs_draft(WRIST.observed(48))
    with pytest.raises(AnchorError, match="draft"):
        remember(conditioners, [height], LENGTHS[:1])
    assert len(remember(conditioners, [height], LENGTHS[:1], [torch.zeros(48, 22, 3)]).prior) == 1


# The alternatives of the component table


@pytest.mark.parametrize("kind", ["cross-attention", "controlnet"])
def test_alternatives_start_at_the_prior_and_learn(prior, kind) -> None:
    fresh = adapter("root3d", kind=kind)
    fresh.start_from(prior)
    rows = observed(ROOT, ROOT)
    alone = prior(TOKENS, words(), VALID)
    memories = remember({"root3d": fresh}, rows, LENGTHS)
    assert torch.equal(prior(TOKENS, words(), VALID, memories.prior)[VALID], alone[VALID])
    optimiser = torch.optim.AdamW(fresh.parameters(), lr=1e-2)
    still = dict(fresh.named_parameters())
    for _ in range(3):
        optimiser.zero_grad()
        logits = prior(TOKENS, words(), VALID, remember({"root3d": fresh}, rows, LENGTHS).prior)
        torch.nn.functional.cross_entropy(logits[VALID], TOKENS[VALID]).backward()
        still = {name: p for name, p in still.items() if p.grad is None or not p.grad.any()}
        optimiser.step()
    assert not still


@pytest.mark.parametrize("kind", ["cross-attention", "controlnet"])
def test_alternatives_leave_clips_without_anchors_alone_and_follow_guidance(prior, kind) -> None:
    trained = adapter("root3d", kind=kind, shaken=True)
    memories = remember({"root3d": trained}, observed(ROOT, NONE), LENGTHS)
    with torch.no_grad():
        alone, led = prior(TOKENS, words(), VALID), prior(TOKENS, words(), VALID, memories.prior)
        assert torch.equal(alone[1], led[1])
        assert (alone[0] - led[0]).abs().max() > 1e-2
        with_text, without_text = prior.predictor(words(), VALID, memories.prior)(TOKENS, 0.5, True)
        assert torch.allclose(with_text, led, atol=1e-4)
        assert without_text is not None and (without_text - led).abs().max() > 1e-3


def test_the_copy_of_a_layer_is_the_layer_without_its_text(prior) -> None:
    """With the text path and H^s silent, the ControlNet's stream is the prior's own stream, layer by layer."""
    silent = Transformer(transformer.debug()).eval()
    silent.load_state_dict(prior.state_dict())
    with torch.no_grad():
        for layer in silent.layers:
            layer.text_out.weight.zero_()
            layer.text_out.bias.zero_()
    control = adapter("root3d", kind="controlnet")
    control.start_from(silent)
    branch = remember({"root3d": control}, observed(ROOT, ROOT), LENGTHS).prior[0].branch
    context = silent.context(words())
    bias = transformer.padding_bias(VALID)
    x = own = branch.start(silent.embedding(TOKENS))
    for index, (layer, part) in enumerate(zip(silent.layers, context.layers)):
        x = layer(x, bias, context.text_bias, part)
        added, own = branch.step(index, x, own, bias, part)
        assert not added.any()
        assert torch.allclose(own, x, atol=1e-5)


def test_every_row_of_the_component_table_has_the_papers_size() -> None:
    counts = dict(parameter_table("root3d", transformer.paper()))
    assert list(counts) == [row.name for row in COMPONENTS]
    assert 8e6 < counts["cross-attention"] < 12e6
    assert 27e6 < counts["controlnet"] < 31e6
    assert counts["anchorkv"] < counts["+ dual context"] == counts["+ dual context & anchor loss"] < 1.38e6
    text = (Path(__file__).parents[1] / "docs/concepts/conditioning.md").read_text(encoding="utf-8")
    for row in COMPONENTS:
        assert f"| {counts[row.name] / 1e6:.2f} M |" in text
    small = dict(parameter_table("root3d", transformer.open()))
    assert small["anchorkv"] < small["cross-attention"] < small["controlnet"]
