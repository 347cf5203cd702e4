"""MMCP: what its requests mean here, what is refused by what name, and what its own SDK makes of the answer."""

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("motionmcp")

from motionmcp.client import generate as sdk_generate
from motionmcp.client import get_capabilities, parse_gltf_samples, pick_model
from motionmcp.client.http import MmcpError
from motionmcp.errors import ProtocolError
from motionmcp.schemas import GenerateRequest, Skeleton

import anchorroute as ar
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import JOINTS, PARENTS, REST_OFFSETS
from anchorroute.server.app import Server
from anchorroute.server.limits import Limits
from anchorroute.server.mmcp import CONSTRAINTS, skeleton, specification, translate

from motions import walk
from serving import StandIn, live


def request(*constraints: dict[str, Any], frames: int = 60, **more: Any) -> GenerateRequest:
    body = {
        "protocol_version": "1.4", "model": "m", "skeleton": skeleton().model_dump(), "constraints": list(constraints),
        "segments": [{"type": "text", "prompt": "a person walks", "duration_frames": frames}],
    }  # fmt: skip
    return GenerateRequest.model_validate({**body, **more})


def test_the_skeleton_is_the_body() -> None:
    joints = skeleton().joints
    assert tuple(joint.name for joint in joints) == JOINTS
    assert [-1 if joint.parent is None else JOINTS.index(joint.parent) for joint in joints] == list(PARENTS)
    assert np.allclose([joint.rest_translation for joint in joints[1:]], REST_OFFSETS[1:])


def test_limits_are_those_of_the_model() -> None:
    spec = specification("m", Limits(samples=4))
    assert (spec.fps, spec.limits.max_num_samples, spec.limits.max_duration_seconds) == (20, 4, 9.8)
    assert spec.supported_constraints == CONSTRAINTS
    assert spec.supports_loop
    assert not spec.supports_retargeting


def test_constraints_are_anchors_at_the_clients_rate() -> None:
    path = {"type": "root_path", "frames": [0, 90], "positions_xz": [[0, 0], [1, 2]], "heading_radians": [0, 0.5]}
    hand = {"type": "effector_target", "joint": "left_wrist", "frames": [45], "positions": [[0.3, 1.2, 0.4]]}
    asked = translate(request(path, hand, frames=91, timing={"fps": 30}))
    first, last, wrist = asked.work.anchors.anchors
    assert (first.position, last.position, last.heading) == ((0, None, 0), (1, None, 2), 0.5)
    assert (last.at, wrist.at, wrist.joint, wrist.position) == (3.0, 1.5, "left_wrist", (0.3, 1.2, 0.4))
    assert asked.work.frames == 61  # frame 90 at 30 fps is frame 60 at 20


def test_a_pose_is_the_points_that_its_rotations_place() -> None:
    motion = Motion.from_joints(walk(40).numpy())
    turns = {name: motion.rotations[7, joint, [1, 2, 3, 0]].tolist() for joint, name in enumerate(JOINTS)}
    pose = {
        "type": "pose_keyframe", "frame": 7, "joint_rotations": turns, "root_position": motion.root[7].tolist(),
    }  # fmt: skip
    asked = translate(request(pose))
    assert len(asked.work.anchors) == 22
    for anchor in asked.work.anchors.anchors:
        assert np.allclose(anchor.position, motion.joints[7, JOINTS.index(anchor.joint)], atol=1e-5)
    assert [note["code"] for note in asked.notes] == ["pose_end_rotations"]
    del turns["left_knee"], turns["left_wrist"], turns["right_wrist"], turns["head"]
    partial = {anchor.joint for anchor in translate(request(pose)).work.anchors.anchors}
    assert set(JOINTS) - partial == {"left_ankle", "left_foot"}  # what lies beyond the open knee
    at_rest = translate(request({**pose, "fill_mode": "rest"})).work.anchors
    assert len(at_rest) == 22


def test_level_ground_lowers_the_targets_and_raises_the_motion() -> None:
    ground = {"type": "ground_height", "points": [[0, 0, 2.0], [1, 3, 2.005]]}
    hand = {"type": "effector_target", "joint": "left_wrist", "frames": [10], "positions": [[0.3, 3.2, 0.4]]}
    asked = translate(request(ground, hand, frames=40))
    assert asked.work.anchors.anchors[0].position[1] == pytest.approx(3.2 - 2.0025)
    made = StandIn()("a person walks", ar.AnchorSet(), seed=0, samples=1, on_step=lambda _: None)
    answer = asked.answer(made)
    assert np.allclose(answer.root_translations[0, :, 1], made.motion.root[:, 1] + 2.0025, atol=1e-5)
    assert answer.rotations.shape == (1, 40, 22, 4)
    assert np.allclose(answer.rotations[0, ..., 3], made.motion.rotations[..., 0], atol=1e-6)


def test_options() -> None:
    options = {"seed": 7, "num_samples": 2, "post_processing": False, "guidance": {"type": "regular", "weight": [2.0]}}
    work = translate(request(options=options)).work
    assert (work.seed, work.samples, work.solver, work.guidance, work.steps) == (7, 2, "none", 2.0, None)
    assert translate(request(options={"diffusion_steps": 10})).work.steps == 10
    segment = {"type": "text", "prompt": "a walk", "duration_frames": 40, "seed": 3}
    assert translate(request(segments=[segment], options={"seed": 7})).work.seed == 3
    assert translate(request()).work.seed != translate(request()).work.seed  # no seed: another draw each time
    assert translate(request(options={"loop": True, "seed": 1})).work.anchors.loop


