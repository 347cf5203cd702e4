"""`anchorroute schema`: the anchor file's JSON Schema, for editors and other programs."""

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of the anchor file.

    Editors that know JSON Schema check and complete an anchor file with it; `docs/concepts/anchors.md` explains it.
    """
    import json

    from anchorroute import anchor_file

    click.echo(json.dumps(anchor_file.schema(), indent=2))
