"""The figures of the tables against closed forms, hand-counted cases and brute force."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.ndimage import uniform_filter1d

from anchorroute.errors import RequestError
from anchorroute.evaluate import metrics
from anchorroute.motion.skeleton import PARENTS, REST_OFFSETS
from anchorroute.observation import Observed

SHARED = Path(os.environ.get("ANCHORROUTE_SHARED", Path(__file__).parents[2] / "shared"))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_moments(n: int, mean: torch.Tensor, cov: torch.Tensor, seed: int) -> torch.Tensor:
    """Samples whose mean and covariance are exactly the given ones."""
    x = torch.randn(n, len(mean), generator=rng(seed), dtype=torch.float64)
    x = x - x.mean(0)
    x = torch.linalg.solve_triangular(torch.linalg.cholesky(torch.cov(x.T)), x.T, upper=False).T
    return x @ torch.linalg.cholesky(cov).T + mean


def standing(frames: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The rest pose on the floor."""
    pose = torch.zeros(22, 3, dtype=dtype)
    for joint, parent in enumerate(PARENTS):
        if parent >= 0:
            pose[joint] = pose[parent] + torch.as_tensor(REST_OFFSETS[joint], dtype=dtype)
    pose[:, 1] -= pose[:, 1].min()
    return pose.repeat(frames, 1, 1)


# distribution


def test_fid_of_axis_aligned_gaussians_is_the_closed_form() -> None:
    a, b = torch.tensor([1.0, 4.0, 0.25]).double(), torch.tensor([9.0, 1.0, 0.25]).double()
    shift = torch.tensor([0.5, -1.0, 2.0]).double()
    x = with_moments(50, torch.zeros(3).double(), torch.diag(a), 1)
    y = with_moments(70, shift, torch.diag(b), 2)
    expected = float(shift.square().sum() + (a.sqrt() - b.sqrt()).square().sum())
    assert metrics.fid(x, y) == pytest.approx(expected, rel=1e-9)


def test_fid_agrees_with_the_matrix_square_root_when_covariances_do_not_commute() -> None:
    x = torch.randn(40, 6, generator=rng(3), dtype=torch.float64) @ torch.randn(6, 6, generator=rng(4)).double()
    y = torch.randn(55, 6, generator=rng(5), dtype=torch.float64) + 0.3
    a, b = np.cov(x.numpy().T), np.cov(y.numpy().T)
    expected = np.sum((x.numpy().mean(0) - y.numpy().mean(0)) ** 2) + np.trace(a + b - 2 * sqrtm(a @ b).real)
    assert metrics.fid(x, y) == pytest.approx(expected, rel=1e-8)
    assert metrics.fid(x, x) == pytest.approx(0, abs=1e-9)


def test_fid_survives_singular_covariances() -> None:
    x = torch.randn(5, 64, generator=rng(6))
    assert metrics.fid(x, x) == pytest.approx(0, abs=1e-4)


def test_kid_is_the_sum_over_distinct_pairs() -> None:
    x, y = torch.randn(5, 3, generator=rng(1)).double(), torch.randn(4, 3, generator=rng(2)).double()

    def k(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a @ b / 3 + 1) ** 3)

    xx = np.mean([k(x[i], x[j]) for i, j in itertools.permutations(range(5), 2)])
    yy = np.mean([k(y[i], y[j]) for i, j in itertools.permutations(range(4), 2)])
    xy = np.mean([k(a, b) for a in x for b in y])
    assert metrics.kid(x, y) == pytest.approx(xx + yy - 2 * xy, rel=1e-9)


def test_kid_is_unbiased_where_fid_is_not() -> None:
    draws = [torch.randn(2, 30, 8, generator=rng(seed), dtype=torch.float64) for seed in range(60)]
    kids = torch.tensor([metrics.kid(a, b) for a, b in draws])
    fids = torch.tensor([metrics.fid(a, b) for a, b in draws])
    assert abs(float(kids.mean())) < 3 * float(kids.std()) / 60**0.5
    assert float(fids.mean()) > 10 * float(fids.std()) / 60**0.5


