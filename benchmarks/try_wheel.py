"""Install a wheel into an empty environment outside of the clone and make the demo there, without a network.

    python benchmarks/try_wheel.py dist/anchorroute-0.1.0-py3-none-any.whl

`--model debug` stands in where the wheel carries no weights. The network is switched off by a `sitecustomize` that
refuses every connection, in the new environment alone.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OFFLINE = """
import socket

def refuse(*args, **kwargs):
    raise OSError("the network is off in this test")

socket.socket.connect = refuse
socket.create_connection = refuse
"""


def main(wheel: Path) -> None:
    """Raise unless the demo's four files come out."""
    names = zipfile.ZipFile(wheel).namelist()
    shipped = any(name.endswith("assets/prior/weights.safetensors") for name in names)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, weights {'inside' if shipped else 'absent'}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        binaries = place / "venv" / ("Scripts" if os.name == "nt" else "bin")
        python = binaries / "python"
        began = time.perf_counter()
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel.resolve())], check=True, cwd=place)
        installed = time.perf_counter()
        site = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        (Path(site.stdout.strip()) / "sitecustomize.py").write_text(OFFLINE)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
        clean |= {"ANCHORROUTE_CACHE": str(place / "cache"), "HF_HUB_OFFLINE": "1"}
        model = [] if shipped else ["--model", "debug"]
        command = [str(binaries / "anchorroute"), "demo", "--out", "demo", *model]
        subprocess.run(command, check=True, cwd=place, env=clean)
        made = time.perf_counter()
        written = sorted(path.name for path in (place / "demo").iterdir())
        if written != ["anchors.json", "demo.bvh", "demo.glb", "demo.html", "demo.npz"]:
            raise SystemExit(f"the demo wrote {written}")
    print(f"installed in {installed - began:.0f} s, demo in {made - installed:.1f} s, offline, outside of the clone")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
