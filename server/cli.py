"""The `framecast` command. Data goes to stdout, everything else to stderr.

Exit codes: 0, 1 a failure, 2 a request, flag or model file that has to be changed first,
130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from server.settings import ENV_PREFIX, Settings, default_text, explain, flag
from server.version import version
from server.voices_cli import add_voices_commands

if TYPE_CHECKING:
    import engine

MODEL_SETTINGS = (
    "model", "quantize", "talker", "codec", "device", "dtype", "kernels", "voice_aliases",
    "log_level", "normalize", "lexicon",
)  # fmt: skip
TYPES = ("f32", "bf16", "f16", "q8_0", "q5_0", "q4_0")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = parser().parse_args(argv)
    import engine  # noqa: PLC0415  # for its errors; loads no torch

    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except ValidationError as error:
        return _complain(explain(error), 2)
    except (SettingsError, engine.InvalidRequest, engine.ModelFileError) as error:
        return _complain(str(error), 2)
    except (engine.EngineError, OSError) as error:
        return _broken_pipe() if isinstance(error, BrokenPipeError) else _complain(str(error), 1)
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The command line, built from the settings; imports no torch."""
    top = argparse.ArgumentParser(
        prog="framecast", description="Speech synthesis server: text in, streamed speech out."
    )
    top.add_argument("--version", action="version", version=f"framecast {version()}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    serve = _command(commands, "serve", _serve, "serve POST /v1/audio/speech")
    _add_settings(serve, tuple(Settings.model_fields))
    _add_say(commands)
    voices = commands.add_parser(
        "voices", help="list a model's speakers and languages, and keep saved voices"
    )
    add_voices_commands(voices, _add_settings, MODEL_SETTINGS, _settings, _load)
    convert = _command(commands, "convert", _convert, "make GGUF files of a checkpoint")
    convert.add_argument("checkpoint", type=Path, help="folder with safetensors files")
    convert.add_argument("-o", "--output", type=Path, required=True, help="folder to write to")
    convert.add_argument("--type", choices=TYPES, default="q8_0", help="default: %(default)s")
    pull = _command(commands, "pull", _pull, "download a model of the hub and print its two files")
    pull.add_argument("model", help="`OWNER/REPO`, or `OWNER/REPO:NAME` for one of several")
    _add_settings(pull, ("quantize",))
    hash_key = _command(
        commands, "hash-key", _hash_key, "read an API key from stdin, print its line for a key file"
    )
    hash_key.add_argument("--name", help="what the log calls its owner")
    _add_bench(commands)
    inspect = _command(commands, "inspect", _inspect, "print what a GGUF file holds")
    inspect.add_argument("file", type=Path)
    return top


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    added.set_defaults(command=run)
    return added


def _add_say(commands: Any) -> None:
    say = _command(commands, "say", _say, "speak one text into a file")
    say.add_argument("text", help="what to say; `-` reads it from stdin")
    say.add_argument(
        "-o", "--output", required=True, help="file to write (its ending is the format); `-` "
        "streams WAV to stdout",
    )  # fmt: skip
    say.add_argument(
        "-v", "--verbose", action="store_true",
        help="print the text as it is spoken and the time of each stage",
    )  # fmt: skip
    for name in ("voice", "language", "instructions", "task-type"):
        say.add_argument(f"--{name}")
    for name in ("seed", "sample-rate", "top-k", "max-new-tokens", "min-new-tokens",
                 "no-repeat-ngram-size", "subtalker-top-k"):  # fmt: skip
        say.add_argument(f"--{name}", type=int)
    for name in ("speed", "loudness-lufs", "temperature", "top-p", "repetition-penalty",
                 "subtalker-temperature", "subtalker-top-p"):  # fmt: skip
        say.add_argument(f"--{name}", type=float)
    _add_settings(say, (*MODEL_SETTINGS, "voices_dir"))


def _add_bench(commands: Any) -> None:
    bench = _command(commands, "bench", _bench, "measure speed, beside the C++ peer if you like")
    bench.add_argument("--random", choices=("0.6b", "1.7b"), help="random weights of that size")
    bench.add_argument("--quant", choices=TYPES, default="q8_0", help="of them (default: q8_0)")
    bench.add_argument("--folder", type=Path, help="where they are kept (default: nowhere)")
    bench.add_argument("--concurrency", default="1,8", help="listeners (default: %(default)s)")
    bench.add_argument("--frames", type=int, default=50, help="per listener (default: %(default)s)")
    bench.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    bench.add_argument(
        "--peer", nargs="?", const=sys.executable, metavar="PYTHON",
        help="also run `realtimetts-qwen-native-cpu` of this Python (default: of the one running)",
    )  # fmt: skip
    bench.add_argument(
        "--clone", type=Path, metavar="CLIP",
        help="also the first audio of a saved voice of this clip, beside the default voice's",
    )  # fmt: skip
    bench.add_argument("--ref-text", help="what the clip says; without it: a vector only")
    bench.add_argument("--url", help="measure the running server there instead of an engine")
    bench.add_argument("--api-key", help="a key of that server")
    bench.add_argument(
        "--listeners", type=int, default=0, metavar="N",
        help="also N listeners by the clock, who count underruns",
    )  # fmt: skip
    bench.add_argument(
        "--every", type=float, default=4.0, metavar="SECONDS",
        help="how often each of them asks (default: %(default)s)",
    )  # fmt: skip
    bench.add_argument(
        "--rates", metavar="RATES",
        help="also an open loop at each of these rates, requests per second, like 0.5,1,2",
    )  # fmt: skip
    bench.add_argument(
        "--seconds", type=float, default=120.0,
        help="how long listeners by the clock and open loops go on (default: %(default)s)",
    )  # fmt: skip
    bench.add_argument(
        "--plot", type=Path, metavar="PNG",
        help="also draw the cost against length, slots and queue (needs matplotlib)",
    )  # fmt: skip
    bench.add_argument("--json", action="store_true", help="print JSON instead of a table")
    names = ("talker", "codec", "device", "dtype", "kernels", "kv_dtype", "codec_dtype",
             "kv_positions")  # fmt: skip
    _add_settings(bench, names)


def _add_settings(command: argparse.ArgumentParser, names: Sequence[str]) -> None:
    group = command.add_argument_group("settings")
    for name in names:
        field = Settings.model_fields[name]
        default = default_text(field)
        text = f"{field.description} [{ENV_PREFIX}{name.upper()}]"
        text += f" (default: {default})" if default else ""
        options: dict[str, Any] = {"metavar": name.upper()}
        if field.annotation is bool:
            options = {"action": argparse.BooleanOptionalAction}
        group.add_argument(
            flag(name), dest=f"setting_{name}", default=argparse.SUPPRESS,
            help=text.replace("%", "%%"), **options,
        )  # fmt: skip


def _settings(arguments: argparse.Namespace) -> Settings:
    prefix = "setting_"
    given = {
        name.removeprefix(prefix): value
        for name, value in vars(arguments).items()
        if name.startswith(prefix)
    }
    return Settings(**given)


def _serve(arguments: argparse.Namespace) -> int:
    from server.logs import set_up_logging  # noqa: PLC0415
    from server.serving import listen, serve  # noqa: PLC0415

    settings = _settings(arguments)
    set_up_logging(settings.log_level, settings.log_json)
    try:
        bound = listen(settings.host, settings.port)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        return _complain(f"cannot listen on {where}: {error.strerror}; set `--host` or `--port`", 1)
    with bound:
        loaded = _load(settings)
        # uvicorn raises the signal once more after its graceful end, which is no failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
        return serve(loaded, settings, bound)


def _say(arguments: argparse.Namespace) -> int:
    from server.say import say  # noqa: PLC0415

    settings = _settings(arguments)
    loaded = _load(settings)
    try:
        return say(loaded, settings, arguments)
    finally:
        loaded.close()


def _bench(arguments: argparse.Namespace) -> int:
    from server.bench.command import bench  # noqa: PLC0415

    return bench(_settings(arguments), arguments)


def _convert(arguments: argparse.Namespace) -> int:
    import engine  # noqa: PLC0415

    with _progress() as progress:
        files = engine.convert_checkpoint(
            arguments.checkpoint, arguments.output, arguments.type, progress=progress
        )
    print(files.talker, files.codec, sep="\n")
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    files = _fetched(arguments.model, _settings(arguments).quantize)
    print(files.talker, files.codec, sep="\n")
    return 0


def _fetched(model: str, kind: str) -> engine.ModelFiles:
    import engine  # noqa: PLC0415

    with _progress() as progress:
        return engine.fetch_model(model, type=kind, progress=progress)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr that appears with the first tensor."""
    from tqdm import tqdm  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        bar: Any = None

        def progress(name: str, done: int, total: int) -> None:
            nonlocal bar
            if bar is None:
                bar = stack.enter_context(tqdm(unit="tensor", file=sys.stderr, total=total))
            bar.set_postfix_str(name, refresh=False)
            bar.update(done - bar.n)

        yield progress


def _hash_key(arguments: argparse.Namespace) -> int:
    from getpass import getpass  # noqa: PLC0415

    from server.keys import key_line  # noqa: PLC0415

    typed = getpass("API key: ") if sys.stdin.isatty() else sys.stdin.read()
    try:
        print(key_line(typed.strip(), arguments.name))
    except ValueError as error:
        return _complain(str(error), 2)
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    import engine  # noqa: PLC0415

    print(engine.inspect(arguments.file))
    return 0


def _load(settings: Settings) -> engine.Engine:
    import engine  # noqa: PLC0415

    if settings.model is not None:
        fetched = _fetched(settings.model, settings.quantize)
        files = replace(fetched, name=settings.model_name or fetched.name)
    else:
        files = settings.model_files() or engine.bundled_voice()
    return engine.load(files, settings.engine_config())


def _complain(message: str, code: int) -> int:
    print(f"framecast: {message}", file=sys.stderr)
    return code


def _broken_pipe() -> int:
    # The reader of stdout left. Python would complain once more when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


if __name__ == "__main__":
    sys.exit(main())

__all__ = ["main", "parser"]
