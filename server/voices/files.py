"""A saved voice as files to carry away: all of it, or what the C++ peer reads."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import save

import engine
from engine import InvalidRequest
from server.voices.cloning import renamed
from server.voices.documents import SUFFIX, open_document
from server.voices.latents import doubts
from server.voices.naming import checked_name
from server.voices.registry import MOST_VOICE_BYTES
from server.voices.saved import SavedVoice, read_voice

# A `.rvq` file does not say its shape: it is that of the official models, 12.5 frames a second.
CODE_GROUPS, CODEBOOK_SIZE, FRAME_S = 16, 2048, 0.08
LEAST_WIDTH, MOST_WIDTH = 8, 16_384


def export_voice(saved: SavedVoice, path: Path) -> list[Path]:
    """Write a voice to `path`, by its ending; returns the files written.

    `.safetensors` holds all of it. `.spk` holds the vector; of an in-context voice the codes go
    into a `.rvq` file and the transcript into a `.txt` file beside it.

    Raises:
        InvalidRequest: another ending, a voice that `.spk` and `.rvq` cannot hold, or a `.rvq`
            file beside it that would be taken for this voice's.
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
    files, beside = {path: engine.pack_spk(voice.embedding)}, path.with_suffix(".rvq")
    if voice.codes is None and beside.exists():
        raise InvalidRequest(
            f"{str(beside)!r} belongs to another voice, and this one has no codes: remove it, or "
            "choose another `--output`"
        )
    if voice.codes is not None:
        _refuse_other_shape(saved)
        files[beside] = engine.pack_rvq(voice.codes, CODEBOOK_SIZE)
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
        InvalidRequest: another ending, a damaged file, a transcript that cannot be what the codes
            say, or a name that is none.
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


def _refuse_other_shape(saved: SavedVoice) -> None:
    codes = saved.voice.codes
    if codes is not None and (len(codes) != CODE_GROUPS or codes.max() >= CODEBOOK_SIZE):
        raise InvalidRequest(
            f"`.rvq` files hold {CODE_GROUPS} groups of codes below {CODEBOOK_SIZE}; voice "
            f"{saved.name!r} has {len(codes)} groups of codes up to {codes.max()}: export it as "
            f"`{SUFFIX}`"
        )


def _latents(path: Path, transcript: str | None) -> engine.Voice:
    codes, beside = path.with_suffix(".rvq"), path.with_suffix(".txt")
    told = "--ref-text"
    if transcript is None and codes.exists() and beside.exists():
        transcript, told = _transcript(beside), str(beside)
    with renamed({"spk": str(path), "rvq": str(codes), "ref_text": told}):
        embedding = engine.unpack_spk(path.read_bytes())
        if not LEAST_WIDTH <= embedding.size <= MOST_WIDTH:
            raise InvalidRequest(
                f"`spk` holds {embedding.size} values; a voice has {LEAST_WIDTH} to {MOST_WIDTH}",
                "spk",
            )
        if transcript is None:
            doubt = ("the codes have no effect without `--ref-text`",) if codes.exists() else ()
            return engine.Voice(embedding, warnings=doubt)
        read = engine.unpack_rvq(codes.read_bytes(), CODE_GROUPS, CODEBOOK_SIZE)
        return engine.Voice(embedding, read, transcript, warnings=doubts(read, transcript, FRAME_S))


def _transcript(path: Path) -> str | None:
    try:
        return path.read_text("utf-8-sig").strip() or None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{str(path)!r} is no text in UTF-8") from None


__all__ = ["export_voice", "import_voice"]
