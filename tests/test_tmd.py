"""Transition Masked Diffusion: the paper's equations, and a sampler whose marginals follow the path."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from anchorroute import tmd
from anchorroute.errors import RequestError
from anchorroute.tmd import PAD, Path, PathConfig, Sampling

EVERY = torch.tensor([0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def book(codes=40, width=8, seed=0):
    return torch.randn(codes, width, generator=generator(seed))


def clustered(noise=0.5):
    g = generator()
    centres = torch.randn(32, 512, generator=g)
    return centres[torch.arange(512) % 32] + noise * torch.randn(512, 512, generator=g)


def cone():
    direction = torch.randn(512, generator=generator(1))
    direction *= 512**0.5 / direction.norm()
    return torch.randn(512, 512, generator=generator()) + direction


def oracle(x1, codes):
    """Logits that leave no doubt."""
    return lambda z, t, guided: (50.0 * F.one_hot(x1, codes).float(), None)


# ------------------------------------------------------------------------------------------------------------- the path


def test_distance_is_the_papers():
    codes = book()
    d = tmd.distances(codes)
    for i, j in ((0, 1), (3, 17), (39, 2)):
        cos = F.cosine_similarity(codes[i].double(), codes[j].double(), dim=0).item()
        assert d[i, j].item() == pytest.approx((2 - 2 * cos) ** 2, rel=1e-6)
    assert torch.equal(d, d.T)
    assert (d.diagonal() == 0).all()
    assert torch.allclose(tmd.distances(3 * codes), d)


def test_rows_of_q_sum_to_one_start_uniform_and_concentrate():
    path = Path(book())
    x1 = torch.arange(40)
    previous = torch.zeros(40)
    for t in (0.0, 0.1, 0.5, 0.9, 0.999):
        q = path.q(x1, torch.full((40,), t))
        torch.testing.assert_close(q.sum(-1), torch.ones(40))
        own = q.diagonal()
        assert (own >= previous - 1e-6).all()
        previous = own
        if t == 0:
            torch.testing.assert_close(q, torch.full_like(q, 1 / 40))
    assert (previous > 0.99).all()


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 0.98), st.floats(0.3, 1.5), st.floats(0.5, 10))
def test_beta_prime_is_the_derivative_of_beta(t, a, c):
    path = Path(book(4), PathConfig(a, c))
    at, step = torch.tensor(t, dtype=torch.float64), 1e-6
    numeric = (path.beta(at + step) - path.beta(at - step)) / (2 * step)
    assert path.beta_prime(at).item() == pytest.approx(numeric.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (torch.randn(512, 512, generator=generator()), (0.010, 0.056, 0.322, 0.995, 1, 1, 1, 1)),
        (torch.randn(512, 8, generator=generator()), (0.007, 0.016, 0.030, 0.086, 0.244, 0.716, 0.882, 0.965)),
        (clustered(), (0.009, 0.032, 0.066, 0.097, 0.155, 0.642, 0.970, 1)),
        (cone(), (0.003, 0.005, 0.008, 0.040, 0.549, 1, 1, 1)),
    ],
    ids=["512-d", "8-d", "clusters", "cone"],
)
def test_the_codebooks_geometry_decides_how_fast_tokens_become_clean(codes, expected):
    """The published table for a = .9, c = 3: P(x_t = x_1) over the codebook."""
    clean = Path(codes).clean_probability(EVERY)
    torch.testing.assert_close(clean, torch.tensor(expected), atol=0.025, rtol=0.15)


def test_a_codebook_in_a_cone_needs_centring():
    narrow = torch.randn(512, 64, generator=generator()) + 24.0
    when = torch.tensor([0.9])
    assert Path(narrow).clean_probability(when) < 0.02
    assert Path(narrow, PathConfig(centre=True)).clean_probability(when) > 0.9


def test_calibration_hits_its_target_and_says_when_it_cannot():
    codes = torch.randn(128, 64, generator=generator())
    config = tmd.calibrated(codes, target=0.1)
    assert Path(codes, config).clean_probability(torch.tensor([0.5])).item() == pytest.approx(0.1, rel=1e-3)
    twins = torch.ones(8, 4)
    with pytest.raises(RequestError, match="this codebook allows"):
        tmd.calibrated(twins, target=0.5, centre=False)


def test_corruption_follows_q_and_leaves_padding():
    path = Path(book(12))
    z1 = torch.full((1, 40_000), 5)
    z1[0, -1] = PAD
    zt = path.corrupt(z1, torch.tensor([0.6]), generator())
    share = torch.bincount(zt[0, :-1], minlength=12) / 39_999
    torch.testing.assert_close(share, path.q(torch.tensor(5), torch.tensor(0.6)), atol=0.01, rtol=0)
    assert zt[0, -1] == PAD


# ----------------------------------------------------------------------------------------------------------- the rates


def test_jumps_only_go_to_codes_nearer_to_the_proposal():
    path = Path(book())
    xt, x1 = torch.arange(40), torch.arange(40).flip(0)
    t = torch.full((40,), 0.4)
    u = path.rates(xt, x1, t, path.beta_prime(t))
    d = path.distances
    nearer = d[x1] < d[x1, xt][:, None]
    assert (u[~nearer] == 0).all()
    assert (u[nearer] > 0).all()
    i, n = 7, 3
    expected = path.q(x1, t)[n, i] * path.beta_prime(t[0]) * max(0.0, (d[x1[n], xt[n]] - d[x1[n], i]).item())
    torch.testing.assert_close(u[n, i], expected)


def test_equal_tokens_never_jump_even_among_duplicated_codes():
    codes = book()
    codes[7] = 2 * codes[3]
    path = Path(codes)
    x = torch.arange(40)[None]
    u = path.rates(x, x, torch.tensor(0.9).expand(1, 40), torch.tensor(1e6).expand(1, 40))
    assert (u == 0).all()
    draws = torch.zeros(1, 40, 2)
    assert torch.equal(tmd.transition(path, x, x, 0.9, 0.05, draws), x)


def test_update_probability():
    total = torch.tensor([0.0, 1e-9, 1.0, 50.0])
    expected = torch.tensor([-math.expm1(-0.5 * v) for v in total.tolist()])
    torch.testing.assert_close(tmd.update_probability(total, 0.5), expected)


def reached(path, steps, rule, tokens=1500):
    """Share of the path's P(x_t = x_1) at t = .9 that the sampler reaches when it is told x_1."""
    g = generator(2)
    x1 = torch.randint(path.size, (1, tokens), generator=g)
    z = torch.randint(path.size, (1, tokens), generator=g)
    for k in range(round(0.9 * steps)):
        z = tmd.transition(path, z, x1, k / steps, 1 / steps, torch.rand(1, tokens, 2, generator=g), rule)
    target = path.q(x1[0], torch.full((tokens,), 0.9)).gather(-1, x1[0, :, None]).mean()
    return ((z == x1).float().mean() / target).item()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (clustered(), {"euler": 0.74, "integrated": 0.87, "midpoint": 0.97}),
        (torch.randn(512, 8, generator=generator()), {"euler": 0.86, "integrated": 0.94, "midpoint": 1.0}),
    ],
    ids=["clusters", "8-d"],
)
def test_the_marginal_reached_in_twenty_steps(codes, expected):
    path = Path(codes)
    for rule, share in expected.items():
        assert reached(path, 20, rule) == pytest.approx(share, abs=0.06)


