"""The imports run one way, and `import anchorroute` (and `--help`) stay light."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HEAVY = ("torch", "numpy", "scipy", "transformers", "rich", "pydantic", "fastapi", "viser")


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_layers() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    if not linter.exists():
        pytest.skip("import-linter is not installed (pip install -e '.[dev]')")
    done = subprocess.run(
        [str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_motion_knows_no_anchors() -> None:
    for path in (ROOT / "src/anchorroute/motion").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert "anchorroute.anchors" not in source, (
            f"{path.name} imports anchors; a Motion carries them as plain values"
        )


def test_transformer_never_imports_conditioning() -> None:
    source = (ROOT / "src/anchorroute/transformer.py").read_text(encoding="utf-8")
    imports = [line for line in source.splitlines() if "import" in line]
    assert not [line for line in imports if "conditioning" in line]


@pytest.mark.parametrize(
    "code",
    [
        "import anchorroute",
        "import anchorroute.cli",
        "import anchorroute.cli as c; c.run(['--help'])",
        "import anchorroute.cli as c; c.run(['generate', '--help'])",
        "import anchorroute.cli as c; c.run(['nonsense'])",
    ],
)
def test_light(code: str) -> None:
    heavy = _python(f"{code}\nimport sys\nprint('|' + ' '.join(m for m in {HEAVY!r} if m in sys.modules))")
    assert heavy.endswith("|"), f"{code!r} imports {heavy.rpartition('|')[2]}"
