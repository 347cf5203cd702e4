"""The losses against values worked out by hand."""

import math

import pytest
import torch

from anchorroute import losses, scaffold
from anchorroute.anchors import AnchorSet


def test_cross_entropy_skips_padding_alone():
    logits = torch.zeros(1, 3, 4)
    logits[0, 0, 2] = math.log(3)  # probability 1/2 for code 2
    z = torch.tensor([[2, 0, -1]])
    assert float(losses.cross_entropy(logits, z)) == pytest.approx(0.5 * (math.log(2) + math.log(4)))


def test_anchor_loss_is_the_sum_of_squared_distances_and_a_free_coordinate_adds_nothing():
    joints = torch.zeros(20, 22, 3)
    observed = AnchorSet.from_points([(3, "pelvis", (0.3, None, 0.4)), (7, "head", (0.0, 1.0, 0.0))]).observed(20)
    assert float(losses.anchor(joints, observed)) == pytest.approx(0.25 + 1.0)


def test_support_loss_covers_two_frames_on_either_side():
    observed = AnchorSet.from_points([(1, "pelvis", (0, 0, 0)), (10, "pelvis", (0, 0, 0))]).observed(20)
    target = torch.zeros(20, 22, 3)
    support = scaffold.support(observed, 20, radius=2)
    assert float(losses.anchor_support(target + 1.0, target, support)) == pytest.approx(3 * (4 + 5))


def test_smoothness_is_zero_on_a_line_and_the_squared_acceleration_on_a_parabola():
    t = torch.arange(10.0)
    path = torch.stack((3 * t, 0.5 * t**2), -1)[None]
    assert losses.smoothness(path, torch.tensor([10])).tolist() == [pytest.approx(1.0)]
    assert losses.smoothness(path[..., :1], torch.tensor([10])).tolist() == [0.0]


def test_means_over_time_never_see_padding():
    path = torch.randn(1, 9, 3, generator=torch.Generator().manual_seed(0))
    padded = torch.cat((path, 100 * torch.ones(1, 5, 3)), 1)
    nine = torch.tensor([9])
    torch.testing.assert_close(losses.smoothness(padded, nine), losses.smoothness(path, nine))
    torch.testing.assert_close(losses.feasibility(padded, nine, 0.1), losses.feasibility(path, nine, 0.1))


def test_feasibility_counts_only_what_exceeds_the_speed():
    root = torch.zeros(1, 4, 3)
    root[0, :, 0] = torch.tensor([0.0, 0.1, 0.4, 0.4])
    assert losses.feasibility(root, torch.tensor([4]), 0.2).tolist() == [pytest.approx(0.01 / 3)]


def test_trust_is_the_frobenius_distance():
    assert losses.trust(torch.ones(2, 3, 4), torch.zeros(2, 3, 4)).tolist() == [12.0, 12.0]
