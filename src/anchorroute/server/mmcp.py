"""MMCP: what its clients say in the words of this package, and the answer in theirs.

The SDK validates the wire format, checks what is general (versions, joint names, frames) and encodes glTF; this
module says what the model can do and translates. What has no counterpart is refused by name:

- an anchor is a point at a time, so `effector_target.rotations` cannot be asked for;
- a `pose_keyframe` becomes points, so it needs a `root_position`, and says nothing of joints below one whose rotation
  it leaves open; a joint's roll about its own last bone has no effect (a note says so);
- the ground is level, at any height;
- one segment a request, 2 to 9.8 s.

Frames are the client's, at its rate; the motion is made at 20 fps and resampled. An anchor between two frames at
20 fps is met there, which a client that samples at its own frames sees exactly.
"""

import asyncio
import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from motionmcp.backbone import Backbone, Limits, ModelSpec, MotionResult
from motionmcp.errors import (
    STATUS_FOR,
    ProtocolError,
    retargeting_unsupported,
    unsupported_constraint,
    unsupported_segment,
)
from motionmcp.schemas import (
    EffectorTargetConstraint,
    GenerateRequest,
    GroundHeightConstraint,
    Joint,
    PoseKeyframeConstraint,
    RootPathConstraint,
    Skeleton,
)

from anchorroute.anchors import Anchor, AnchorSet
from anchorroute.errors import AnchorRouteError
from anchorroute.motion import mannequin
from anchorroute.motion.body import forward_kinematics
from anchorroute.motion.motion import Motion
from anchorroute.motion.skeleton import CONTACT_JOINTS, FPS, JOINTS, PARENTS, REST_OFFSETS, joint_index
from anchorroute.request import LONGEST, LONGEST_TEXT, SHORTEST, TOKEN
from anchorroute.result import Result
from anchorroute.server import limits as own
from anchorroute.server.problems import Problem, problem
from anchorroute.server.queue import Queue
from anchorroute.server.work import Generation

CONSTRAINTS = ["root_path", "effector_target", "pose_keyframe", "ground_height"]
LEVEL = 0.01
_SAME_BONE = 1e-3
_SAME_TURN = 1e-3


def skeleton() -> Skeleton:
    """This package's body in MMCP's words: a T-pose with identity rotations, standing on the floor."""
    offsets = [(0.0, mannequin.standing_height(), 0.0), *map(tuple, REST_OFFSETS[1:].tolist())]
    joints = [
        Joint(name=name, parent=None if parent < 0 else JOINTS[parent], rest_translation=at, rest_rotation=(0, 0, 0, 1))
        for name, parent, at in zip(JOINTS, PARENTS, offsets, strict=True)
    ]
    return Skeleton(joints=joints)


def specification(model: str, limits: own.Limits) -> ModelSpec:
    """What `GET /capabilities` says of the model."""
    return ModelSpec(
        id=model,
        fps=FPS,
        canonical_skeleton=skeleton(),
        supports_retargeting=False,
        supports_segment_seed=True,
        supports_loop=True,
        supported_constraints=CONSTRAINTS,
        supported_segments=["text"],
        supported_guidance_types=["nocfg", "regular"],
        predicted_contact_joints=[JOINTS[joint] for joint in CONTACT_JOINTS],
        native_clip_seconds=LONGEST / FPS,
        recommended_max_duration_seconds=LONGEST / FPS,
        limits=Limits(
            max_duration_seconds=LONGEST / FPS,
            max_num_samples=min(limits.samples, 16),
            max_constraints_per_request=limits.anchors,
            max_prompt_length=LONGEST_TEXT,
            max_request_bytes=limits.request_bytes,
            max_batch_size=limits.batch,
        ),
    )


@dataclass(frozen=True)
class Asked:
    """A request, translated."""

    work: Generation
    frames: int
    fps: float
    ground: float
    notes: tuple[dict[str, str], ...]

    def answer(self, result: Result) -> MotionResult:
        """The samples at the client's rate, on the client's ground."""
        motions = [self._shaped(sample.motion) for sample in result.samples]
        contacts = np.stack([motion.contacts for motion in motions])
        return MotionResult(
            rotations=np.stack([motion.rotations for motion in motions])[..., [1, 2, 3, 0]],
            root_translations=np.stack([motion.root for motion in motions]),
            foot_contacts={JOINTS[joint]: contacts[..., k] for k, joint in enumerate(CONTACT_JOINTS)},
            notes=[*self.notes, *_warnings(result)],
        )

    def _shaped(self, motion: Motion) -> Motion:
        at_rate = motion.resample(self.fps)
        raised = replace(at_rate, root=at_rate.root + np.array([0.0, self.ground, 0.0], dtype=np.float32))
        return raised.trim(0.0, self.frames / self.fps)


