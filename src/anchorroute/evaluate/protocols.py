"""The tables as data: which variants, control families and anchor counts each runs over.

A variant says how the generator is conditioned and what happens to its soft tokens afterwards; `tables.py` knows how to
print, `sweep.py` how to run. Variants with `steps` are the paper's Adam: one run of the longest yields the shorter
ones on its way.
"""

from dataclasses import dataclass, replace
from typing import Literal

from anchorroute.errors import RequestError

Method = Literal["generator", "adam", "gauss-newton", "warp", "projection", "projection on bones"]

FAMILY_NAMES = ("root3d", "planar", "body")
COUNTS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Variant:
    """One row of a table."""

    name: str
    method: Method = "generator"
    anchored: bool = True
    """Whether the generator sees the anchors; without, it is the prior."""
    steps: int = 0
    """Adam: the step at which the run is read."""
    settings: tuple[tuple[str, str], ...] = ()
    """Adam or Gauss-Newton: fields of the solver's config."""

    @property
    def heavy(self) -> bool:
        """Whether it takes hundreds of decoder passes a sample; heavy rows run on a fixed subset without a GPU."""
        return self.method == "adam"

    @property
    def run(self) -> tuple[object, ...]:
        """Variants with equal keys are snapshots of one run."""
        return (self.method, self.anchored, self.settings)


@dataclass(frozen=True)
class Setting:
    """One kind of anchors: a family with K of them, or the six-point protocol in one of its readings.

    The reading "mixed" gives every clip one K, in turn: the table's mean over K for a fifth of its cost.
    """

    family: str
    k: int = 0
    reading: str = ""
    amount: float = 0.0

    @property
    def name(self) -> str:
        """What the setting is called in files."""
        return f"{self.family}-{self.reading}-{self.amount:g}" if self.reading else f"{self.family}-k{self.k}"


@dataclass(frozen=True)
class Protocol:
    """A table: every variant in every setting; rows are means over the settings of a group."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()

    def mixed(self) -> "Protocol":
        """The same with one mixed setting in place of every family's list of K."""
        kept = [s for s in self.settings if s.reading or not s.k]
        families = dict.fromkeys(s.family for s in self.settings if s.k and not s.reading)
        return replace(self, settings=(*kept, *(Setting(family, reading="mixed") for family in families)))

    @property
    def groups(self) -> dict[str, tuple[Setting, ...]]:
        """Settings that one row averages over: all K of a family; a reading of the six points by itself."""
        out: dict[str, tuple[Setting, ...]] = {}
        for setting in self.settings:
            key = f"{setting.family} {setting.reading}".removesuffix("mixed").strip()
            out[key] = (*out.get(key, ()), setting)
        return out


GENERATOR = Variant("generator")
GAUSS_NEWTON = Variant("GN", "gauss-newton")
RS = {steps: Variant(f"RS{steps}", "adam", steps=steps) for steps in (100, 200, 500)}
PLAIN = Variant(
    "plain",
    "adam",
    steps=200,
    settings=(
        ("basis", "identity"),
        ("activity", "uniform"),
    ),
)
UNIFORM = Variant("uniform activity", "adam", steps=200, settings=(("activity", "uniform"),))
ROUTED = Variant("RouteSolver", "adam", steps=200)


def _all(families: tuple[str, ...], counts: tuple[int, ...] = COUNTS) -> tuple[Setting, ...]:
    return tuple(Setting(family, k) for family in families for k in counts)


PRIOR = Protocol(
    "prior",
    "Text-to-motion prior without anchors",
    (Setting("text"),),
    (Variant("TMD prior", anchored=False),),
)

KEYJOINT = Protocol(
    "keyjoint",
    "Six-point key-joint control (all6-r30)",
    (
        Setting("body", reading="ratio", amount=0.3),
        Setting("body", reading="stride", amount=30),
        Setting("body", reading="count", amount=30),
    ),
    (
        GENERATOR,
        Variant("prior + RS500", "adam", anchored=False, steps=500),
        RS[500],
        GAUSS_NEWTON,
    ),
    (
        "all6-r30 is not defined by its authors: ratio = 30 % of frames, stride = every 30th frame, count = 30 frames; "
        "all six joints (pelvis, feet, head, wrists) are set at each chosen frame.",
    ),
)

FAMILIES = Protocol(
    "families",
    "Control families and the refinement frontier",
    _all(FAMILY_NAMES),
    (GENERATOR, RS[100], RS[200], RS[500], GAUSS_NEWTON),
)

COMPONENTS = Protocol(
    "components", "Component progression of the controlled generator", _all(("root3d",)), (GENERATOR,)
)

REFINEMENT = Protocol(
    "refinement",
    "Refinement variants at RS200",
    _all(FAMILY_NAMES),
    (GENERATOR, PLAIN, UNIFORM, ROUTED, GAUSS_NEWTON),
)

MECHANISM = Protocol(
    "mechanism",
    "Mechanism of RouteSolver at RS200, body points",
    _all(("body",)),
    (
        GENERATOR,
        PLAIN,
        Variant("transport only", "adam", steps=200, settings=(("basis", "transport"),)),
        Variant("slope only", "adam", steps=200, settings=(("basis", "slope"),)),
        Variant("quadratic", "adam", steps=200, settings=(("basis", "quadratic"),)),
        Variant("cubic", "adam", steps=200, settings=(("basis", "cubic"),)),
        UNIFORM,
        Variant("shuffled activity", "adam", steps=200, settings=(("activity", "shuffled"),)),
        ROUTED,
    ),
)

RUNTIME = Protocol(
    "runtime",
    "Runtime a sample",
    (Setting("root3d", 8),),
    (GENERATOR, RS[100], RS[200], RS[500], GAUSS_NEWTON),
)

BASELINES = Protocol(
    "baselines",
    "Simple ways to meet anchors, and the prior with a solver but without anchors as condition",
    _all(FAMILY_NAMES),
    (
        Variant("prior (text alone)", anchored=False),
        Variant("prior + trajectory warp", "warp", anchored=False),
        Variant("prior + joint-space projection", "projection", anchored=False),
        Variant("the same, put on fixed bones", "projection on bones", anchored=False),
        Variant("prior + GN", "gauss-newton", anchored=False),
        GENERATOR,
        GAUSS_NEWTON,
    ),
)

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (PRIOR, KEYJOINT, FAMILIES, COMPONENTS, REFINEMENT, MECHANISM, RUNTIME, BASELINES)
}


def protocol(name: str) -> Protocol:
    """A table's protocol by its name."""
    if name not in PROTOCOLS:
        raise RequestError(f'No table "{name}"; there are {", ".join(PROTOCOLS)}.')
    return PROTOCOLS[name]
