"""A wish that anchors cannot say: the hands hold a tray. One more row of the same solver, no change elsewhere.

The networks and the solver are reached through `pipe.models` and `pipe.decoder`; `refine` takes further rows.
"""

import sys

import torch

import anchorroute as ar
from anchorroute.motion.skeleton import joint_index
from anchorroute.routesolver import offset_term, refine

FRAMES = 60
LEFT, RIGHT = joint_index("left_wrist"), joint_index("right_wrist")


def main(model: str = "open") -> tuple[float, float]:
    pipe = ar.load(model)
    sample = pipe("a person walks forward", frames=FRAMES, seed=3).samples[0]
    lengths, nothing = torch.tensor([FRAMES]), ar.AnchorSet().observed(FRAMES)
    u, decode = sample.state.start, pipe.decoder(torch.tensor([FRAMES]))
    before = decode(u)[0]

    def apart(joints: torch.Tensor) -> float:
        return float((joints[20:40, LEFT] - joints[20:40, RIGHT]).norm(dim=-1).sub(0.45).abs().mean())

    frames = torch.arange(20.0, 40.0, 4.0)[None]
    left, right = torch.full(frames.shape, LEFT), torch.full(frames.shape, RIGHT)
    tray = torch.tensor([0.45, 0.0, 0.0]).expand(*frames.shape, 3)  # left of the body, up, forward: 45 cm to the left
    row = offset_term(frames, left, right, tray)
    solved = refine(u, decode, [nothing], lengths, ar.GaussNewton(), covariance=pipe.models.covariance, extra=[row])
    print(f"hands off the tray by {100 * apart(before):.1f} cm before, {100 * apart(solved.joints[0]):.1f} cm after")
    return apart(before), apart(solved.joints[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
