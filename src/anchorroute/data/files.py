"""Files appear whole or not at all: written beside their place under another name, then renamed."""

import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np


def write_atomically(path: Path, content: bytes) -> None:
    """Write bytes so that a reader, or a kill, never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.write_bytes(content)
    beside.replace(path)


def npy_bytes(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    """The bytes of a .npy file."""
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
