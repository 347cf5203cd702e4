"""What holds of a document's anchors: how far the shown motion is from each, and what a body could hardly do."""

from anchorroute.feasibility import Finding, check
from anchorroute.report import AnchorLine
from anchorroute.studio.document import FPS, Document


def reached(document: Document) -> dict[int, AnchorLine]:
    """The report's line for each mark that the shown sample was made for."""
    take = document.take
    if take is None:
        return {}
    lines = {(line.joint, round(line.at, 4), line.target): line for line in take.sample.report.anchors}
    found = {}
    for mark in document.marks:
        anchor = mark.anchor()
        line = lines.get((anchor.joint, round(anchor.at, 4), anchor.position))
        if line is not None:
            found[mark.id] = line
    return found


def findings(document: Document) -> list[Finding]:
    """What looks infeasible; frames come in fours, so the clip can be a little longer than asked for."""
    return check(document.anchor_set(), document.last_time + 1 / FPS) if document.marks else []
