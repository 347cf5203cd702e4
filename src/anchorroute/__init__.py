"""AnchorRoute: text and a few sparse anchors in, a full-body human motion out."""

__version__ = "0.1.0"
