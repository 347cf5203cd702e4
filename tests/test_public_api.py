"""The public names: all there, all documented, all typed, and the same for readers, type checkers and `dir`."""

import ast
import inspect
from pathlib import Path

import pytest

import anchorroute as ar

NAMES = [name for name in ar.__all__ if name != "__version__"]


def test_lazy_names_and_type_checker_names_are_the_same() -> None:
    tree = ast.parse(Path(ar.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: f"{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("anchorroute.")
        for alias in node.names
    }
    lazy = {name: f"anchorroute.{module}" for name, module in ar._HOME.items()}
    assert seen == lazy


@pytest.mark.parametrize("name", NAMES)
def test_documented(name: str) -> None:
    value = getattr(ar, name)
    assert name in dir(ar)
    assert inspect.getdoc(value), f"{name} has no docstring"
    if inspect.isclass(value):
        for member, function in inspect.getmembers(value, inspect.isfunction):
            if not member.startswith("_") and function.__module__.startswith("anchorroute"):
                assert inspect.getdoc(function), f"{name}.{member} has no docstring"


@pytest.mark.parametrize("name", NAMES)
def test_annotated(name: str) -> None:
    value = getattr(ar, name)
    functions = [value] if inspect.isfunction(value) else []
    if inspect.isclass(value) and not issubclass(value, Exception):
        functions = [f for m, f in inspect.getmembers(value, inspect.isfunction) if not m.startswith("_")]
    for function in functions:
        if not function.__module__.startswith("anchorroute"):
            continue
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, function.__qualname__
        bare = [
            parameter.name for parameter in signature.parameters.values()
            if parameter.annotation is inspect.Parameter.empty and parameter.name not in {"self", "cls"}
        ]  # fmt: skip
        assert not bare, f"{function.__qualname__}: {bare} have no type"


def test_unknown_name_says_what_exists() -> None:
    with pytest.raises(AttributeError, match="AnchorSet"):
        _ = ar.Anker  # type: ignore[attr-defined]
