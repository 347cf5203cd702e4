"""What a measurement leaves behind: one JSON file that says what was measured, on what, by which code.

`docs/results.md` is rendered from these files alone. Any program may write one: the required part is `title`,
`command`, `commit`, `date`, `data_fingerprint`, `columns`, `rows` and `notes`; everything else is `extra`.
"""

import json
import math
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from anchorroute.data.files import write_atomically
from anchorroute.errors import FormatError

Cell = str | int | float | bool | None

_REQUIRED = ("title", "columns", "rows")


@dataclass(frozen=True)
class Result:
    """A table with its circumstances; `extra` holds what figures are drawn from."""

    title: str
    command: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    data_fingerprint: str = ""
    commit: str = ""
    date: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise FormatError(f'"{self.title}": a row of {len(row)} cells under {len(self.columns)} columns.')

    def stamped(self) -> "Result":
        """The same with today's date and the commit of the running code."""
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        return Result(**{**self.__dict__, "commit": code_commit(), "date": now})

    def save(self, path: Path) -> None:
        """Write the JSON file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {key: value for key, value in self.__dict__.items() if key != "extra"} | self.extra
        write_atomically(path, (json.dumps(_plain(content), indent=1, ensure_ascii=False) + "\n").encode())

    @staticmethod
    def load(path: Path) -> "Result":
        """Read a file that this or another program wrote."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise FormatError(f"{path}: not JSON ({error}).") from None
        missing = [key for key in _REQUIRED if key not in content] if isinstance(content, dict) else list(_REQUIRED)
        if missing:
            raise FormatError(f"{path} lacks {', '.join(missing)}: a result has a title, columns and rows.")
        notes = content.get("notes", ())
        known = {"title", "command", "columns", "rows", "notes", "data_fingerprint", "commit", "date"}
        return Result(
            title=content["title"],
            command=content.get("command", ""),
            columns=tuple(content["columns"]),
            rows=tuple(tuple(row) for row in content["rows"]),
            notes=(notes,) if isinstance(notes, str) else tuple(notes),
            data_fingerprint=content.get("data_fingerprint", ""),
            commit=content.get("commit", ""),
            date=content.get("date", ""),
            extra={key: value for key, value in content.items() if key not in known},
        )


def code_commit() -> str:
    """The commit of the code that runs, "+changes" if it differs, "unknown" outside a repository."""
    here = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        return f"{head}+changes" if head and git("status", "--porcelain", "--", ".") else head or "unknown"
    except FileNotFoundError:
        return "unknown"


def _plain(value: Any) -> Any:
    """JSON has no NaN: figures that do not exist are null; floats keep six significant digits."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
