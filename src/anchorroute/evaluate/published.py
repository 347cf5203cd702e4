"""What others published, to be printed beside our figures: the paper's tables and newer systems.

All of it was measured on the full HumanML3D test set with the official T2M evaluator (unless a row says otherwise).
Ours are measured on the open test split with the open evaluator. FID, R-precision, MM-Dist and Diversity of the two
therefore cannot be compared; errors in metres and skating can be, up to the difference of the test clips.
"""

from dataclasses import dataclass

from anchorroute.evaluate.results import Cell


@dataclass(frozen=True)
class Published:
    """A table as printed, with what it may be compared for."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str


PRIOR = Published(
    "The paper: text-to-motion prior, HumanML3D",
    ("method", "R top-3", "FID", "MM-Dist", "MModality"),
    (
        ("MotionDiffuse", 0.782, 0.630, 3.113, 1.553),
        ("T2M-GPT", 0.775, 0.116, 3.118, 1.856),
        ("MotionGPT", 0.778, 0.232, 3.096, 2.008),
        ("MoMask (baseline)", 0.797, 0.082, 3.050, 1.050),
        ("MMM", 0.794, 0.080, 2.998, 1.226),
        ("MotionAnything", 0.829, 0.028, 2.859, 2.705),
        ("MOGO", 0.801, 0.064, 2.951, 2.108),
        ("MotionGPT3 (generation only)", 0.826, 0.239, 2.797, 1.560),
        ("TMD prior", 0.817, 0.050, 2.891, 2.221),
    ),
    "Official evaluator (512 dimensions, unnormalised), full test set: no column is comparable with ours.",
)

KEYJOINT = Published(
    "The paper: six-point key-joint control (all6-r30), HumanML3D",
    ("method", "FID", "control error m", "R top-3", "diversity", "skating"),
    (
        ("Real", 0.002, 0.000, 0.797, 9.503, 0.000),
        ("CondMDI", 0.498, 0.507, 0.631, 9.013, 0.099),
        ("OmniControl", 0.689, 0.111, 0.689, 9.381, 0.091),
        ("TLControl", 4.637, 0.128, 0.473, 8.078, 0.058),
        ("MotionLCM", 1.013, 0.418, 0.676, 8.722, 0.141),
        ("SFControl (D5)", 0.338, 0.037, 0.655, 9.356, 0.065),
        ("SFControl (D10)", 0.254, 0.037, 0.673, 9.621, 0.063),
        ("SFControl", 0.224, 0.036, 0.673, 9.674, 0.061),
        ("TMD w/ solver", 0.089, 0.101, 0.800, 9.212, 0.121),
        ("AnchorRoute w/o solver", 0.083, 0.082, 0.808, 9.692, 0.075),
        ("AnchorRoute w/ solver", 0.115, 0.019, 0.792, 9.452, 0.060),
    ),
    'What "r30" means is not published; ours prints three readings, so parity with this table is never claimed. '
    "The paper's skating of real motion (0.000) is copied from elsewhere and wrong: real clips measure 0.05 to 0.08.",
)

FAMILIES = Published(
    "The paper: control families, mean over K = 2, 4, 8, 16, 32, HumanML3D",
    ("control", "variant", "FID", "control error m", "R top-3"),
    (
        ("root3d", "generator", 0.066, 0.110, 0.809),
        ("root3d", "RS100", 0.094, 0.092, 0.804),
        ("root3d", "RS200", 0.185, 0.040, 0.792),
        ("root3d", "RS500", 0.270, 0.013, 0.787),
        ("planar", "generator", 0.070, 0.135, 0.810),
        ("planar", "RS100", 0.076, 0.059, 0.808),
        ("planar", "RS200", 0.120, 0.020, 0.800),
        ("planar", "RS500", 0.153, 0.006, 0.798),
        ("body", "generator", 0.066, 0.110, 0.808),
        ("body", "RS100", 0.087, 0.053, 0.807),
        ("body", "RS200", 0.099, 0.024, 0.804),
        ("body", "RS500", 0.107, 0.011, 0.803),
    ),
    "Control errors are in metres on both sides, on different clips and with different generators.",
)

COMPONENTS = Published(
    "The paper: component progression, HumanML3D",
    ("variant", "trainable parameters", "FID", "control error m", "R top-3"),
    (
        ("cross-attention", "12M", 1.021, 5.22, 0.620),
        ("ControlNet", "30M", 0.061, 0.487, 0.772),
        ("AnchorKV", "1.2M", 0.081, 0.331, 0.799),
        ("+ dual context", "1.2M", 0.066, 0.202, 0.814),
        ("+ dual context & anchor loss", "1.2M", 0.073, 0.110, 0.808),
    ),
    "The last row's FID equals none of the paper's generator-only rows; we quote it as printed.",
)

REFINEMENT = Published(
    "The paper: refinement variants at RS200, HumanML3D",
    ("control", "variant", "FID", "control error m", "R top-3"),
    (
        ("root3d", "generator", 0.066, 0.110, 0.809),
        ("root3d", "plain", 0.231, 0.030, 0.781),
        ("root3d", "uniform activity", 0.194, 0.047, 0.789),
        ("root3d", "RouteSolver", 0.185, 0.040, 0.792),
        ("planar", "generator", 0.070, 0.135, 0.810),
        ("planar", "plain", 0.154, 0.016, 0.791),
        ("planar", "uniform activity", 0.128, 0.027, 0.797),
        ("planar", "RouteSolver", 0.120, 0.020, 0.800),
        ("body", "generator", 0.066, 0.110, 0.808),
        ("body", "plain", 0.151, 0.014, 0.789),
        ("body", "uniform activity", 0.104, 0.031, 0.801),
        ("body", "RouteSolver", 0.099, 0.024, 0.804),
    ),
    "Control errors are in metres on both sides, on different clips and with different generators.",
)

MECHANISM = Published(
    "The paper: mechanism at RS200, body points, HumanML3D",
    ("variant", "FID", "control error m", "R top-3"),
    (
        ("generator", 0.066, 0.110, 0.808),
        ("plain", 0.151, 0.014, 0.789),
        ("transport only", 0.108, 0.035, 0.797),
        ("slope only", 0.086, 0.083, 0.807),
        ("quadratic", 0.116, 0.020, 0.798),
        ("cubic", 0.122, 0.019, 0.797),
        ("uniform activity", 0.104, 0.031, 0.801),
        ("shuffled activity", 0.107, 0.032, 0.800),
        ("RouteSolver", 0.099, 0.024, 0.804),
    ),
    "Control errors are in metres on both sides, on different clips and with different generators.",
)

RUNTIME = Published(
    "The paper: runtime, GPU not named",
    ("setting", "seconds a sample", "samples a second", "cost"),
    (
        ("generator", 0.019, 52.7, 1.0),
        ("RS100", 0.053, 18.9, 2.8),
        ("RS200", 0.093, 10.8, 4.9),
        ("RS500", 0.195, 5.1, 10.3),
    ),
    "The paper's seconds come from a GPU and large batches; of ours, compare the cost column.",
)

NEWER = Published(
    "Newer systems, as they report themselves (read in November 2026)",
    ("system", "what it reports"),
    (
        (
            "MSFlow",
            "control error 0.0000, all-joint FID .061, R top-3 .818, skating .0578 (67-d evaluator), 68 M, 50 steps",
        ),
        ("ProjFlow", "control error 0.0000, FID .097, R top-3 .779, 1.84 s on an A100"),
        (
            "ProjFlow, on a skeleton (Motius board)",
            "1.3 to 8.0 cm after conversion; MaskControl 3.6 to 4.8, OmniControl 5.4 to "
            "13.2, CondMDI 1.4 to 2.8, KIMODO 0 to 1.8",
        ),
        ("MoTok", "one random joint FID .025 at 0.08 cm; pelvis .029 / 0.49 cm; 2.63 s on an H100"),
        ("ARDY", "FID .044, 4.15 cm, 33 ms on an RTX 4090"),
        ("MotionBricks", "2 ms, 15,000 frames/s"),
        ("SprongMotion-14M", "33 MB, a 10 s clip in 1.2 s on one M4 thread; no spatial control"),
        ("MaskControl", "FID .061, mean error 0.91 cm against TLControl's 1.08 and OmniControl's 3.38"),
    ),
    "Their own words on HumanML3D with the official evaluator; errors before export unless the row says otherwise. Our "
    "millimetres on the fixed-bone body are what a file holds.",
)

PUBLISHED = {
    "prior": PRIOR,
    "keyjoint": KEYJOINT,
    "families": FAMILIES,
    "components": COMPONENTS,
    "refinement": REFINEMENT,
    "mechanism": MECHANISM,
    "runtime": RUNTIME,
}


def paper_figures(table: str, *keys: str) -> tuple[Cell, ...]:
    """The paper's figures of one row, found by its leading text cells; all None where the paper has no such row."""
    published = PUBLISHED[table]
    width = len(published.columns) - len(keys)
    for row in published.rows:
        if row[: len(keys)] == keys:
            return row[len(keys) :]
    return (None,) * width
