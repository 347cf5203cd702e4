"""Files are whole or not there: what stood at the path survives every failure, and nothing is left lying about."""

import os
import stat
from pathlib import Path

import pytest

from anchorroute.errors import FormatError
from anchorroute.motion.files import write_checked


def accept(_: Path) -> None:
    """A check without complaint."""


def test_the_check_sees_the_bytes_under_the_same_ending_before_they_are_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.glb"
    seen = []

    def check(written: Path) -> None:
        seen.append((written.read_bytes(), written.suffix, path.exists()))

    assert write_checked(path, b"new", check) == path
    assert seen == [(b"new", ".glb", False)] and path.read_bytes() == b"new"


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_checked(tmp_path / "a.bvh", b"", accept)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.bvh").stat().st_mode) == 0o640


@pytest.mark.parametrize("failure", [FormatError("bad"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_the_older_file_survives_a_failure(failure: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")

    def check(_: Path) -> None:
        raise failure

    wanted = KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else FormatError
    with pytest.raises(wanted, match=None if wanted is KeyboardInterrupt else r"nothing was written|No space left"):
        write_checked(path, b"new", check)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").mkdir()
    with pytest.raises(FormatError, match=r"a\.html: cannot be written"):
        write_checked(tmp_path / "a.html", b"x", accept)
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
