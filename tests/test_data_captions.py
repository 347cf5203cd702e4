"""Captions: the text files' format, words in a mirror, CMU's titles as sentences."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorroute.data.captions import (
    Caption,
    format_line,
    mirror_words,
    mirrored,
    parse_line,
    read_captions,
    weak_captions,
)
from anchorroute.errors import DataError

_VOCABULARY = (
    "left right Left RIGHT clockwise counterclockwise leftwards right-handed forward-left upright a turns straight "
    "bright cleft rights, left. o'clock lefty"
)
WORDS = st.sampled_from(_VOCABULARY.split(" "))


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=8).map(" ".join))
def test_a_mirror_seen_in_a_mirror_says_the_same(text: str) -> None:
    assert mirror_words(mirror_words(text)) == text


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("kicks with the right leg, then left", "kicks with the left leg, then right"),
        ("turns Left and RIGHT", "turns Right and LEFT"),
        ("spins counter clockwise", "spins clockwise"),
        ("spins anti-clockwise twice", "spins clockwise twice"),
        ("turns clock-wise", "turns counterclockwise"),
        ("stands upright, brightly, on a cleft", "stands upright, brightly, on a cleft"),
        ("turns left at right angles", "turns right at right angles"),
        ("a right-handed throw leftwards", "a left-handed throw rightwards"),
        ("moves forward-right", "moves forward-left"),
        ("raises the rigth hand", "raises the left hand"),
    ],
)
def test_words_change_sides_and_only_those_that_have_one(given_text: str, expected: str) -> None:
    assert mirror_words(given_text) == expected


def test_tokens_and_tags_go_through_the_mirror_with_the_words() -> None:
    caption = Caption("left leg", ("left/ADJ", "leg/NOUN"), 1.0, 3.5)
    assert mirrored(caption) == Caption("right leg", ("right/ADJ", "leg/NOUN"), 1.0, 3.5)


@settings(max_examples=40, deadline=None)
@given(st.text("ab #\t1.", min_size=1).filter(lambda t: t.replace("#", " ").strip()), st.floats(0, 5), st.floats(5, 9))
def test_a_written_line_reads_back(text: str, start: float, end: float) -> None:
    caption = parse_line(format_line(Caption(text, (), start, end)), "x")
    assert caption.text == " ".join(text.replace("#", " ").split())
    assert (caption.start, caption.end) == (start, end)


def test_nan_tags_mean_the_whole_clip() -> None:
    assert parse_line("a man walks#a/DET man/NOUN#nan#nan", "x").whole


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a man walks#a/DET man/NOUN#0.0\n", ("000001.txt:1", "2 '#' signs")),
        (b"ok##0.0#0.0\na man##zero#0.0\n", ("000001.txt:2", "'zero'")),
        (b"ok##0.0#0.0\n\xe9t\xe9##0.0#0.0\n", ("000001.txt:2", "UTF-8")),
        (b"ok##4.0#2.0\n", ("4.0 to 2.0",)),
        (b"##0.0#0.0\n", ("empty",)),
        (b"ok##-1.0#2.0\n", ("negative",)),
    ],
)
def test_a_broken_text_file_is_named_with_its_line(tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    path = tmp_path / "000001.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_captions(path)
    assert all(word in str(caught.value) for word in words)


def test_an_empty_text_file_is_a_clip_without_captions_and_a_missing_one_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n")
    assert read_captions(tmp_path / "a.txt") == ()
    with pytest.raises(DataError, match="no text file"):
        read_captions(tmp_path / "b.txt")


@pytest.mark.parametrize(
    ("subject", "description", "expected"),
    [
        ("Basketball", "DefensiveRightStopToStop", ("defensive right stop to stop",) * 2),
        ("General Subject Capture", "Walk And Pick up Box", ("walk and pick up box",)),
        ("walking", "walk_forward 90", ("walk forward 90", "walking, walk forward 90")),
        ("salsa", "", ("salsa",)),
        ("motion", "", ()),
        ("animal behaviors (pantomime - human subject", "cat (human subject)", ("cat", "animal behaviors, cat")),
        ("golf", "RunningTighterLeft      CleanedGRS", ("running tighter left", "golf, running tighter left")),
    ],
)
def test_titles_become_plain_words(subject: str, description: str, expected: tuple[str, ...]) -> None:
    found = weak_captions(subject, description)
    assert found[0:1] == expected[0:1]
    assert len(found) == len(expected)
