"""Undo and redo of whole values: every state is immutable, so a level costs what differs from its neighbours."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Level(Generic[T]):
    state: T
    label: str
    merge: str | None


class History(Generic[T]):
    """States in order, one of them current. Not thread-safe: its owner locks."""

    def __init__(self, state: T, limit: int = 300) -> None:
        if limit < 1:
            raise ValueError(f"a history of {limit} levels remembers nothing; give 1 or more")
        self._limit = limit
        self._past: list[_Level[T]] = []
        self._now = _Level(state, "", None)
        self._future: list[_Level[T]] = []

    @property
    def state(self) -> T:
        """The current state."""
        return self._now.state

    @property
    def undo_label(self) -> str | None:
        """What `undo` would take back, None if there is nothing."""
        return self._now.label if self._past else None

    @property
    def redo_label(self) -> str | None:
        """What `redo` would do again, None if there is nothing."""
        return self._future[-1].label if self._future else None

    @property
    def depth(self) -> tuple[int, int]:
        """How many levels can be undone and redone."""
        return len(self._past), len(self._future)

    def push(self, state: T, label: str, merge: str | None = None) -> None:
        """Make `state` current. Pushes with the same `merge` key in a row are one level, under the first one's label: a
        drag, and the body that follows it, are one undo."""
        if merge is not None and merge == self._now.merge and self._past:
            self._now = _Level(state, self._now.label, merge)
        else:
            self._past = [*self._past, self._now][-self._limit :]
            self._now = _Level(state, label, merge)
        self._future = []

    def seal(self) -> None:
        """End the current level: the next push starts a new one, whatever its key."""
        self._now = _Level(self._now.state, self._now.label, None)

    def undo(self) -> bool:
        """One level back; False at the beginning."""
        if not self._past:
            return False
        self._future.append(self._now)
        self._now = self._past.pop()
        self.seal()
        return True

    def redo(self) -> bool:
        """One level forward; False at the end."""
        if not self._future:
            return False
        self._past.append(self._now)
        self._now = self._future.pop()
        self.seal()
        return True
