"""GLB: by the Khronos validator, by a second library walking the nodes, and by reading it back."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pygltflib
import pytest

from anchorroute.errors import FormatError
from anchorroute.motion import glb, mannequin
from anchorroute.motion.bvh_names import MIXAMO
from anchorroute.motion.motion import Motion

from motions import walk

VALIDATOR = """
const validator = require('gltf-validator'), fs = require('fs');
validator.validateBytes(new Uint8Array(fs.readFileSync(process.argv[1]))).then(
  report => console.log(JSON.stringify(report.issues)));
"""


def example(frames: int = 25, **about) -> Motion:  # type: ignore[no-untyped-def]
    anchors = ({"at": 0.5, "joint": "left_wrist", "position": [1.0, None, 2.0]},)
    return Motion.from_joints(walk(frames).numpy(), text="a person walks", anchors=anchors, seed=3, **about)


def test_reads_back_to_an_equal_motion(tmp_path: Path) -> None:
    motion = example(loop=True, provenance={"empty": {}, "none": None}).in_place()
    assert glb.load(glb.save(motion, tmp_path / "a.glb")) == motion
    assert glb.load(glb.save(motion, tmp_path / "b.glb", names="smpl")) == motion


def test_two_frames_and_another_rate(tmp_path: Path) -> None:
    motion = example(2)
    found = glb.load(glb.save(motion, tmp_path / "a.glb", fps=60))
    assert found.frames == 4 and found.fps == 60
    np.testing.assert_allclose(found.joints[::3], motion.joints, atol=1e-5)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> tuple[pygltflib.GLTF2, Motion]:
    motion = example()
    path = glb.save(motion, tmp_path_factory.mktemp("glb") / "a.glb")
    return pygltflib.GLTF2().load(str(path)), motion


def values(document: pygltflib.GLTF2, index: int) -> np.ndarray:
    accessor = document.accessors[index]
    view = document.bufferViews[accessor.bufferView]
    kind = {5126: "<f4", 5121: "u1", 5123: "<u2"}[accessor.componentType]
    width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}[accessor.type]
    flat = np.frombuffer(document.binary_blob(), kind, accessor.count * width, view.byteOffset)
    return flat.reshape(accessor.count, width).astype(np.float64)


def matrix(translation: np.ndarray, xyzw: np.ndarray) -> np.ndarray:
    x, y, z, w = xyzw
    out = np.eye(4)
    out[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    out[:3, 3] = translation
    return out


def world(document: pygltflib.GLTF2, frame: int | None) -> np.ndarray:
    """Node matrices [22, 4, 4] as a viewer makes them: at rest, or with the animation's keys of one frame."""
    translations = {node: np.array(n.translation or [0, 0, 0]) for node, n in enumerate(document.nodes)}
    rotations = {node: np.array([0.0, 0, 0, 1]) for node in translations}
    if frame is not None:
        for channel in document.animations[0].channels:
            keys = values(document, document.animations[0].samplers[channel.sampler].output)
            {"translation": translations, "rotation": rotations}[channel.target.path][channel.target.node] = keys[frame]
    out = np.tile(np.eye(4), (len(document.nodes), 1, 1))

    def visit(node: int, above: np.ndarray) -> None:
        out[node] = above @ matrix(translations[node], rotations[node])
        for child in document.nodes[node].children or []:
            visit(child, out[node])

    for node in document.scenes[0].nodes:
        visit(node, np.eye(4))
    return out[document.skins[0].joints]


def test_a_viewer_sees_the_same_joints(document: tuple[pygltflib.GLTF2, Motion]) -> None:
    found, motion = document
    assert tuple(found.nodes[node].name for node in found.skins[0].joints) == MIXAMO
    for frame in (0, 11, 24):
        np.testing.assert_allclose(world(found, frame)[:, :3, 3], motion.joints[frame], atol=1e-5)