def test_the_whole_marginal_follows_the_path_not_only_its_peak():
    path = Path(book(6, 3))
    tokens, steps = 10_000, 60
    g = generator(4)
    x1 = torch.full((1, tokens), 2)
    z = torch.randint(6, (1, tokens), generator=g)
    for k in range(steps // 2):
        z = tmd.transition(path, z, x1, k / steps, 1 / steps, torch.rand(1, tokens, 2, generator=g))
    share = torch.bincount(z[0], minlength=6) / tokens
    torch.testing.assert_close(share, path.q(torch.tensor(2), torch.tensor(0.5)), atol=0.03, rtol=0)


# ---------------------------------------------------------------------------------------------------------- the sampler


@pytest.mark.parametrize("rule", ["midpoint", "integrated", "euler"])
def test_an_oracle_is_returned_and_padding_is_never_sampled(rule):
    path = Path(book())
    lengths = torch.tensor([9, 4])
    x1 = torch.randint(40, (2, 9), generator=generator())
    seen = []

    def predict(z, t, guided):
        seen.append(z.clone())
        return oracle(x1, 40)(z, t, guided)

    z = tmd.sample(predict, path, lengths, generators=[generator(1), generator(2)], steps=6, rule=rule)
    assert torch.equal(z[0], x1[0])
    assert torch.equal(z[1, :4], x1[1, :4])
    assert len(seen) == 6
    for state in [*seen, z]:
        assert (state[1, 4:] == PAD).all()
        assert (state[0] >= 0).all()


def unsure(codes=40):
    """A network that answers by what it sees at each place, and is far from sure."""
    table = 2 * torch.randn(codes + 1, codes, generator=generator(9))
    return lambda z, t, guided: (table[z], table[z] * 0.5 if guided else None)


def test_a_seed_fixes_the_result_whatever_the_batch():
    path = Path(book())
    together = tmd.sample(
        unsure(), path, torch.tensor([7, 12, 3]), generators=[generator(s) for s in (5, 6, 7)], steps=8
    )
    alone = tmd.sample(unsure(), path, torch.tensor([7]), generators=[generator(5)], steps=8)
    assert torch.equal(together[0, :7], alone[0])
    other = tmd.sample(unsure(), path, torch.tensor([7]), generators=[generator(8)], steps=8)
    assert not torch.equal(other, alone)


def test_kept_tokens_stay_through_every_step():
    path = Path(book())
    keep = torch.zeros(1, 10, dtype=torch.bool)
    keep[0, [0, 4, 9]] = True
    tokens = torch.full((1, 10), 11)
    seen = []

    def predict(z, t, guided):
        seen.append(z.clone())
        return unsure()(z, t, guided)

    z = tmd.sample(predict, path, torch.tensor([10]), generators=[generator()], steps=5, keep=keep, tokens=tokens)
    for state in [*seen, z]:
        assert (state[keep] == 11).all()
    assert (z[~keep] != 11).any()
    with pytest.raises(RequestError, match="both or neither"):
        tmd.sample(predict, path, torch.tensor([10]), generators=[generator()], keep=keep)


def test_guidance_temperature_and_top_k():
    conditional, without = torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([[[0.0, 3.0, 0.0]]])
    draws = torch.rand(1, 20_000, generator=generator())
    many = (conditional.expand(1, 20_000, 3), without.expand(1, 20_000, 3))
    share = torch.bincount(tmd.draw_tokens(many, draws, Sampling(2.0, 0.5))[0], minlength=3) / 20_000
    expected = torch.softmax((without + 2 * (conditional - without))[0, 0] / 0.5, -1)
    torch.testing.assert_close(share, expected, atol=0.01, rtol=0)
    assert set(tmd.draw_tokens((many[0], None), draws, Sampling(top_k=2))[0].tolist()) == {1, 2}
    assert (tmd.draw_tokens((many[0], None), draws, Sampling(temperature=0.0)) == 2).all()


def test_guidance_one_runs_the_network_once():
    asked = []

    def predict(z, t, guided):
        asked.append(guided)
        return unsure()(z, t, guided)

    for guidance in (1.0, 3.0):
        sampling = Sampling(guidance=guidance)
        tmd.sample(predict, Path(book()), torch.tensor([4]), generators=[generator()], steps=2, sampling=sampling)
    assert asked == [False, False, True, True]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1e-12, 0.3, 1.0]), min_size=2, max_size=8), st.floats(0, 1))
