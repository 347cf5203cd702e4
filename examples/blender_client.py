"""Ask a running server for a motion and build the armature in Blender from its answer.

    anchorroute serve
    blender --background --python examples/blender_client.py -- "a person walks forward" walk.blend --seconds 4
    blender --background --python examples/blender_client.py -- "a person walks" walk.blend --route 0,0 1,3

It speaks MMCP with the standard library alone, so it runs in any Blender from 3.6 on, and against any MMCP server whose
bones turn and do not slide. `--route` takes waypoints x,z in metres, spread evenly over the clip.
"""

import argparse
import base64
import json
import os
import struct
import sys
import urllib.request
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def ask(url: str, path: str, body: Document | None = None) -> Document:
    """GET, or POST with a body; the token comes from ANCHORROUTE_TOKEN."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("ANCHORROUTE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=600) as answer:
        found: Document = json.load(answer)
        return found


def motion(url: str, text: str, seconds: float, route: list[list[float]], seed: int) -> Document:
    """The server's glTF document for a sentence and waypoints."""
    told = ask(url, "/capabilities")
    model = told["models"][0]
    frames = round(seconds * model["fps"])
    path = {"type": "root_path", "frames": [], "positions_xz": route}
    path["frames"] = [round(k * (frames - 1) / max(len(route) - 1, 1)) for k in range(len(route))]
    body = {
        "protocol_version": told["protocol_version"], "model": model["id"], "skeleton": model["canonical_skeleton"],
        "segments": [{"type": "text", "prompt": text, "duration_frames": frames}],
        "constraints": [path] if route else [], "options": {"seed": seed},
    }  # fmt: skip
    return ask(url, "/generate", body)


def rows(document: Document, accessor: int) -> list[tuple[float, ...]]:
    """An accessor's numbers; MMCP writes float32 into one buffer."""
    told = document["accessors"][accessor]
    view = document["bufferViews"][told["bufferView"]]
    data = base64.b64decode(document["buffers"][view["buffer"]]["uri"].partition(",")[2])
    width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}[told["type"]]
    flat = struct.unpack_from(f"<{told['count'] * width}f", data, view["byteOffset"])
    return [flat[k : k + width] for k in range(0, len(flat), width)]


def build(document: Document, name: str) -> Any:
    """The armature with its action. glTF has Y up, Blender Z: (x, y, z) becomes (x, -z, y)."""
    import bpy
    from mathutils import Quaternion, Vector

    def upright(x: float, y: float, z: float) -> Any:
        return Vector((x, -z, y))

    nodes = document["nodes"]
    parents = {child: k for k, node in enumerate(nodes) for child in node.get("children", [])}
    heads: dict[int, Any] = {}
    for k, node in enumerate(nodes):  # parents come first
        heads[k] = upright(*node["translation"]) + (heads[parents[k]] if k in parents else Vector())
    body = bpy.data.objects.new(name, bpy.data.armatures.new(name))
    bpy.context.collection.objects.link(body)
    bpy.context.view_layer.objects.active = body
    bpy.ops.object.mode_set(mode="EDIT")
    for k, node in enumerate(nodes):
        bone = body.data.edit_bones.new(node["name"])
        children = [heads[child] for child in node.get("children", [])]
        bone.head, bone.tail = heads[k], children[0] if len(children) == 1 else heads[k] + Vector((0, 0, 0.08))
        bone.parent = body.data.edit_bones[nodes[parents[k]]["name"]] if k in parents else None
    bpy.ops.object.mode_set(mode="POSE")
    animation, fps = document["animations"][0], document["extensions"]["MMCP_motion"]["fps"]
    bpy.context.scene.render.fps = round(fps)
    for channel in animation["channels"]:
        k, sampler = channel["target"]["node"], animation["samplers"][channel["sampler"]]
        bone = body.pose.bones[nodes[k]["name"]]
        rest = bone.bone.matrix_local.to_quaternion()
        for (at,), value in zip(rows(document, sampler["input"]), rows(document, sampler["output"])):
            if channel["target"]["path"] == "rotation":
                turn = Quaternion((value[3], *upright(*value[:3])))
                bone.rotation_quaternion = rest.inverted() @ turn @ rest  # in the bone's own axes
                bone.keyframe_insert("rotation_quaternion", frame=1 + at * fps)
            else:
                bone.location = rest.inverted() @ (upright(*value[:3]) - heads[k])
                bone.keyframe_insert("location", frame=1 + at * fps)
    bpy.context.scene.frame_end = len(rows(document, animation["samplers"][0]["input"]))
    bpy.ops.object.mode_set(mode="OBJECT")
    return body


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out", help="a .blend file")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--route", nargs="*", default=[], metavar="X,Z")
    chosen = parser.parse_args(arguments)
    route = [[float(part) for part in point.split(",")] for point in chosen.route]
    document = motion(chosen.url, chosen.text, chosen.seconds, route, chosen.seed)
    import bpy

    bpy.ops.wm.read_factory_settings(use_empty=True)
    build(document, chosen.text)
    bpy.ops.wm.save_as_mainfile(filepath=str(Path(chosen.out).resolve()))
    print(f"{chosen.out}: {bpy.context.scene.frame_end} frames")


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else sys.argv[1:])
