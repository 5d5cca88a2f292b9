"""`framecast voices`: what a model can say, and the saved voices of this machine.

A running server sees what is added or removed here. Only `voices` alone and `voices add` load a
model.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from server.settings import Settings

if TYPE_CHECKING:
    import engine
    from server.voices.registry import Registry
    from server.voices.saved import SavedVoice

Load = Callable[[Settings], "engine.Engine"]
Read = Callable[[argparse.Namespace], Settings]
STORE_SETTINGS = ("voices_dir", "max_voices", "max_voices_bytes", "max_clip_bytes",
                  "require_consent")  # fmt: skip
ENDINGS = ".safetensors (all of it) or .spk (the C++ peer's, with .rvq and .txt beside it)"


def add_voices_commands(
    voices: argparse.ArgumentParser,
    add_settings: Callable[[argparse.ArgumentParser, tuple[str, ...]], None],
    model_settings: tuple[str, ...],
    read: Read,
    load: Load,
) -> None:
    """Give `framecast voices` its commands.

    Args:
        add_settings: gives a command the flags of settings, which `read` reads.
        model_settings: the settings that say which model is loaded, by `load`.
    """
    voices.set_defaults(command=lambda arguments: _names(read(arguments), load))
    add_settings(voices, (*model_settings, "voices_dir"))
    commands = voices.add_subparsers(metavar="COMMAND", title="saved voices")

    def command(
        name: str, run: Callable[[argparse.Namespace, Settings], int], text: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(command=lambda arguments: run(arguments, read(arguments)))
        return added

    add = command("add", lambda a, s: _add(a, s, load), "clone a voice from a clip and save it")
    add.add_argument("name", help="what it is called")
    add.add_argument("clip", type=Path, help="wav, flac, ogg, mp3, m4a or webm, 0.3 to 60 s")
    add.add_argument(
        "--ref-tail-silence", type=float, default=0.5, metavar="SECONDS",
        help="silence appended to a clip with a text (default: %(default)s)",
    )  # fmt: skip
    _add_texts(add)
    add_settings(add, (*model_settings, *STORE_SETTINGS))
    add_settings(command("list", _list, "list the saved voices"), ("voices_dir",))
    remove = command("remove", _remove, "delete a saved voice")
    remove.add_argument("name", help="its name or id")
    add_settings(remove, ("voices_dir",))
    export = command("export", _export, "write a saved voice to a file")
    export.add_argument("name", help="its name or id")
    export.add_argument("-o", "--output", type=Path, required=True, help=ENDINGS)
    add_settings(export, ("voices_dir",))
    import_ = command("import", _import, "save a voice that was exported")
    import_.add_argument("file", type=Path, help=ENDINGS)
    import_.add_argument("--name", help="what it is called (default: as in the file)")
    _add_texts(import_)
    add_settings(import_, STORE_SETTINGS)


def _add_texts(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ref-text", help="what the clip says; without it: a vector only")
    command.add_argument("--consent", help="who agreed: an id of a consent recording or a text")
    command.add_argument("--description")
    command.add_argument("--overwrite", action="store_true", help="replace one of that name")


def _names(settings: Settings, load: Load) -> int:
    loaded = load(settings)
    try:
        for model in loaded.models:
            print(f"model\t{model.name}\t{model.task}")
            for kind, names in (("speaker", model.speakers), ("language", model.languages)):
                for name in names:
                    print(f"{kind}\t{name}")
    finally:
        loaded.close()
    for voice in _opened(settings).voices:
        print(f"saved\t{voice.name}")
    return 0


def _add(arguments: argparse.Namespace, settings: Settings, load: Load) -> int:
    from server.names import Names  # noqa: PLC0415
    from server.voices.cloning import Draft, Voices, renamed  # noqa: PLC0415

    data = _read(arguments.clip, settings.max_clip_bytes)
    registry = _opened(settings)
    loaded = load(settings)
    try:
        names = Names(loaded.models, settings.voice_aliases, saved=registry)
        draft = Draft(
            arguments.name,
            arguments.ref_text or None,
            clip=data,
            tail_silence_s=arguments.ref_tail_silence,
            consent=arguments.consent,
            description=arguments.description,
            overwrite=arguments.overwrite,
        )
        with renamed({"ref_audio": str(arguments.clip)}):
            voices = Voices(loaded, settings, registry)
            saved = asyncio.run(voices.save(draft, names.model(None, "base"), names.reserved()))
    finally:
        loaded.close()
    return _report(saved)


def _list(_: argparse.Namespace, settings: Settings) -> int:
    for voice in _opened(settings).voices:
        mode = "in-context" if voice.voice.in_context else "vector"
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(voice.created_at))
        print(voice.id, voice.name, mode, voice.voice.model or "-", made, sep="\t")
    return 0


def _remove(arguments: argparse.Namespace, settings: Settings) -> int:
    removed = _opened(settings).remove(arguments.name)
    print(removed.id)
    return 0


def _export(arguments: argparse.Namespace, settings: Settings) -> int:
    from server.voices.files import export_voice  # noqa: PLC0415

    registry = _opened(settings)
    for path in export_voice(registry.existing(arguments.name), arguments.output):
        print(path)
    return 0


def _import(arguments: argparse.Namespace, settings: Settings) -> int:
    from server.names import OPENAI_VOICES  # noqa: PLC0415
    from server.voices.cloning import check_consent  # noqa: PLC0415
    from server.voices.files import import_voice  # noqa: PLC0415

    registry = _opened(settings)
    voice = import_voice(
        arguments.file,
        name=arguments.name,
        transcript=arguments.ref_text,
        consent=arguments.consent,
        description=arguments.description,
    )
    check_consent(voice.consent, registry, settings.require_consent)
    reserved = (*OPENAI_VOICES, *settings.voice_aliases)
    registry.checked_name(voice.name, reserved, arguments.overwrite)
    saved, _ = registry.add(voice, arguments.overwrite)
    return _report(saved)


def _opened(settings: Settings) -> Registry:
    from server.voices.cloning import open_registry  # noqa: PLC0415

    registry = open_registry(settings)
    registry.refresh()  # `restore` is for whoever serves: it renames broken files
    return registry


def _read(path: Path, most_bytes: int) -> bytes:
    from engine import InvalidRequest  # noqa: PLC0415

    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InvalidRequest(f"`{path}` is longer than {most_bytes} bytes (`--max-clip-bytes`)")
    return data


def _report(saved: SavedVoice) -> int:
    for warning in saved.voice.warnings:
        print(f"framecast: {warning}", file=sys.stderr)
    print(saved.id)
    return 0


__all__ = ["add_voices_commands"]
