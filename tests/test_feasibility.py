"""Feasibility: every kind of finding, its suggestion followed is no finding, and limits that are sane."""

import itertools

import pytest

from anchorroute.anchors import Anchor, AnchorSet, Placement
from anchorroute.feasibility import Finding, Limits, check, limits
from anchorroute.motion.skeleton import JOINTS


def _made_up() -> Limits:
    """1.5 m/s over long times, 3 m/s in a frame; a body of 0.9 m around the pelvis."""
    return Limits(
        horizons=(0.05, 1.0, 10.0),
        speed=dict.fromkeys(JOINTS, (3.0, 2.0, 1.5)),
        reach={joint: 0.0 if joint == "pelvis" else 0.9 for joint in JOINTS},
        lowest=dict.fromkeys(JOINTS, 0.0),
        highest=dict.fromkeys(JOINTS, 2.0),
    )


def _check(*anchors: Anchor, seconds: float = 6.0, start: Placement | None = None) -> list[Finding]:
    return check(AnchorSet(anchors, start), seconds, _made_up())


def test_nothing_to_say() -> None:
    assert _check(Anchor(0.0, "pelvis", (0, 0.9, 0)), Anchor(2.0, "pelvis", (1, 0.9, 2))) == []


def test_too_fast_names_both_and_a_time_that_is_enough() -> None:
    one, far = Anchor(0.0, "pelvis", (0, 0.9, 0)), (0.0, 0.9, 4.0)
    (finding,) = _check(one, Anchor(1.0, "pelvis", far))
    assert finding.kind == "speed" and finding.anchors == (0, 1) and not finding.error
    assert "4.0 m/s" in finding.message
    later = float(finding.suggestion.split(" to ")[1].split(" s")[0])
    assert _check(one, Anchor(later, "pelvis", far)) == []
    assert _check(one, Anchor(later - 0.1, "pelvis", far)) != []


def test_too_fast_for_the_whole_clip_says_how_near() -> None:
    (finding,) = _check(Anchor(0.0, "pelvis", (0, 0.9, 0)), Anchor(1.0, "pelvis", (0, 0.9, 90)))
    assert "by the clip's end" in finding.suggestion


def test_speed_ignores_free_coordinates() -> None:
    assert _check(Anchor(0.0, "pelvis", (0, 0.9, 0)), Anchor(0.1, "pelvis", (None, 0.95, None))) == []


def test_hand_out_of_reach_of_the_root_path() -> None:
    root = Anchor(2.0, "pelvis", (0, 0.9, 1))
    (finding,) = _check(root, Anchor(2.0, "left_wrist", (0, 1.0, 2.5)))
    assert finding.kind == "reach" and finding.anchors == (0, 1)
    assert _check(root, Anchor(2.0, "left_wrist", (0, 1.0, 1.8))) == []
    assert _check(root, Anchor(3.0, "left_wrist", (0, 1.0, 2.5))) == [], "a second later the body may have come nearer"


def test_two_hands_in_one_pose() -> None:
    left = Anchor(2.0, "left_wrist", (0, 1.0, 0))
    (finding,) = _check(left, Anchor(2.0, "right_wrist", (0, 1.0, 3.0)))
    assert finding.kind == "reach"


def test_first_waypoint_against_the_start() -> None:
    far = Anchor(1.0, "pelvis", (0, 0.9, 5.0))
    (finding,) = _check(far, start=Placement(0.0, (0.0, 0.0)))
    assert finding.kind == "speed" and finding.anchors == (0,)


@pytest.mark.parametrize(("y", "kind"), [(-0.2, "floor"), (2.5, "height")])
def test_heights(y: float, kind: str) -> None:
    (finding,) = _check(Anchor(1.0, "left_wrist", (0.2, y, 0.2)))
    assert finding.kind == kind


def test_beyond_the_clip_is_an_error_and_comes_first() -> None:
    found = _check(Anchor(1.0, "left_wrist", (0.2, -1.0, 0.2)), Anchor(7.0, "pelvis", (0, 0.9, 1)))
    assert [finding.error for finding in found] == [True, False]
    assert "7.1 s or more" in found[0].suggestion


def test_shipped_limits_are_those_of_a_body() -> None:
    table = limits()
    assert set(table.speed) == set(JOINTS)
    assert 1.0 < table.fastest("pelvis", 1.0) < 5.0
    assert 1.0 < table.reach["left_foot"] + table.reach["head"] < 2.5
    for joint in JOINTS:
        assert table.lowest[joint] < table.highest[joint]
        distances = [table.farthest(joint, frames / 20) for frames in range(1, 120)]
        assert all(b > a * 0.98 for a, b in itertools.pairwise(distances)), f"{joint}: more time, less far"


def test_a_walk_raises_nothing() -> None:
    path = tuple(Anchor(t / 2, "pelvis", (0.05 * t, 0.92, 0.55 * t)) for t in range(12))
    hand = Anchor(2.5, "right_wrist", (0.1, 1.2, 3.0))
    assert check(AnchorSet((*path, hand)), 6.0) == []
