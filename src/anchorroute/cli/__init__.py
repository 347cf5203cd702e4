"""The command line: one main group whose subcommands are imported only when called.

`main` is the entry point. It turns everything that a person can act on into one line on standard error and exit code
2: errors of this package, wrong options, files that cannot be read or written, a missing optional package. A request
that ran but missed an anchor under `--strict` exits with 1, Ctrl-C with 130. Anything else is a bug and keeps its
traceback.
"""

import errno
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from anchorroute import __version__
from anchorroute.errors import AnchorRouteError, Cancelled

#: name: (module under `anchorroute.cli`, help line). The help line stands here so that `--help` imports nothing.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "A text, waypoints and a hand target: four files and a report, in seconds."),
    "generate": ("generate", "Text and anchors in, motion files out."),
    "refine": ("refine", "Make a given motion meet anchors."),
    "report": ("report", "How well a motion file meets its anchors."),
    "convert": ("convert", "Convert between BVH, GLB, NPZ and HTML; rate, in place, loop."),
    "schema": ("schema", "Print the JSON Schema of the anchor file."),
    "info": ("info", "The model card: data, licence, metrics, sizes."),
    "batch": ("batch", "Many jobs from a JSONL file; resumable."),
    "studio": ("studio", "Author motion in the browser."),
    "serve": ("serve", "Answer HTTP requests."),
    "data": ("data", "Build, check, pack and show data sets."),
    "train": ("train", "Train the tokenizer, the prior, the adapters."),
    "evaluate": ("evaluate", "Every table of the paper."),
    "completion": ("completion", "Print the shell completion script."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is called, so that `--help` takes a fraction of a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which a newcomer meets them."""
        return [name for name, (module, _) in COMMANDS.items() if _exists(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = COMMANDS[cmd_name][0]
        command = getattr(import_module(f"{__name__}.{module}"), module)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of subcommands, from this file alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; a misspelt one is answered with the nearest."""
        from difflib import get_close_matches

        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`anchorroute --help` lists them"
            raise click.UsageError(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)


def _exists(module: str) -> bool:
    from pathlib import Path

    here = Path(__file__).parent
    return (here / f"{module}.py").exists() or (here / module / "__init__.py").exists()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="anchorroute")
def anchorroute() -> None:
    """Text and a few anchors in, a full-body motion out.

    An anchor is "this point of the body is here at this time". Start with `anchorroute demo`.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error that a person can act on is one line and exit code 2."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """`main`, returning the exit code."""
    try:
        code = anchorroute.main(
            args=None if arguments is None else list(arguments), prog_name="anchorroute", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        return _complain(error.format_message(), hint=_help_line(error))
    except click.ClickException as error:
        return _complain(error.format_message())
    except (click.Abort, KeyboardInterrupt, Cancelled):
        return _complain("stopped; nothing half-written is left", code=130)
    except AnchorRouteError as error:
        return _complain(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away: nobody is left to be told
        return 0
    except OSError as error:
        return _complain(_about_file(error))
    except ModuleNotFoundError as error:
        return _complain(_about_module(error))
    return code if isinstance(code, int) else 0


def _complain(message: str, *, hint: str = "", code: int = 2) -> int:
    line = " ".join(message.split())
    click.echo(f"error: {line}{hint}", err=True)
    return code


def _help_line(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "anchorroute"
    return f" (see `{path} --help`)"


def _about_file(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.ENOENT: "there is no such file or folder; check the path",
        errno.EACCES: "permission denied; choose a place that you may write to",
        errno.EPERM: "permission denied; choose a place that you may write to",
        errno.EROFS: "the disk is read-only; choose another place",
        errno.ENOSPC: "the disk is full; free some space or choose another disk (nothing half-written is left)",
        errno.EISDIR: "this is a folder; give a file",
        errno.ENOTDIR: "a part of this path is a file, not a folder",
    }
    return f"{where}{advice.get(error.errno or 0, error.strerror or str(error))}"


def _about_module(error: ModuleNotFoundError) -> str:
    name = (error.name or str(error)).partition(".")[0]
    extras = {
        "viser": "studio", "fastapi": "server", "uvicorn": "server", "motionmcp": "server",
        "lightning_fabric": "train", "matplotlib": "train", "vector_quantize_pytorch": "train", "transformers": "train",
        "ray": "ray",
    }  # fmt: skip
    if name in extras:
        return f"the Python package {name!r} is missing; install it with: pip install 'anchorroute[{extras[name]}]'"
    if name == "anchorroute":
        raise error
    return f"the Python package {name!r} is missing; install it with: pip install {name}"
