"""The one exception tree. Every message says what was given, what the rule is and what to do instead."""


class AnchorRouteError(Exception):
    """Anything this package refuses to do; the command line prints it as one line and exits with 2."""


class AnchorError(AnchorRouteError):
    """An anchor, or a set of anchors, that cannot mean anything."""


class FormatError(AnchorRouteError):
    """A file that cannot be read, or cannot be written so that it reads back."""


class DataError(AnchorRouteError):
    """A data set, clip or caption that breaks the layout's rules."""


class CheckpointError(AnchorRouteError):
    """Weights that are missing, damaged, or made for something else."""


class RequestError(AnchorRouteError):
    """A request that the model cannot serve: too long, empty, or of an unknown kind."""


class Cancelled(AnchorRouteError):  # noqa: N818 - a person's decision, not an error
    """The caller asked for the work to stop."""