def test_a_draw_never_lands_on_a_weight_of_zero(weights, draw):
    row = torch.tensor([weights])
    place = tmd._draw(row, torch.tensor([draw])).item()
    if row.sum() > 0:
        assert row[0, place] > 0
    else:
        assert 0 <= place < len(weights)


def test_the_finer_levels_come_one_pass_each_from_the_sum_before():
    books = torch.randn(3, 5, 4, generator=generator())

    def embed(z):
        return sum(books[q][z[..., q].clamp(min=0)] * (z[..., q] >= 0)[..., None] for q in range(z.shape[-1]))

    calls = []

    def predict(u, level, guided):
        calls.append(level)
        return u @ books[level].T * 100, None

    z = torch.tensor([[1, 4, 2], [3, PAD, PAD]])
    out = tmd.sample_levels(predict, embed, z, 3, generators=[generator(), generator(1)])
    assert calls == [1, 2]
    assert torch.equal(out[..., 0], z)
    second = (embed(z[..., None]) @ books[1].T).argmax(-1)
    third = (embed(torch.stack((z, second), -1)) @ books[2].T).argmax(-1)
    assert torch.equal(out[0], torch.stack((z[0], second[0], third[0]), -1))
    assert (out[1, 1:] == PAD).all()


def test_progress_is_told_and_may_stop_the_run():
    told = []

    def stop(done, steps):
        told.append((done, steps))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tmd.sample(unsure(), Path(book()), torch.tensor([4]), generators=[generator()], steps=5, on_step=stop)
    assert told == [(1, 5), (2, 5)]


def test_forbidden_input():
    path = Path(book())
    with pytest.raises(RequestError, match="at least one is needed"):
        tmd.sample(unsure(), path, torch.tensor([4]), generators=[generator()], steps=0)
    with pytest.raises(RequestError, match="2 generators given for 1 samples"):
        tmd.sample(unsure(), path, torch.tensor([4]), generators=[generator(), generator()])
