"""What every test file shares: where reference data lies, and shapes checked at run time."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data that is not part of the project; tests that need it skip without it."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("ANCHORROUTE_SHARED", default))
    if not (folder / "data").is_dir():
        pytest.skip("reference data absent: point ANCHORROUTE_SHARED at a folder that holds data/humanml3d-sample")
    return folder
