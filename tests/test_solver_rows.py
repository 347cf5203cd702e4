"""Residual rows: two routes to the same number, and what must not change them."""

import math

import pytest
import torch

from anchorroute import scaffold
from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.errors import RequestError
from anchorroute.motion.rotation import quat_about_y, quat_apply
from anchorroute.routesolver import offset_term, plant_term, rows, stances

from motions import walk

LENGTHS = torch.tensor([60])


def some_anchors() -> AnchorSet:
    return AnchorSet(
        (
            Anchor(0.52, "pelvis", (0.1, None, 0.5), heading=0.3),
            Anchor(1.0, "left_wrist", (0.4, 1.2, None)).turned(0.7, (0.2, 0.1)),
            Anchor(2.0, "pelvis", (None, None, None), heading=-0.2),
            Anchor(2.4, "head", (0.0, 1.6, 1.0), tolerance=0.02),
        )
    )


def test_position_rows_are_the_scaffolds_residuals():
    joints, observed = walk(60), some_anchors().observed(60)
    term = rows.anchor_term([observed], LENGTHS)
    expected = scaffold.residuals(joints, observed)
    values = term(joints[None]) * (term.weight > 0)
    torch.testing.assert_close(values.unflatten(1, (-1, 3))[0], expected.vector, atol=1e-6, rtol=1e-5)
    together = rows.Rows.of([term])
    torch.testing.assert_close(together.errors(together(joints[None]))[0], expected.distance, atol=1e-6, rtol=1e-5)


def test_heading_rows_are_the_scaffolds_turn_as_an_arc():
    joints, observed = walk(60), some_anchors().observed(60)
    term = rows.heading_term([observed], LENGTHS)
    expected = scaffold.residuals(joints, observed).heading
    asked = ~expected.isnan()
    torch.testing.assert_close(term(joints[None])[0][asked], rows.LEVER * expected[asked], atol=1e-5, rtol=1e-4)
    assert (term.weight[0] > 0).tolist() == asked.tolist()


def test_tolerances_are_weights_and_free_coordinates_are_left_out():
    together = rows.Rows.of([rows.anchor_term([some_anchors().observed(60)], LENGTHS)])
    assert len(together) == 2 + 2 + 0 + 3
    assert sorted(together.weight[0].tolist()) == pytest.approx([0.25] * 3 + [1.0] * 4)


def test_a_loop_is_closed_wherever_it_ends():
    joints = walk(60, turn=0.0)
    joints[59] = joints[0] + torch.tensor([3.0, 0.0, 1.0])
    term = rows.loop_term(torch.tensor([True]), LENGTHS)
    assert term(joints[None]).abs().max() < 1e-6
    turned = joints.clone()
    turned[59] = quat_apply(quat_about_y(torch.tensor(0.5)), joints[0])
    assert term(turned[None]).abs().max() > 0.05


def test_offsets_turn_with_the_body():
    joints = walk(60)
    frame, wrists = torch.tensor([[10.0, 20.5]]), (torch.tensor([[20, 20]]), torch.tensor([[21, 21]]))
    term = offset_term(frame, *wrists, torch.zeros(1, 2, 3))
    turned = quat_apply(quat_about_y(torch.tensor(1.1)), joints) + torch.tensor([1.0, 0.0, 2.0])
    torch.testing.assert_close(term(turned[None]), term(joints[None]), atol=1e-4, rtol=1e-4)
    with pytest.raises(RequestError, match="two different joints"):
        offset_term(frame, wrists[0], wrists[0], torch.zeros(1, 2, 3))


def test_plants_feel_a_slide_and_nothing_where_feet_stand():
    joints = walk(60)
    joints[:, 10] = torch.tensor([0.1, 0.03, 0.2])  # the left foot stands all the time
    joints[:, 11, 1] = 0.5
    assert stances(joints) == [(0, 59, 10, pytest.approx(0.03))]
    term = plant_term(joints[None], LENGTHS, 1.0)
    assert term(joints[None]).abs().max() < 1e-6
    slid = joints.clone()
    slid[:, 10, 0] += torch.linspace(0, 0.5, 60)
    sideways = term(slid[None])[0].unflatten(0, (-1, 3))[:, 0]
    assert sideways.sum() == pytest.approx(0.5, abs=1e-4)
    lifted = joints + torch.tensor([0.0, 0.02, 0.0])
    torch.testing.assert_close(term(lifted[None])[0].unflatten(0, (-1, 3))[:, 1 + 1], torch.full((5,), 0.02))


def test_terms_share_one_numbering_and_padding_weighs_nothing():
    one, two = some_anchors().observed(60), some_anchors().observed(60)[:1]
    lengths = torch.tensor([60, 60])
    terms = [rows.anchor_term([one, two], lengths), rows.heading_term([one, two], lengths)]
    together = rows.Rows.of(terms)
    joints = torch.stack((walk(60), walk(60, seed=1)))
    alone = rows.Rows.of([rows.anchor_term([two], LENGTHS), rows.heading_term([two], LENGTHS)])
    both, own = together.errors(together(joints)), alone.errors(alone(joints[1:]))
    assert both[1, 0] == pytest.approx(float(own[0, 0]))
    assert both[1, 4] == pytest.approx(float(own[0, 1]))
    assert together.names()[4] == ("heading", 0)
    assert both[1, [1, 2, 3, 5, 6, 7]].abs().max() == 0
    assert math.isclose(float(together.weight[1].sum()), 2 + 1)
