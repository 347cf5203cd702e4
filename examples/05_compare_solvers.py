"""Three solvers on the same tokens: none, the paper's (Adam, RS100) and Gauss-Newton; distance, naturalness, time."""

import sys

import anchorroute as ar


def main(model: str = "open", adam_steps: int = 100) -> dict[str, float]:
    pipe = ar.load(model)
    anchors = ar.AnchorSet((ar.Anchor(1.0, "pelvis", (0.1, None, 0.9)), ar.Anchor(2.5, "pelvis", (0.4, None, 2.2))))
    errors = {}
    for name, solver in (("none", ar.Off()), ("adam", ar.Adam(steps=adam_steps)), ("gauss-newton", ar.GaussNewton())):
        report = pipe("a person walks forward", anchors, seconds=3, seed=2, solver=solver).report
        errors[name] = report.mean_mm
        natural = f"jerk {report.jerk:4.0f} m/s3, sliding {100 * report.skating:4.1f} %"
        print(f"{name:>13}: {report.mean_mm:8.2f} mm, {natural}, {report.timings['solve']:.2f} s")
    return errors


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "open")
