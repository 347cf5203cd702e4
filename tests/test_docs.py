"""The documentation: its commands exist with the options shown, its Python parses, its links lead somewhere."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from anchorroute.cli import COMMANDS, anchorroute

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", flags=re.M | re.S)


def _blocks(kind: str) -> list[tuple[Path, str]]:
    return [
        (page, "\n".join(line.removeprefix(indent) for line in body.splitlines()))
        for page in PAGES
        for indent, language, body in BLOCK.findall(page.read_text(encoding="utf-8"))
        if language == kind
    ]


def _commands() -> list[tuple[str, str]]:
    joined = [(page.name, body.replace("\\\n", " ")) for page, body in _blocks("console")]
    return [
        (page, line.strip()) for page, body in joined for line in body.splitlines() if line.startswith("anchorroute")
    ]


@pytest.mark.parametrize(("page", "line"), _commands(), ids=lambda value: value[:40])
def test_command_exists_with_its_options(page: str, line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])[1:]
    command: click.Command = anchorroute
    context = click.Context(anchorroute)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{page}: {line!r}: there is no command {words[0]!r}"
        command, words = found, words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--") or (len(word) == 2 and word.startswith("-")):
            assert word in known, f"{page}: {line!r}: {command.name} has no option {word}"


@pytest.mark.parametrize(("page", "code"), _blocks("python"), ids=lambda value: getattr(value, "name", "code"))
def test_python_parses(page: Path, code: str) -> None:
    ast.parse(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_every_command_has_a_module() -> None:
    missing = [name for name in COMMANDS if anchorroute.get_command(click.Context(anchorroute), name) is None]
    assert missing == [], f"listed but absent: {missing}"
