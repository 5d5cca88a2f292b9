"""`framecast say`: one text into a file or down a pipe, with the engine in this process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import engine
from engine import Audio, Finished, GenerationFailed, InvalidRequest, Stats
from server.audio.encoders import available_formats
from server.audio.formats import FORMATS
from server.audio.sound import Shape, SoundMaker
from server.names import Names
from server.schemas.speech import SpeechBody
from server.settings import Settings
from server.voices.cloning import open_registry

BODY_FLAGS = (
    "voice", "language", "instructions", "task_type", "seed", "temperature", "top_k", "top_p",
    "repetition_penalty", "speed", "sample_rate", "loudness_lufs", "max_new_tokens",
    "min_new_tokens", "no_repeat_ngram_size", "subtalker_temperature", "subtalker_top_k",
    "subtalker_top_p",
)  # fmt: skip


def say(loaded: engine.Engine, settings: Settings, arguments: argparse.Namespace) -> int:
    """Speak `arguments.text` into `arguments.output`; returns the exit code.

    The flags mean what the fields of the HTTP body mean, aliases and limits included.
    """
    text = sys.stdin.read() if arguments.text == "-" else arguments.text
    given = {name: getattr(arguments, name) for name in BODY_FLAGS}
    body = SpeechBody.checked({"input": text, **given})
    registry = open_registry(settings)
    registry.refresh()  # `restore` is for whoever serves: it renames broken files
    names = Names(loaded.models, settings.voice_aliases, saved=registry)
    model = names.model(None, body.wanted_task(names))
    request = body.to_request(model, names, settings.max_input_chars)
    save = _saver(arguments.output, body.shape())
    stream = loaded.speak(request)
    try:
        for warning in stream.warnings:
            print(f"framecast: {warning}", file=sys.stderr)
        finished = save(stream)
    finally:
        stream.cancel()
    if arguments.verbose:
        print(f"spoken: {stream.spoken_text}", file=sys.stderr)
    _report(finished, stream.seed, model, arguments.verbose)
    return 0


def _saver(output: str, shape: Shape) -> _Saver | _Printer:
    if output == "-":
        return _Printer(replace(shape, format=FORMATS["wav"]))
    path = Path(output)
    name = path.suffix.lower().removeprefix(".")
    if name not in available_formats() or not name:
        works = ", ".join(f"`.{entry}`" for entry in available_formats())
        raise InvalidRequest(f"`--output` {path.name!r}: the ending must be one of {works}")
    if not path.parent.is_dir():
        raise InvalidRequest(f"`--output` {str(path)!r}: there is no folder {str(path.parent)!r}")
    return _Saver(path, replace(shape, format=FORMATS[name]))


class _Saver:
    def __init__(self, path: Path, shape: Shape) -> None:
        self.path = path
        self.shape = shape

    def __call__(self, stream: engine.Stream | engine.Utterance) -> Finished:
        maker = SoundMaker(self.shape, stream.sample_rate, whole=True)
        for item in _watched(stream):
            if isinstance(item, Finished):
                self.path.write_bytes(maker.finish())
                return item
            maker.write(item.pcm)
        raise AssertionError("a stream ends with Finished or raises")


class _Printer:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __call__(self, stream: engine.Stream | engine.Utterance) -> Finished:
        out = sys.stdout.buffer
        maker = SoundMaker(self.shape, stream.sample_rate)
        for item in _watched(stream):
            out.write(maker.finish() if isinstance(item, Finished) else maker.write(item.pcm))
            out.flush()
            if isinstance(item, Finished):
                return item
        raise AssertionError("a stream ends with Finished or raises")


def _watched(stream: engine.Stream | engine.Utterance) -> Iterator[Audio | Finished]:
    """The stream's items, with the seconds made so far shown on a terminal."""
    samples = 0
    for item in stream:
        if isinstance(item, Audio):
            samples += item.pcm.size
            if sys.stderr.isatty():
                seconds = samples / stream.sample_rate
                print(f"\r{seconds:.1f} s of sound", end="", file=sys.stderr, flush=True)
            if not item.pcm.size:
                continue
        elif not samples:
            raise GenerationFailed("the model produced no audio")
        yield item
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _report(finished: Finished, seed: int, model: engine.ModelInfo, verbose: bool) -> None:
    stats = finished.stats
    seconds = stats.frames * model.samples_per_frame / model.sample_rate
    print(
        f"{seconds:.2f} s of sound in {stats.total_s:.2f} s, ended by {finished.reason}, "
        f"seed {seed}",
        file=sys.stderr,
    )
    if verbose:
        _report_stages(stats, stats.total_s / seconds)


def _report_stages(stats: Stats, real_time_factor: float) -> None:
    stages = ("queue", "prefill", "talker", "predictor", "codec", "first_audio", "total")
    for stage in stages:
        milliseconds = getattr(stats, f"{stage}_s") * 1000
        print(f"{stage.replace('_', ' '):12}{milliseconds:10.1f} ms", file=sys.stderr)
    print(f"{'real time':12}{real_time_factor:10.3f} (below 1 is faster)", file=sys.stderr)


__all__ = ["say"]
