"""What the server lets one client, and all of them together, take from the machine.

Memory is bounded by these numbers and by nothing else: a batch holds at most `rows` clips of at most 9.8 s (a refined
motion: 120 s, alone), an anchor set at most `anchors` anchors, a body at most `request_bytes`, and only so many jobs
wait or are kept.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes and times; times in seconds."""

    waiting: int = 128
    """Jobs in the queue; one more is answered with 429 and Retry-After."""
    batch: int = 16
    """Jobs that go through the networks together; 1 turns batching off."""
    rows: int = 32
    """Samples of all jobs of a batch together."""
    samples: int = 16
    anchors: int = 2000
    request_bytes: int = 8 * 2**20
    body_seconds: float = 20.0
    """A body must have arrived by then; slower clients get 408."""
    job_seconds: float = 300.0
    """Of computing; waiting does not count."""
    grace_seconds: float = 30.0
    """After SIGTERM a running batch has this long to finish."""
    gather_seconds: float = 0.005
    """How long the first job of an idle server waits for company."""
    kept_jobs: int = 256
    """Finished jobs whose results can be fetched; the oldest are forgotten."""
    kept_seconds: float = 900.0
    connections: int = 1024