def test_halves_fid_shrinks_with_size_and_needs_disjoint_halves() -> None:
    x = torch.randn(400, 8, generator=rng(0))
    small, _ = metrics.halves_fid(x, 20, generator=rng(1), draws=10)
    large, _ = metrics.halves_fid(x, 200, generator=rng(1), draws=10)
    assert small > 3 * large
    with pytest.raises(RequestError, match="at most half"):
        metrics.halves_fid(x, 201, generator=rng(1))


def test_diversity_of_two_points_and_of_one() -> None:
    same = torch.ones(120, 4)
    assert metrics.diversity(same, generator=rng()) == 0
    two = torch.cat([torch.zeros(2000, 4), torch.ones(2000, 4)])
    expected = 0.5 * 2.0  # half of all pairs lie on different points, sqrt(4) apart
    assert metrics.diversity(two, generator=rng(), pairs=4000) == pytest.approx(expected, abs=0.05)
    with pytest.raises(RequestError, match="more samples"):
        metrics.diversity(torch.ones(40, 4), generator=rng())


def test_multimodality_ignores_what_differs_between_prompts() -> None:
    offsets = torch.randn(7, 1, 5, generator=rng(1)) * 100
    within = torch.randn(1, 30, 5, generator=rng(2)).expand(7, 30, 5)
    alone = metrics.multimodality(within, generator=rng(3))
    assert metrics.multimodality(within + offsets, generator=rng(3)) == pytest.approx(alone, rel=1e-4)
    assert alone > 0


def test_nearest_distance_finds_the_copy() -> None:
    bank = torch.randn(30, 6, generator=rng(1))
    queries = torch.stack([bank[4], bank[9] + torch.tensor([0.1, 0, 0, 0, 0, 0])])
    assert metrics.nearest_distance(queries, bank).tolist() == pytest.approx([0, 0.1], abs=1e-5)


# retrieval


def test_r_precision_of_hand_ordered_ranks() -> None:
    motion = torch.arange(32.0)[:, None]
    text = motion.clone()
    text[0] = 1.2  # nearest: 1, 2, 0 -> rank 3
    text[5] = 20.0  # far off
    text[9] = 9.6  # nearest: 10, then 9 -> rank 2
    top1, top2, top3 = metrics.r_precision(text, motion)
    assert (top1 * 32, top2 * 32, top3 * 32) == (29, 30, 31)


def test_constant_embeddings_score_nothing() -> None:
    assert metrics.r_precision(torch.zeros(64, 3), torch.zeros(64, 3)) == (0, 0, 0)


def test_random_embeddings_score_k_in_32() -> None:
    text, motion = torch.randn(2, 6400, 8, generator=rng(1))
    for k, score in enumerate(metrics.r_precision(text, motion), 1):
        assert score == pytest.approx(k / 32, abs=4 * (k / 32 / 6400) ** 0.5)


def test_duplicates_count_only_when_asked() -> None:
    motion = torch.arange(32.0)[:, None]
    text = motion.clone()
    text[3], text[4] = 4.0, 3.0
    captions = [[f"caption {i}"] for i in range(32)]
    captions[3], captions[4] = ["A person walks."], ["something else", "a  person walks"]
    groups = metrics.caption_groups(captions)
    assert int(groups[3]) == int(groups[4])
    assert len(groups.unique()) == 31
    assert metrics.r_precision(text, motion, top=1)[0] == 30 / 32
    assert metrics.r_precision(text, motion, top=1, groups=groups)[0] == 1


def test_caption_groups_are_transitive() -> None:
    groups = metrics.caption_groups([["x"], ["y"], ["x", "y"], ["z"]])
    assert groups[0] == groups[1] == groups[2] != groups[3]


def test_incomplete_batches_are_dropped_and_too_few_refused() -> None:
    text = torch.randn(70, 4, generator=rng(1))
    assert len(metrics.retrieval_hits(text, text)) == 64
    with pytest.raises(RequestError, match="batches of 32"):
        metrics.retrieval_hits(text[:31], text[:31])


