"""The Blender example: its request against a server here; its armature in a Python that has `bpy`, if there is one.

`bpy` is large and lives in an environment of its own: ANCHORROUTE_BPY_PYTHON names that Python.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("motionmcp")

from anchorroute.motion.skeleton import JOINTS
from anchorroute.server.app import Server

from serving import StandIn, live

EXAMPLE = Path(__file__).parents[1] / "examples" / "blender_client.py"

HEADS = """
import json, sys, bpy
bpy.ops.wm.open_mainfile(filepath=sys.argv[1])
body = next(found for found in bpy.data.objects if found.type == "ARMATURE")
told = {}
for frame in (1, 20, 40):
    bpy.context.scene.frame_set(frame)
    told[frame] = {bone.name: list(body.matrix_world @ bone.head) for bone in body.pose.bones}
print("HEADS" + json.dumps(told))
"""


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("blender_client", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_asks_with_the_standard_library_alone() -> None:
    client, pipe = _example(), StandIn()
    with live(Server(pipe)) as url:  # type: ignore[arg-type]
        document = client.motion(url, "a person walks", 2.0, [[0.0, 0.0], [1.0, 2.0]], 3)
    assert pipe.calls == [["a person walks"]]
    assert [node["name"] for node in document["nodes"]] == list(JOINTS)
    samplers = document["animations"][0]["samplers"]
    root = document["animations"][0]["channels"][-1]
    assert root["target"] == {"node": 0, "path": "translation"}
    assert np.allclose(client.rows(document, samplers[root["sampler"]]["output"]), pipe.motion.root, atol=1e-6)


def _blender() -> str:
    named = os.environ.get("ANCHORROUTE_BPY_PYTHON")
    if named is None and importlib.util.find_spec("bpy") is None:
        pytest.skip("no bpy: point ANCHORROUTE_BPY_PYTHON at a Python that has it")
    return named or sys.executable


def test_blender_builds_the_same_body(tmp_path: Path) -> None:
    python, pipe, out = _blender(), StandIn(), tmp_path / "walk.blend"
    with live(Server(pipe)) as url:  # type: ignore[arg-type]
        command = [python, str(EXAMPLE), "a person walks", str(out), "--url", url, "--seconds", "2"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    told = subprocess.run([python, "-c", HEADS, str(out)], check=True, capture_output=True, text=True, timeout=300)
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("HEADS")]
    for frame, heads in json.loads(line.removeprefix("HEADS")).items():
        for joint, name in enumerate(JOINTS):
            x, y, z = pipe.motion.joints[int(frame) - 1, joint]
            assert np.abs(np.array(heads[name]) - [x, -z, y]).max() < 1e-4, (frame, name)
