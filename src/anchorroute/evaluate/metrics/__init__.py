"""Every figure the tables print, as pure functions.

Four groups, by what they need: ``distribution`` compares two sets of embeddings, ``retrieval`` compares texts with
motions, ``physics`` needs joints alone (no network, so its figures mean the same everywhere), ``control`` needs
joints and anchors. Whatever draws random numbers takes a generator.
"""

from anchorroute.evaluate.metrics.control import (
    control_distances,
    control_error,
    location_error_rate,
    trajectory_error_rate,
)
from anchorroute.evaluate.metrics.distribution import (
    diversity,
    fid,
    halves_fid,
    kid,
    multimodality,
    nearest_distance,
)
from anchorroute.evaluate.metrics.features import clip_descriptor, geometric_features, kinetic_features
from anchorroute.evaluate.metrics.physics import (
    bone_length_error,
    floating,
    floor_penetration,
    foot_skating,
    jerk,
    joint_acceleration,
    root_acceleration,
)
from anchorroute.evaluate.metrics.retrieval import caption_groups, mm_dist, r_precision, retrieval_hits

__all__ = [
    "bone_length_error",
    "caption_groups",
    "clip_descriptor",
    "control_distances",
    "control_error",
    "diversity",
    "fid",
    "floating",
    "floor_penetration",
    "foot_skating",
    "geometric_features",
    "halves_fid",
    "jerk",
    "joint_acceleration",
    "kid",
    "kinetic_features",
    "location_error_rate",
    "mm_dist",
    "multimodality",
    "nearest_distance",
    "r_precision",
    "retrieval_hits",
    "root_acceleration",
    "trajectory_error_rate",
]