def test_mm_dist_is_the_mean_distance_of_pairs() -> None:
    assert metrics.mm_dist(torch.zeros(4, 2), torch.tensor([[3.0, 4.0]] * 4)) == 5


# physics


@pytest.fixture
def sample() -> torch.Tensor:
    path = SHARED / "data/humanml3d-sample/012314.joints.npy"
    if not path.exists():
        pytest.skip("the HumanML3D sample clip is not at ANCHORROUTE_SHARED")
    return torch.from_numpy(np.load(path)).double()


def test_skating_of_the_sample_clip_is_the_published_figure(sample: torch.Tensor) -> None:
    assert float(metrics.foot_skating(sample)) == pytest.approx(0.1361, abs=5e-5)


def test_skating_agrees_with_scipys_filter(sample: torch.Tensor) -> None:
    feet = sample[:, [10, 11]].numpy()
    speed = np.linalg.norm(np.diff(feet[..., [0, 2]], axis=0), axis=-1) * 20
    mean = uniform_filter1d(speed, size=5, axis=0, mode="constant")
    touching = (feet[:-1, :, 1] < 0.05) & (feet[1:, :, 1] < 0.05)
    expected = (touching & (speed > 0.5) & (mean > 0.5)).any(axis=1).mean()
    assert float(metrics.foot_skating(sample)) == pytest.approx(expected)


def test_skating_counts_a_slide_and_only_a_low_fast_one() -> None:
    slide = standing(41)
    slide[..., 0] += torch.arange(41)[:, None] * 0.05  # 1 m/s
    slow, high = slide.clone(), slide.clone()
    slow[..., 0] *= 0.45
    high[..., 1] += 0.2
    # on the five-frame average the first and last pairs still see 3 of 5 frames at 1 m/s, 0.6 m/s: all 40 count
    batch = metrics.foot_skating(torch.stack([slide, slow, high, standing(41)]))
    assert batch.tolist() == [1, 0, 0, 0]
    assert float(metrics.foot_skating(slide, padded_to=196)) == pytest.approx(40 / 195)
    with pytest.raises(RequestError, match="does not fit"):
        metrics.foot_skating(slide, padded_to=20)


def test_padding_with_stillness_is_the_padded_figure(sample: torch.Tensor) -> None:
    padded = torch.cat([sample, sample[-1:].expand(196 - len(sample), 22, 3)])
    assert float(metrics.foot_skating(padded)) == pytest.approx(float(metrics.foot_skating(sample, padded_to=196)))


def test_floor_figures_are_depth_and_height() -> None:
    pose = standing(10)
    sunk, lifted = pose.clone(), pose.clone()
    sunk[:5, :, 1] -= 0.04
    lifted[:, :, 1] += 0.15
    assert float(metrics.floor_penetration(sunk)) == pytest.approx(0.02)
    assert float(metrics.floor_penetration(lifted)) == 0
    assert float(metrics.floating(lifted)) == pytest.approx(0.10)
    assert float(metrics.floating(pose)) == 0


def test_bone_error_of_the_rest_pose_and_of_a_stretched_arm() -> None:
    pose = standing(4)
    assert float(metrics.bone_length_error(pose)) < 1e-4
    direction = pose[:, 20] - pose[:, 18]
    pose[:, 20] += 0.021 * direction / direction.norm(dim=-1, keepdim=True)
    assert float(metrics.bone_length_error(pose)) == pytest.approx(0.001, abs=1e-4)


def test_derivatives_of_a_cubic_path() -> None:
    seconds = torch.arange(30, dtype=torch.float64) / 20
    clip = standing(30)
    clip[..., 2] += (0.7 * seconds**3)[:, None]
    assert float(metrics.jerk(clip)) == pytest.approx(6 * 0.7, rel=1e-6)
    # the second difference at frame n equals the derivative at its middle, 6 * 0.7 * t
    assert float(metrics.joint_acceleration(clip)) == pytest.approx(float(4.2 * seconds[1:-1].mean()), rel=1e-6)
    assert float(metrics.root_acceleration(clip)) == pytest.approx(float(metrics.joint_acceleration(clip)))


