"""Requests: lengths in whole tokens, anchors at the very end, and every refusal by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.errors import AnchorError, RequestError
from anchorroute.request import LONGEST, SHORTEST, checked, checked_text, clip


def _until(at: float) -> AnchorSet:
    return AnchorSet((Anchor(at, "pelvis", (0.0, 0.9, 1.0)),))


@settings(max_examples=50, deadline=None)
@given(st.floats(SHORTEST / 20, LONGEST / 20))
def test_lengths_are_whole_tokens(seconds: float) -> None:
    made, kept = clip(AnchorSet(), seconds=seconds, frames=None)
    assert made == kept and made % 4 == 0 and SHORTEST <= made <= LONGEST
    assert 0 <= made - round(seconds * 20) < 4


@pytest.mark.parametrize("at", [3.0, 3.95, 4.0])
def test_an_anchor_at_the_end_has_its_frame(at: float) -> None:
    made, kept = clip(_until(at), seconds=4.0, frames=None)
    assert (kept - 1) / 20 >= at - 1e-9
    assert kept == (81 if at == 4.0 else 80)
    assert made % 4 == 0 and made >= kept


@pytest.mark.parametrize("at", [0.5, 2.0, 5.0, 9.75])
def test_without_length_the_last_anchor_decides(at: float) -> None:
    made, kept = clip(_until(at), seconds=None, frames=None)
    assert made == kept and (kept - 1) / 20 >= at - 1e-9


def test_default_is_six_seconds() -> None:
    assert clip(AnchorSet(), seconds=None, frames=None) == (120, 120)


@pytest.mark.parametrize("seconds", [0.5, 30.0, float("nan"), -1.0])
def test_lengths_that_the_model_cannot_do(seconds: float) -> None:
    with pytest.raises(RequestError, match="s"):
        clip(AnchorSet(), seconds=seconds, frames=None)


def test_an_anchor_beyond_the_clip() -> None:
    with pytest.raises(AnchorError, match="beyond the clip"):
        checked("walk", _until(5.0), seconds=3.0)


def test_seconds_and_frames() -> None:
    with pytest.raises(RequestError, match="give one"):
        clip(AnchorSet(), seconds=3.0, frames=60)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("walk " * 2000, "characters"),
        ("a person walks \N{PEDESTRIAN}", "pedestrian"),
        ("человек идёт", "cyrillic"),
        ("人が歩く", "cjk"),
        ("a\x00b", "U.0000"),
        ("... !?", "no word"),
    ],
)
def test_refused_texts(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=f"(?i){why}"):
        checked_text(text)


@pytest.mark.parametrize("text", ["a person walks", "A dancer's pirouette – élan!", "turns 90° left"])
def test_taken_texts(text: str) -> None:
    assert checked_text(f"  {text}\n") == text


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_refused_seeds(seed: int) -> None:
    with pytest.raises(RequestError, match="seed"):
        checked("walk", None, seed=seed)
