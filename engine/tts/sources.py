"""Whose voice a request asks for, checked against what the model can do. No tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.config import ModelSpec
from engine.errors import InvalidRequest, ModelFileError, UnsupportedMode
from engine.request import SpeechRequest
from engine.text.pace import Fit, fit
from engine.voice import F32, I64, Clip, Voice, tail_samples


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A cloned voice as far as it is known before the worker has heard the clip.

    Args:
        vector: F32[talker hidden].
        codes: int64[groups, frames], of an in-context clone.
        clip, tail_s: the clip both are still to be made of; tail None is for the vector alone.
        transcript: what codes or clip say.
        warnings: what the caller should know.
    """

    vector: F32 | None = None
    codes: I64 | None = None
    clip: Clip | None = None
    tail_s: float | None = None
    transcript: str | None = None
    warnings: tuple[str, ...] = ()


NOBODY = Source()


def source(request: SpeechRequest, spec: ModelSpec) -> Source:
    """The cloned voice a request brings, `NOBODY` when it brings none.

    Raises:
        InvalidRequest: more than one, or one that is not sound; names the field.
        UnsupportedMode: the model cannot speak in it; says what it would take.
    """
    tail_samples(request.ref_tail_silence)
    given = _given(request)
    if len(given) > 1:
        names = " and ".join(f"`{name}`" for name in given)
        raise InvalidRequest(f"{names} exclude each other: a request has one voice", given[1])
    if request.reference_text is not None and given not in (["reference"], ["reference_codes"]):
        raise InvalidRequest(
            "`reference_text` needs `reference` or `reference_codes`, whose words it is",
            "reference_codes",
        )
    if isinstance(request.voice, Voice):
        check_voice(request.voice, spec, "voice")
        voice = request.voice
        return Source(voice.embedding, voice.codes, transcript=voice.transcript)
    if request.reference is not None:
        return _of_clip(request.reference, request, spec)
    if request.speaker_embedding is not None or request.reference_codes is not None:
        return _of_arrays(request, spec)
    return NOBODY


def check_voice(voice: Voice, spec: ModelSpec, field: str = "voice") -> None:
    """Refuse a voice a model cannot speak in.

    Raises:
        UnsupportedMode: no Base model, or one of other widths.
        InvalidRequest: the codes do not fit the codec.
    """
    _needs_base(spec, "a cloned voice", field)
    width = spec.talker.talker.hidden
    if voice.embedding is not None and len(voice.embedding) != width:
        raise UnsupportedMode(
            f"the vector of `{field}` has {len(voice.embedding)} values; the model {spec.name!r}"
            f" speaks with {width}: make the voice with this model",
            field,
        )
    if voice.codes is not None:
        _check_codes(voice.codes, spec, field)


def check_clip(spec: ModelSpec, *, codes: bool, field: str = "ref_audio") -> None:
    """Refuse a clip the model has no encoder for.

    Raises:
        UnsupportedMode: the model's files have no such encoder.
        ModelFileError: the encoder does not fit the talker.
    """
    _needs_base(spec, "a voice taken from a clip", field)
    encoder, width = spec.talker.speaker_encoder, spec.talker.talker.hidden
    if encoder is None:
        raise UnsupportedMode(
            f"the model {spec.name!r} cannot take a voice from sound: its file has no speaker"
            " encoder; convert the Base checkpoint with it",
            field,
        )
    if encoder.width != width:
        raise ModelFileError(
            f"`{spec.talker_path}`: the speaker encoder makes {encoder.width} values, the talker"
            f" takes {width}"
        )
    if codes and spec.codec.encoder is None:
        raise UnsupportedMode(
            f"the codec of the model {spec.name!r} has no encoder, so the words of a reference"
            " cannot be used; leave the transcript out",
            field,
        )


def transcript_fit(clip: Clip, transcript: str) -> tuple[Fit, str]:
    """Whether a transcript can be what the clip says, and a sentence about it if that is not sure.

    Raises:
        InvalidRequest: the transcript is blank.
    """
    if not transcript.strip():
        raise InvalidRequest("`ref_text` must say what the clip says", "ref_text")
    found = fit(transcript, clip.speech_s)
    how = "cannot be" if found is Fit.IMPOSSIBLE else "may not be all of"
    return found, (
        f"`ref_text` {how} what the clip says: {len(transcript.strip())} characters for"
        f" {clip.speech_s:.1f} s of speech"
    )


def _given(request: SpeechRequest) -> list[str]:
    vector, codes = request.speaker_embedding is not None, request.reference_codes is not None
    there = {
        "voice": isinstance(request.voice, Voice),
        "reference": request.reference is not None,
        "speaker_embedding": vector and not codes,
        "reference_codes": codes,
    }
    return [name for name, given in there.items() if given]


def _of_clip(clip: Clip, request: SpeechRequest, spec: ModelSpec) -> Source:
    transcript = request.reference_text
    check_clip(spec, codes=transcript is not None, field="reference")
    if transcript is None:
        return Source(clip=clip)
    found, doubt = transcript_fit(clip, transcript)
    warnings = () if found is Fit.SURE else (doubt,)
    tail = request.ref_tail_silence
    return Source(clip=clip, tail_s=tail, transcript=transcript, warnings=warnings)


def _of_arrays(request: SpeechRequest, spec: ModelSpec) -> Source:
    vector, codes = request.speaker_embedding, request.reference_codes
    if vector is not None:
        _check_vector(vector, spec)
    if codes is None:
        return Source(vector)
    _needs_base(spec, "`reference_codes`", "reference_codes")
    _check_codes(codes, spec, "reference_codes")
    if not (request.reference_text or "").strip():
        raise InvalidRequest("`reference_text` must say what the codes say", "reference_text")
    return Source(vector, codes, transcript=request.reference_text)


def _check_vector(vector: F32, spec: ModelSpec) -> None:
    _needs_base(spec, "`speaker_embedding`", "speaker_embedding")
    width = spec.talker.talker.hidden
    if vector.shape != (width,):
        raise InvalidRequest(
            f"`speaker_embedding` must have {width} values, got {vector.size}", "speaker_embedding"
        )
    if not np.isfinite(vector).all():
        raise InvalidRequest("`speaker_embedding` must hold finite numbers", "speaker_embedding")


def _check_codes(codes: I64, spec: ModelSpec, field: str) -> None:
    groups, size = spec.talker.code_groups, spec.codec.codebook_size
    what = f"`{field}`" if field == "reference_codes" else f"the codes of `{field}`"
    if codes.ndim != 2 or codes.shape[0] != groups or codes.shape[1] == 0:
        raise InvalidRequest(f"{what} must be [{groups}, frames], got {list(codes.shape)}", field)
    if not np.issubdtype(codes.dtype, np.integer):
        raise InvalidRequest(f"{what} must be integers", field)
    if codes.min() < 0 or codes.max() >= size:
        raise InvalidRequest(f"{what} must lie in 0..{size - 1}", field)


def _needs_base(spec: ModelSpec, what: str, field: str) -> None:
    if spec.talker.task != "base":
        raise UnsupportedMode(
            f"{what} needs a Base model; {spec.name!r} is a {spec.talker.task} model", field
        )


__all__ = ["NOBODY", "Source", "check_clip", "check_voice", "source", "transcript_fit"]