def _warnings(result: Result) -> list[dict[str, str]]:
    told = [{"code": "anchors", "severity": "warning", "message": text} for text in result.report.warnings]
    missed = [line for line in result.report.anchors if not line.met]
    if missed:
        worst = max(missed, key=lambda line: line.error_mm)
        text = f"{len(missed)} of {len(result.report.anchors)} targets are missed; worst: {worst.joint} at "
        message = f"{text}{worst.at:.2f} s by {worst.error_mm:.1f} mm"
        told.append({"code": "targets_missed", "severity": "warning", "message": message})
    return told


def translate(request: GenerateRequest) -> Asked:
    """The request as work; what this package cannot do is refused by name."""
    _check_skeleton(request.skeleton)
    prompt, own_seed = _prompt(request)
    fps, frames = request.fps(FPS), request.total_frames
    loop = request.options is not None and request.options.loop
    made = _frames_made(frames, fps, loop=loop)
    ground = _ground(request.constraints)
    notes: list[dict[str, str]] = []
    anchors: list[Anchor] = []
    for constraint in request.constraints:
        anchors += _anchors(constraint, fps, ground, notes)
    options = _options(request)
    seed = own_seed if own_seed is not None else options.pop("seed")
    options.pop("seed", None)
    work = Generation(
        prompt, AnchorSet(tuple(anchors), loop=loop), frames=made,
        seed=secrets.randbelow(2**31) if seed is None else seed, **options,
    )  # fmt: skip
    return Asked(work, frames, fps, ground, tuple(notes))


def _check_skeleton(sent: Skeleton) -> None:
    """Positions mean something on this body's bones only."""
    same_names = tuple(joint.name for joint in sent.joints) == JOINTS
    parents = tuple(-1 if joint.parent is None else JOINTS.index(joint.parent) for joint in sent.joints if same_names)
    if not same_names or parents != PARENTS:
        raise retargeting_unsupported()
    offsets = np.array([joint.rest_translation for joint in sent.joints[1:]])
    turns = np.array([joint.rest_rotation for joint in sent.joints])
    straight = np.abs(np.abs(turns[:, 3]) - 1.0).max() < _SAME_TURN and np.abs(turns[:, :3]).max() < _SAME_TURN
    if not straight or not np.allclose(offsets, REST_OFFSETS[1:], atol=_SAME_BONE):
        raise retargeting_unsupported()


def _prompt(request: GenerateRequest) -> tuple[str, int | None]:
    if len(request.segments) != 1:
        given = f"{len(request.segments)} segments" if request.segments else "no segment"
        message = f"this model makes one clip from one text segment; the request has {given}"
        raise ProtocolError("invalid_request", message, {"segments": len(request.segments)})
    (segment,) = request.segments
    if segment.type != "text":
        raise unsupported_segment(segment.type, ["text"])
    if segment.language not in {None, "en"} and not str(segment.language).lower().startswith("en-"):
        raise ProtocolError("invalid_options", f"prompts are read as English, not as {segment.language!r}")
    return segment.prompt, segment.seed


def _frames_made(frames: int, fps: float, *, loop: bool) -> int:
    """Frames at 20 fps that hold the client's last frame; a loop must close on exactly the last one."""
    if not math.isfinite(fps) or fps < 1 or fps > 240:
        raise ProtocolError("invalid_options", f"timing.fps is {fps:g}; 1 to 240 can be written")
    fewest, most = math.ceil(SHORTEST / FPS * fps), math.floor((LONGEST - 1) / FPS * fps + 1e-6) + 1
    if not fewest <= frames <= most:
        raise ProtocolError(
            "invalid_options", f"{frames} frames are asked for; at {fps:g} fps this model makes {fewest} to {most}"
        )
    if loop and (fps != FPS or frames % TOKEN):
        raise ProtocolError(
            "invalid_options",
            f"a loop's last frame is its first: ask for a multiple of {TOKEN} frames at {FPS} fps, not {frames} at "
            f"{fps:g}",
        )
    needed = math.ceil(round((frames - 1) / fps * FPS, 6)) + 1
    return min(max(needed, SHORTEST), LONGEST)


def _options(request: GenerateRequest) -> dict[str, Any]:
    """Options in the pipeline's words. The protocol's default of 100 diffusion steps is no wish of the client's."""
    options = request.options
    if options is None:
        return {"seed": None}
    chosen: dict[str, Any] = {"seed": options.seed, "samples": options.num_samples}
    if not options.post_processing:
        chosen["solver"] = "none"
    if "diffusion_steps" in options.model_fields_set:
        chosen["steps"] = options.diffusion_steps
    guidance = options.guidance
    if guidance is not None and guidance.type == "separated":
        raise ProtocolError(
            "invalid_options",
            "guidance of type 'separated' is not supported: anchors are met by the solver, not by guidance",
            {"supported_guidance_types": ["nocfg", "regular"]},
        )
    if guidance is not None:
        weight = guidance.weight[0] if guidance.type == "regular" else 1.0
        if not 0 <= weight <= 20:
            raise ProtocolError("invalid_options", f"guidance.weight is {weight}; give 0 to 20")
        chosen["guidance"] = weight
    return chosen


