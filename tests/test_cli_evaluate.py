"""The command line of the tables: what it refuses, and that a whole table runs from it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import train_data
from anchorroute.cli.evaluate import TABLES, evaluate
from anchorroute.errors import AnchorRouteError
from anchorroute.evaluate.protocols import PROTOCOLS


def test_every_protocol_is_a_command() -> None:
    assert set(TABLES) == set(PROTOCOLS)
    assert set(TABLES) <= set(evaluate.commands)


@pytest.mark.parametrize(("option", "value", "says"), [
    ("--share", "3/2", "1/4"), ("--share", "x", "1/4"), ("--counts", "2;4", "2,8,32"),
    ("--model", "/nowhere", "weights"),
])  # fmt: skip
def test_wrong_options_are_explained(tmp_path: Path, option: str, value: str, says: str) -> None:
    data = train_data.write(tmp_path / "data")
    arguments = ["families", "--data", str(data), "--split", "val", "--model", "debug", option, value]
    result = CliRunner().invoke(evaluate, arguments)
    assert isinstance(result.exception, AnchorRouteError)
    assert says in str(result.exception)


def test_report_of_an_empty_folder_says_what_to_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(evaluate, ["report", "--results", str(tmp_path), "--page", str(tmp_path / "x.md")])
    assert isinstance(result.exception, AnchorRouteError)
    assert "run a table" in str(result.exception)


def test_report_renders_a_folder(tmp_path: Path) -> None:
    table = {"title": "T", "columns": ["a"], "rows": [[1]], "command": "c", "notes": []}
    (tmp_path / "t.json").write_text(json.dumps(table))
    page = tmp_path / "page.md"
    result = CliRunner().invoke(evaluate, ["report", "--results", str(tmp_path), "--page", str(page)])
    assert result.exit_code == 0, result.output
    assert "## T" in page.read_text()
