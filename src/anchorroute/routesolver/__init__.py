"""RouteSolver, S_res -> x+: the refinement of soft tokens until the decoded motion meets its anchors.

`basis` holds the interval basis, activities and the ridge projection; `adam` is the paper's solver, `gauss_newton` the
product's; `rows` what they drive to zero; `prior` which corrections are cheap.
"""

from anchorroute.routesolver.adam import Adam
from anchorroute.routesolver.gauss_newton import GaussNewton
from anchorroute.routesolver.prior import latent_covariance
from anchorroute.routesolver.result import Decode, Refined, Solution, Step, Unmet
from anchorroute.routesolver.rows import Rows, Term, bend_term, offset_term, plant_term, stances
from anchorroute.routesolver.solving import Off, carried, refine

__all__ = [
    "Adam", "Decode", "GaussNewton", "Off", "Refined", "Rows", "Solution", "Step", "Term", "Unmet",
    "bend_term", "carried", "latent_covariance", "offset_term", "plant_term", "refine", "stances",
]  # fmt: skip
