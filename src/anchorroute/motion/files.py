"""Files that are whole or not there: written beside their place, read back, checked, then moved."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from anchorroute.errors import FormatError


def write_checked(path: str | Path, payload: bytes, check: Callable[[Path], None]) -> Path:
    """Write `payload` to `path` once `check` has read the written bytes back without complaint.

    `check` gets a temporary file in the same folder, with the same ending; whatever it raises leaves an older file at
    `path` as it was.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FormatError(f"{path}: the folder {path.parent} does not exist; create it first")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    except OSError as error:
        raise FormatError(f"{path}: cannot be written ({error.strerror})") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(payload)
        temporary.chmod(0o666 & ~_umask())
        check(temporary)
        temporary.replace(path)
    except FormatError as error:
        message = str(error).replace(str(temporary), str(path))
        raise FormatError(f"{message} (nothing was written)") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
