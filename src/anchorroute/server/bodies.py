"""The bodies of `/v1`: what a client may send, checked by type here and by meaning in `work`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from anchorroute.anchors import AnchorSet
from anchorroute.errors import RequestError
from anchorroute.motion.motion import Motion
from anchorroute.server.files import Format, Shape, read_bvh
from anchorroute.server.work import Generation, Refinement

Solver = Literal["gauss-newton", "adam", "none"]
Anchors = Annotated[
    dict[str, Any] | None,
    Field(
        description="an anchor file's content; `GET /v1/schema` has its schema",
        examples=[{"version": 1, "anchors": [{"at": 2, "joint": "pelvis", "position": [0.5, None, 2]}]}],
    ),
]
_FINITE = {"allow_inf_nan": False}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    anchors: Anchors = None
    solver: Solver = "gauss-newton"
    strict: Annotated[bool, Field(description="doubts about the anchors are errors")] = False
    format: Format = "glb"
    fps: Annotated[float | None, Field(ge=1, le=240, description="frame rate of the file; 20 if left out")] = None
    names: Literal["mixamo", "smpl"] = "mixamo"
    units: Annotated[Literal["cm", "m"], Field(description="of BVH files")] = "cm"
    in_place: bool = False

    @property
    def anchor_set(self) -> AnchorSet:
        """What `anchors` means."""
        return AnchorSet() if self.anchors is None else AnchorSet.from_json(self.anchors)

    @property
    def shape(self) -> Shape:
        """How the files are written."""
        return Shape(self.format, self.fps, self.names, self.units, self.in_place)


class GenerateBody(_Body):
    """Text and anchors in, a motion out: `anchorroute generate`."""

    text: Annotated[str, Field(examples=["a person walks forward and waves"])]
    seconds: Annotated[float | None, Field(description="2 to 9.8; up to the last anchor, else 6", **_FINITE)] = None
    frames: Annotated[int | None, Field(description="instead of seconds, 20 a second")] = None
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    samples: Annotated[int, Field(ge=1, le=64, description="how many, the best first")] = 1
    guidance: Annotated[float | None, Field(ge=0, le=20)] = None
    steps: Annotated[int | None, Field(ge=1, le=200, description="of the token sampler")] = None

    def work(self) -> Generation:
        """The job that this body asks for."""
        return Generation(
            self.text, self.anchor_set, self.seconds, self.frames, self.seed, self.samples, self.solver,
            self.guidance, self.steps, self.strict,
        )  # fmt: skip


class RefineBody(_Body):
    """A motion and anchors in, the motion meeting them out: `anchorroute refine`."""

    bvh: Annotated[str | None, Field(description="the text of a BVH file")] = None
    job: Annotated[str | None, Field(description="or the id of a finished job, whose motion is taken")] = None
    sample: Annotated[int, Field(ge=0, le=63, description="which of that job's samples")] = 0

    def work(self, motion: Motion) -> Refinement:
        """The job that this body asks for."""
        return Refinement(motion, self.anchor_set, self.solver, self.strict)

    def given(self) -> Motion:
        """The motion of the BVH text."""
        if (self.bvh is None) == (self.job is None):
            raise RequestError("give the motion once: either 'bvh' (a file's text) or 'job' (the id of a finished job)")
        return read_bvh(self.bvh or "")
