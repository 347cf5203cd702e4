"""Data sets: where motion and captions come from (`cmu`, `build`), how they are kept and read (`humanml3d`, `pack`)."""

from anchorroute.data.humanml3d import Clip, Dataset, load

__all__ = ["Clip", "Dataset", "load"]