def test_at_rest_the_skin_is_the_mesh_standing_on_the_floor(document: tuple[pygltflib.GLTF2, Motion]) -> None:
    found, _ = document
    attributes = found.meshes[0].primitives[0].attributes
    inverse = values(found, found.skins[0].inverseBindMatrices).reshape(-1, 4, 4).transpose(0, 2, 1)
    np.testing.assert_allclose(world(found, None) @ inverse, np.tile(np.eye(4), (22, 1, 1)), atol=1e-6)
    points = values(found, attributes.POSITION)
    assert abs(points[:, 1].min()) < 1e-6 and 1.6 < points[:, 1].max() < 2.0
    weights, joints = values(found, attributes.WEIGHTS_0), values(found, attributes.JOINTS_0)
    np.testing.assert_allclose(weights.sum(1), 1.0, atol=1e-6)
    assert joints.max() < 22 and not joints[weights == 0].any()


def test_metadata_can_be_read_by_a_script(tmp_path: Path) -> None:
    motion = example(loop=True)
    path = glb.save(motion, tmp_path / "a.glb")
    about = pygltflib.GLTF2().load(str(path)).animations[0].extras["anchorroute"]
    assert about["loop"] == {"start": 0, "end": 24, "start_seconds": 0.0, "end_seconds": 1.2}
    assert about["text"] == motion.text and about["anchors"][0]["position"] == [1.0, None, 2.0]
    step = motion.root[-1] - motion.root[0]
    assert about["travel"]["x"] == pytest.approx(step[0]) and about["travel"]["axis"] == "z"
    rests = np.zeros(25, dtype=bool)
    for start, end in about["contacts"]["right_foot"]:
        rests[start : end + 1] = True
    np.testing.assert_array_equal(rests, motion.contacts[:, 3])


def khronos(path: Path) -> dict:
    """The Khronos validator's report, if Node and its npm package are at hand."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("the Khronos validator needs node, which is not installed")
    run = subprocess.run([node, "-e", VALIDATOR, str(path)], capture_output=True, text=True, check=False)
    if "Cannot find module" in run.stderr:
        pytest.skip("npm install gltf-validator somewhere and point NODE_PATH at its node_modules")
    return json.loads(run.stdout)


@pytest.mark.parametrize("names", ["mixamo", "smpl"])
def test_khronos_validator_has_nothing_to_say(names: str, tmp_path: Path) -> None:
    motion = example(loop=True)
    report = khronos(glb.save(motion, tmp_path / "a.glb", names=names))  # type: ignore[arg-type]
    assert (report["numErrors"], report["numWarnings"], report["messages"]) == (0, 0, [])


def test_cut_files_and_strangers_are_refused(tmp_path: Path) -> None:
    path = glb.save(example(), tmp_path / "a.glb")
    raw = path.read_bytes()
    for content, words in ((raw[:-4], "cut off"), (b"hello", "does not begin"), (raw[:4], "damaged")):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=words):
            glb.load(path)
    text = b'{"asset":{"version":"2.0"}} '
    stranger = struct.pack("<4sII", b"glTF", 2, 20 + len(text)) + struct.pack("<I4s", len(text), b"JSON") + text
    path.write_bytes(stranger)
    with pytest.raises(FormatError, match="no motion of AnchorRoute's"):
        glb.load(path)


@pytest.mark.parametrize(("part", "words"), [("_joint", "other bones"), ("_animation", "joints read back differ")])
def test_a_write_that_reads_back_wrong_is_refused(
    part: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the writer must end as an error, not as a file: longer bones, or a motion moved by a centimetre."""
    honest = getattr(glb._Writer, part)

    def faulty(self: glb._Writer, *given: object) -> dict:
        if part == "_animation":
            self.motion = Motion(root=self.motion.root + 0.01, rotations=self.motion.rotations)
            return honest(self, *given)
        node = honest(self, *given)
        return {**node, "translation": [1.01 * value for value in node["translation"]]}

    monkeypatch.setattr(glb._Writer, part, faulty)
    with pytest.raises(FormatError, match=rf"a\.glb: .*{words}.*nothing was written"):
        glb.save(example(), tmp_path / "a.glb")
    assert not list(tmp_path.iterdir())


def test_standing_height_is_the_mannequins() -> None:
    assert mannequin.standing_height() == pytest.approx(-mannequin.build().vertices[:, 1].min())
