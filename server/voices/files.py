"""A saved voice as files to carry away: all of it, or what the C++ peer reads."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import save

import engine
from engine import InvalidRequest
from server.voices.documents import SUFFIX, open_document
from server.voices.naming import checked_name
from server.voices.registry import MOST_VOICE_BYTES
from server.voices.saved import SavedVoice, read_voice


def export_voice(saved: SavedVoice, path: Path) -> list[Path]:
    """Write a voice to `path`, by its ending; returns the files written.

    `.safetensors` holds all of it. `.spk` holds the vector; of an in-context voice the codes go
    into a `.rvq` file and the transcript into a `.txt` file beside it.

    Raises:
        InvalidRequest: another ending, or a voice without a vector as `.spk`.
        OSError: a file cannot be written.
    """
    voice = saved.voice
    if path.suffix == SUFFIX:
        path.write_bytes(save(saved.arrays(), saved.facts()))
        return [path]
    if path.suffix != ".spk":
        raise InvalidRequest(f"`--output` {path.name!r} must end in `{SUFFIX}` or `.spk`")
    if voice.embedding is None:
        raise InvalidRequest(f"voice {saved.name!r} has no vector; export it as `{SUFFIX}`")
    files = {path: engine.pack_spk(voice.embedding)}
    if voice.codes is not None:
        files[path.with_suffix(".rvq")] = engine.pack_rvq(voice.codes)
        files[path.with_suffix(".txt")] = f"{voice.transcript}\n".encode()
    for file, data in files.items():
        file.write_bytes(data)
    return list(files)


def import_voice(
    path: Path,
    *,
    name: str | None = None,
    transcript: str | None = None,
    consent: str | None = None,
    description: str | None = None,
) -> SavedVoice:
    """A voice from what `export_voice` or the C++ peer wrote; what is given wins over the file.

    A `.spk` file takes its `.rvq` along when there is a transcript: the one given, or a `.txt`
    file beside it.

    Raises:
        InvalidRequest: another ending, a damaged file, or a name that is none.
        OSError: a file cannot be read.
    """
    if path.suffix == SUFFIX:
        found = _whole(path, transcript)
    elif path.suffix == ".spk":
        found = SavedVoice("", path.stem, 0, _latents(path, transcript))
    else:
        raise InvalidRequest(f"{str(path)!r} must end in `{SUFFIX}` or `.spk`")
    return replace(
        found,
        name=checked_name(name or found.name),
        created_at=int(time.time()),
        consent=consent or found.consent,
        description=description or found.description,
    )


def _whole(path: Path, transcript: str | None) -> SavedVoice:
    if transcript is not None:
        raise InvalidRequest(f"`--ref-text` is for `.spk` files; {path.name!r} holds its own")
    try:
        with open_document(path, MOST_VOICE_BYTES) as document:
            return read_voice("", document)
    except ValueError as error:
        raise InvalidRequest(f"{str(path)!r} holds no voice: {error}") from None


def _latents(path: Path, transcript: str | None) -> engine.Voice:
    embedding = engine.unpack_spk(path.read_bytes())
    codes, beside = path.with_suffix(".rvq"), path.with_suffix(".txt")
    if transcript is None and codes.exists() and beside.exists():
        transcript = beside.read_text("utf-8").strip() or None
    if transcript is None:
        warnings = ("the codes have no effect without `--ref-text`",) if codes.exists() else ()
        return engine.Voice(embedding, warnings=warnings)
    return engine.Voice(embedding, engine.unpack_rvq(codes.read_bytes()), transcript)


__all__ = ["export_voice", "import_voice"]