BIG = {**skeleton().model_dump()}
BIG["joints"] = [{**joint, "rest_translation": [2 * x for x in joint["rest_translation"]]} for joint in BIG["joints"]]
POSE = {"type": "pose_keyframe", "frame": 3, "joint_rotations": {"pelvis": [0, 0, 0, 1]}}
FLAT = {**POSE, "root_position": [0, 1, 0], "joint_rotations": {"head": [0, 0, 0, 0]}}
TURNED = {
    "type": "effector_target", "joint": "head", "frames": [3], "positions": [[0, 1, 0]], "rotations": [[0, 0, 0, 1]],
}  # fmt: skip
UNEVEN = {"type": "ground_height", "points": [[0, 0, 0], [0, 1, 0.5]]}
TEXT = {"type": "text", "prompt": "a walk", "duration_frames": 40}


@pytest.mark.parametrize(
    ("constraints", "more", "code", "match"),
    [
        ([], {"skeleton": BIG}, "retargeting_unsupported", "canonical skeleton"),
        ([], {"segments": [TEXT, TEXT]}, "invalid_request", "2 segments"),
        ([POSE], {"segments": [], "duration_frames": 40}, "invalid_request", "no segment"),
        ([], {"segments": [{**TEXT, "type": "unconditioned", "prompt": 0}]}, None, "prompt"),
        ([], {"segments": [{"type": "unconditioned", "duration_frames": 40}]}, "unsupported_segment", "unconditioned"),
        ([], {"segments": [{**TEXT, "language": "de"}]}, "invalid_options", "'de'"),
        ([], {"segments": [{**TEXT, "duration_frames": 39}]}, "invalid_options", "40 to 196"),
        ([], {"frames": 587, "timing": {"fps": 60}}, "invalid_options", "120 to 586"),
        ([], {"timing": {"fps": 1e9}}, "invalid_options", "1 to 240"),
        ([], {"options": {"loop": True}, "frames": 42}, "invalid_options", "multiple of 4"),
        ([], {"options": {"guidance": {"type": "separated", "weight": [1, 2]}}}, "invalid_options", "separated"),
        ([], {"options": {"guidance": {"type": "regular", "weight": [math.nan]}}}, "invalid_options", "0 to 20"),
        ([POSE], {}, "unsupported_constraint", "without root_position"),
        ([FLAT], {}, "invalid_request", "head"),
        ([TURNED], {}, "unsupported_constraint", r"effector_target\.rotations"),
        ([UNEVEN], {}, "unsupported_constraint", "level"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(
    constraints: list[Any], more: dict[str, Any], code: str | None, match: str
) -> None:
    expected: type[Exception] = ValueError if code is None else ProtocolError
    with pytest.raises(expected, match=match) as caught:
        translate(request(*constraints, **more))
    assert code is None or (isinstance(caught.value, ProtocolError) and caught.value.code == code)


def _world(sample: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Forward kinematics of what the SDK's client parsed, by nobody's code but this loop."""
    names = list(sample["joint_names"])
    order = [names.index(name) for name in JOINTS]
    turns, steps = sample["local_rot_mats"][:, order], sample["local_translations"][:, order]
    places, worlds = np.zeros_like(steps), np.zeros_like(turns)
    for joint, parent in enumerate(PARENTS):
        above = worlds[:, parent] if parent >= 0 else np.broadcast_to(np.eye(3), turns[:, 0].shape)
        worlds[:, joint] = above @ turns[:, joint]
        places[:, joint] = (places[:, parent] if parent >= 0 else 0) + np.einsum("fij,fj->fi", above, steps[:, joint])
    return places


def test_the_sdks_client_gets_what_it_asked_for() -> None:
    pipe = ar.untrained()
    with live(Server(pipe)) as url:
        capabilities = get_capabilities(url, use_cache=False)
        model = pick_model(capabilities)
        body = {
            "protocol_version": capabilities["protocol_version"], "model": model["id"],
            "skeleton": Skeleton.model_validate(model["canonical_skeleton"]).model_dump(mode="json"),
            "segments": [{"type": "text", "prompt": "a person walks", "duration_frames": 40}],
            "constraints": [
                {"type": "effector_target", "joint": "pelvis", "frames": [24], "positions": [[0.2, 0.95, 0.4]]}
            ],
            "options": {"seed": 3},
        }  # fmt: skip
        (sample,) = parse_gltf_samples(sdk_generate(url, body))
        assert (sample["num_frames"], sample["fps"], sample["num_joints"]) == (40, 20.0, 22)
        anchors = ar.AnchorSet((ar.Anchor(1.2, "pelvis", (0.2, 0.95, 0.4)),))
        result = pipe("a person walks", anchors, frames=40, seed=3)
        assert np.abs(_world(sample) - result.motion.joints).max() < 1e-4
        missed = 1000 * np.linalg.norm(_world(sample)[24, 0] - [0.2, 0.95, 0.4])
        assert missed == pytest.approx(result.report.worst_mm, abs=0.1)
        assert sample["trajectory"] is not None
        assert sample["foot_contacts"].shape == (40, 22)
        with pytest.raises(MmcpError) as caught:
            sdk_generate(url, {**body, "protocol_version": "9.0"})
        assert caught.value.code == "version_unsupported"
        with pytest.raises(MmcpError) as unknown:
            sdk_generate(url, {**body, "model": "other"})
        assert unknown.value.code == "unknown_model"