def _ground(constraints: Iterable[object]) -> float:
    heights = [y for given in constraints if isinstance(given, GroundHeightConstraint) for _, _, y in given.points]
    if not heights:
        return 0.0
    low, high = min(heights), max(heights)
    if high - low > LEVEL:
        raise unsupported_constraint(
            f"ground_height from {low:g} to {high:g} m (the ground must be level to {LEVEL:g} m)", CONSTRAINTS
        )
    return (low + high) / 2


def _anchors(constraint: object, fps: float, ground: float, notes: list[dict[str, str]]) -> list[Anchor]:
    if isinstance(constraint, RootPathConstraint):
        headings = constraint.heading_radians or [None] * len(constraint.frames)
        return [
            Anchor(frame / fps, "pelvis", (x, None, z), heading)
            for frame, (x, z), heading in zip(constraint.frames, constraint.positions_xz, headings)
        ]
    if isinstance(constraint, EffectorTargetConstraint):
        if constraint.rotations is not None:
            raise unsupported_constraint("effector_target.rotations (positions alone can be asked for)", CONSTRAINTS)
        return [
            Anchor(frame / fps, constraint.joint, (x, y - ground, z))
            for frame, (x, y, z) in zip(constraint.frames, constraint.positions)
        ]
    if isinstance(constraint, PoseKeyframeConstraint):
        return _pose(constraint, fps, ground, notes)
    return []


def _pose(pose: PoseKeyframeConstraint, fps: float, ground: float, notes: list[dict[str, str]]) -> list[Anchor]:
    """The points that a pose fixes: every joint whose way from the root is turned as the pose says."""
    if pose.root_position is None:
        raise unsupported_constraint(
            "pose_keyframe without root_position (a pose is met as points in the world)", CONSTRAINTS
        )
    turns = torch.zeros(1, len(JOINTS), 4, dtype=torch.float64)
    turns[..., 0] = 1.0
    named = {joint_index(name) for name in pose.joint_rotations}
    given = set(range(len(JOINTS))) if pose.fill_mode == "rest" else named
    for name, (x, y, z, w) in pose.joint_rotations.items():
        norm = math.sqrt(x * x + y * y + z * z + w * w)
        if not (math.isfinite(norm) and norm > 1e-6):
            raise ProtocolError("invalid_request", f"the rotation of {name!r} in frame {pose.frame} is no quaternion")
        turns[0, joint_index(name)] = torch.tensor([w, x, y, z], dtype=torch.float64) / norm
    x, y, z = pose.root_position
    points = forward_kinematics(torch.tensor([[x, y - ground, z]], dtype=torch.float64), turns)[0]
    placed = [joint for joint in range(len(JOINTS)) if all(above in given for above in _above(joint))]
    if any(PARENTS.count(joint) == 0 for joint in named):
        message = "rotations of hands, feet and head turn no point of this body and are not followed"
        notes.append({"code": "pose_end_rotations", "severity": "info", "message": message})
    return [Anchor(pose.frame / fps, JOINTS[joint], _position(points[joint].tolist())) for joint in placed]


def _above(joint: int) -> Iterable[int]:
    while PARENTS[joint] >= 0:
        joint = PARENTS[joint]
        yield joint


def _position(point: list[float]) -> tuple[float, float, float]:
    x, y, z = point
    return (x, y, z)


class QueuedModel(Backbone):  # type: ignore[misc]  # the SDK has no types
    """The queue as the SDK wants a model to look."""

    def __init__(self, queue: Queue, model: str) -> None:
        self.queue, self.model_id = queue, model
        self._specification = specification(model, queue.limits)

    def capabilities(self) -> ModelSpec:
        """The same for every request."""
        return self._specification

    async def generate(self, request: GenerateRequest) -> MotionResult:
        """Queue the request and wait."""
        try:
            asked = translate(request)
            job = await self.queue.finished(self.queue.submit(asked.work, asked.answer, kept=False))
        except (AnchorRouteError, Problem) as error:
            told = problem(error)
            code = told.code if told.code in STATUS_FOR else "invalid_request"
            raise ProtocolError(code, told.message, told.details) from error
        answer: MotionResult = job.answer
        return answer

    async def generate_batch(self, requests: list[GenerateRequest]) -> list[MotionResult | BaseException]:
        """All at once: the queue puts them together."""
        return list(await asyncio.gather(*(self.generate(one) for one in requests), return_exceptions=True))