def test_too_short_clips_are_refused() -> None:
    with pytest.raises(RequestError, match="at least 4"):
        metrics.jerk(standing(3))


# descriptors


def turned(joints: torch.Tensor, angle: float) -> torch.Tensor:
    c, s = np.cos(angle), np.sin(angle)
    about_y = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    return joints @ about_y.T + torch.tensor([2.0, 0.0, -1.0])


def test_descriptors_do_not_depend_on_place_and_heading(sample: torch.Tensor) -> None:
    moved = turned(sample, 1.1)
    assert torch.allclose(metrics.kinetic_features(sample), metrics.kinetic_features(moved), atol=1e-6)
    assert (metrics.geometric_features(sample) - metrics.geometric_features(moved)).abs().max() < 0.02


def test_kinetic_features_of_one_moving_joint() -> None:
    clip = standing(21)
    clip[:, 20, 1] += torch.arange(21) * 0.1  # the left wrist rises at 2 m/s
    found = metrics.kinetic_features(clip)
    expected = torch.zeros(66, dtype=torch.float64)
    expected[22 + 20] = np.log1p(4.0)
    assert torch.allclose(found, expected, atol=1e-4)


def test_geometric_features_see_a_raised_hand() -> None:
    clip = standing(10)
    before = metrics.geometric_features(clip)
    clip[:5, 20] = clip[:5, 15] + torch.tensor([0.1, 0.3, 0.0], dtype=torch.float64)
    after = metrics.geometric_features(clip)
    assert before[0] == 0
    assert after[0] == 0.5
    assert torch.equal(after[11:22], before[11:22])


def test_clip_descriptor_measures_in_metres_whatever_the_length() -> None:
    a, b = standing(40), standing(90) + torch.tensor([0.3, 0.0, 0.4], dtype=torch.float64)
    assert float((metrics.clip_descriptor(a) - metrics.clip_descriptor(b)).norm()) == pytest.approx(0.5, rel=1e-6)


# control


def anchors(*rows: tuple[float, int, tuple[float, float, float], tuple[bool, bool, bool]]) -> Observed:
    frames, joints, values, free = zip(*rows, strict=True)
    return Observed(
        torch.tensor(frames),
        torch.tensor(joints),
        torch.tensor(values),
        torch.tensor(free),
        torch.full((len(rows),), 0.005),
    )


def test_control_distances_by_hand() -> None:
    clip = torch.zeros(5, 22, 3)
    clip[:, 0, 0] = torch.arange(5.0)
    distances = metrics.control_distances(
        clip,
        anchors(
            (2.0, 0, (2.0, 3.0, 4.0), (False, False, False)),
            (2.5, 0, (2.5, 9.0, 0.1), (False, True, False)),
            (4.0, 0, (1.0, 0.0, 0.0), (False, False, False)),
        ),
    )
    assert distances.tolist() == pytest.approx([5.0, 0.1, 3.0], abs=1e-6)
    with pytest.raises(RequestError, match="outside frames"):
        metrics.control_distances(clip, anchors((4.5, 0, (0.0, 0.0, 0.0), (False, False, False))))


def test_means_run_over_anchors_then_samples() -> None:
    samples = [torch.tensor([0.1, 0.3]), torch.tensor([0.6]), torch.tensor([0.0, 0.0, 0.0, 0.9])]
    assert metrics.control_error(samples) == pytest.approx((0.2 + 0.6 + 0.225) / 3)
    assert metrics.trajectory_error_rate(samples, 0.5) == pytest.approx(2 / 3)
    assert metrics.location_error_rate(samples, 0.5) == pytest.approx((0 + 1 + 0.25) / 3)
    assert metrics.location_error_rate(samples, 0.2) == pytest.approx((0.5 + 1 + 0.25) / 3)
    with pytest.raises(RequestError, match="nothing is not zero"):
        metrics.control_error([])
