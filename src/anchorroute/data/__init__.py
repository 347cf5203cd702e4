"""Data sets: where motion and captions come from (`cmu`, `build`), how they are kept and read (`humanml3d`, `pack`),
and what a person would anchor in them (`anchor_sampling`).
"""

from anchorroute.data.anchor_sampling import sample_anchors
from anchorroute.data.humanml3d import Clip, Dataset, load

__all__ = ["Clip", "Dataset", "load", "sample_anchors"]
