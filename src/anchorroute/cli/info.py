"""`anchorroute info`: the model card of the weights in use."""

from __future__ import annotations

import json
from typing import Any

import click

from anchorroute.cli.options import json_option


@click.command()
@click.option("--model", default="open", show_default=True, help="open, debug (random weights), or a folder.")
@json_option
def info(model: str, as_json: bool) -> None:
    """What the weights are: data, licence, sizes, metrics, provenance."""
    from anchorroute.card import card

    told = card(model)
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    for title, value in told.items():
        _show(title, value, 0)


def _show(title: str, value: Any, depth: int) -> None:
    indent = "  " * depth
    if isinstance(value, dict):
        click.echo(f"{indent}{title}:")
        for key, inner in value.items():
            _show(str(key), inner, depth + 1)
    else:
        shown = (
            f"{value:.4g}"
            if isinstance(value, float)
            else ", ".join(map(str, value))
            if isinstance(value, list)
            else value
        )
        click.echo(f"{indent}{title}: {shown}")
