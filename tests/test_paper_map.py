"""The paper map: every symbol exists, every equation and table of the paper is there, every command is one."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from anchorroute.evaluate.protocols import protocol

PAGE = Path(__file__).parents[1] / "docs" / "paper_map.md"
ROWS = re.findall(r"^\| `((?:eq|tab):\w+)` \| (.+?) \| `(.+?)` \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)
SYMBOLS = sorted({code for label, _, code in ROWS if label.startswith("eq:")})


def _resolve(symbol: str) -> object:
    module, _, path = symbol.partition(":")
    value: object = import_module(module)
    for name in path.split(".") if path else ():
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbol_exists(symbol: str) -> None:
    assert getattr(_resolve(symbol), "__doc__", None) or symbol.rpartition(".")[2].startswith("_")


def test_symbols_named_in_the_text_exist() -> None:
    for symbol in re.findall(r"`(anchorroute(?:\.\w+)+(?::[\w.]+)?)`", PAGE.read_text(encoding="utf-8")):
        _resolve(symbol)


@pytest.mark.parametrize("command", [code for label, _, code in ROWS if label.startswith("tab:")])
def test_table_has_a_protocol(command: str) -> None:
    program, verb, name = command.split()
    assert (program, verb) == ("anchorroute", "evaluate")
    assert protocol(name)


def test_no_equation_and_no_table_of_the_paper_is_missing(shared: Path) -> None:
    source = (shared / "paper" / "anchorroute.tex").read_text(encoding="utf-8")
    labels = set(re.findall(r"\\label\{((?:eq|tab):\w+)\}", source))
    assert labels == {label for label, _, _ in ROWS}
