"""The paired comparison: coverage of its interval, the verdict's rule, and what it refuses."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from anchorroute.errors import RequestError
from anchorroute.evaluate.compare import Margin, compare, mean_interval

STRICT = Margin("lower", 0.0)


def draws(
    rng: np.random.Generator, seeds: int, clips: int, shift: float, seed_effect: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Baseline and candidate whose differences vary by clip, by seed and by both."""
    shared = rng.normal(0, 5, (seeds, clips))
    difference = (
        shift
        + rng.normal(0, 1, (1, clips))
        + rng.normal(0, seed_effect, (seeds, 1))
        + rng.normal(0, 0.5, (seeds, clips))
    )
    return shared, shared + difference


def test_interval_covers_the_truth_at_least_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        result = compare("x", *draws(rng, 10, 60, 0.2), margin=STRICT)
        inside += result.low <= 0.2 <= result.high
    assert inside / 400 >= 0.94


def test_pairing_removes_what_both_share() -> None:
    rng = np.random.default_rng(1)
    before, after = draws(rng, 10, 200, 0.0, seed_effect=0.02)
    paired = compare("x", before, after, margin=STRICT)
    unpaired = compare("x", before, rng.permuted(after, axis=1), margin=STRICT)
    assert paired.high - paired.low < 0.6 * (unpaired.high - unpaired.low)


def test_one_figure_a_seed_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(2)
    before = rng.normal(0.1, 0.01, 10)
    after = before + rng.normal(0.004, 0.002, 10)
    interval = ttest_rel(after, before).confidence_interval(0.95)
    result = compare("fid", before, after)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))


def test_verdict_follows_interval_or_margin() -> None:
    exact = np.linspace(0, 1, 10)
    tiny = np.linspace(-1e-6, 1e-6, 10)
    assert compare("fid", exact, exact + 0.009 + tiny).no_worse, "within the margin"
    assert not compare("fid", exact, exact + 0.011 + tiny).no_worse
    assert compare("fid", exact, exact - 0.5 + tiny).no_worse, "better"
    assert compare("fid", exact, exact + 0.011 + np.linspace(-0.1, 0.1, 10)).no_worse, "interval reaches zero"
    assert compare("r_top3", exact, exact - 0.029 + tiny).no_worse
    assert not compare("r_top3", exact, exact - 0.031 + tiny).no_worse
    jerk = np.full(10, 60.0)
    assert compare("jerk", jerk, jerk + 1.1 + tiny).no_worse, "2 % of 60 is 1.2"
    assert not compare("jerk", jerk, jerk + 1.3 + tiny).no_worse


def test_forbidden_input_is_refused() -> None:
    with pytest.raises(RequestError, match="no margin"):
        compare("beauty", np.zeros(3), np.zeros(3))
    with pytest.raises(RequestError, match="pair"):
        compare("fid", np.zeros(3), np.zeros(4))
    with pytest.raises(RequestError, match="two seeds"):
        compare("fid", np.zeros(1), np.zeros(1))
    with pytest.raises(RequestError, match="at least two"):
        compare("fid", np.zeros((1, 1)), np.zeros((1, 1)))


def test_mean_interval_of_repeats() -> None:
    mean, half = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2
    assert half == pytest.approx(4.302652729911275 / np.sqrt(3))
    assert np.isnan(mean_interval(np.array([1.0]))[1])
