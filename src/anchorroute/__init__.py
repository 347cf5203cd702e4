"""AnchorRoute: text and a few sparse anchors in, a full-body human motion out.

The public names stand below in the order of the flow. They are loaded on first use (PEP 562), so
`import anchorroute` costs milliseconds and imports no torch; `dir(anchorroute)` lists them all the same.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from anchorroute.anchors import Anchor as Anchor
    from anchorroute.anchors import AnchorSet as AnchorSet
    from anchorroute.errors import AnchorError as AnchorError
    from anchorroute.errors import AnchorRouteError as AnchorRouteError
    from anchorroute.errors import Cancelled as Cancelled
    from anchorroute.errors import CheckpointError as CheckpointError
    from anchorroute.errors import DataError as DataError
    from anchorroute.errors import FormatError as FormatError
    from anchorroute.errors import RequestError as RequestError
    from anchorroute.feasibility import Finding as Finding
    from anchorroute.feasibility import check as check
    from anchorroute.motion.canonical import Placement as Placement
    from anchorroute.motion.motion import Motion as Motion
    from anchorroute.pipeline import AnchorRoute as AnchorRoute
    from anchorroute.pipeline import Result as Result
    from anchorroute.pipeline import Step as Step
    from anchorroute.pipeline import load as load
    from anchorroute.pipeline import untrained as untrained
    from anchorroute.report import AnchorLine as AnchorLine
    from anchorroute.report import Report as Report
    from anchorroute.report import measure as measure
    from anchorroute.routesolver import Adam as Adam
    from anchorroute.routesolver import GaussNewton as GaussNewton
    from anchorroute.routesolver import Off as Off

_HOME = {
    "Anchor": "anchors",
    "AnchorSet": "anchors",
    "Placement": "motion.canonical",
    "check": "feasibility",
    "Finding": "feasibility",
    "load": "pipeline",
    "untrained": "pipeline",
    "AnchorRoute": "pipeline",
    "Step": "pipeline",
    "GaussNewton": "routesolver",
    "Adam": "routesolver",
    "Off": "routesolver",
    "Result": "pipeline",
    "Motion": "motion.motion",
    "Report": "report",
    "AnchorLine": "report",
    "measure": "report",
    "AnchorRouteError": "errors",
    "AnchorError": "errors",
    "FormatError": "errors",
    "DataError": "errors",
    "CheckpointError": "errors",
    "RequestError": "errors",
    "Cancelled": "errors",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604 - built from the one table, so that it cannot drift from it


def __getattr__(name: str) -> object:
    """Import a public name's module when the name is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"anchorroute has no {name!r}; it offers {', '.join(_HOME)}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, loaded or not."""
    return sorted({*globals(), *_HOME})
