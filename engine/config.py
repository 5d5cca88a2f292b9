"""Settings of the engine and facts of a model, as frozen data. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from engine.errors import InvalidRequest
from engine.request import Task
from engine.text.steps import DEFAULT_TEXT_STEPS, check_text_steps

Device = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["auto", "f32", "bf16", "f16"]
Kernels = Literal["auto", "plain", "captured"]
Stored = Literal["auto", "f32", "bf16"]

_LEAST = {
    "slots": 1,
    "kv_positions": 64,
    "max_queue": 0,
    "max_queue_s": 0,
    "paragraph_pause_s": 0,
    "max_frames": 1,
    "stream_bytes": 1,
    "read_timeout_s": 0,
    "input_timeout_s": 0,
    "loop_window": 0,
    "loop_max_period": 0,
    "loop_repeats": 1,
    "silence_s": 0,
    "voice_cache_bytes": 0,
}

_CHOICES = {
    "device": Device,
    "dtype": DType,
    "kernels": Kernels,
    "kv_dtype": Stored,
    "codec_dtype": Stored,
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine runs.

    Args:
        kernels: "auto" keeps weights packed as the CPU multiplies them fastest, measured at load,
            and is "captured" on CUDA; "plain" multiplies in `dtype`, as does any other device,
            another `dtype` than "auto", and `reference`; "captured" records whole frames over
            static tensors, multiplied in `dtype` (elsewhere than on CUDA it runs, but slowly).
        kv_dtype: what keys and values are kept in; "auto" is BF16 beside packed weights.
        codec_dtype: what sound is decoded in; "auto" is the faster of BF16 and F32 with packed
            kernels, else `dtype`.
        slots: utterances generated at the same time.
        kv_positions: prompt and generated positions one slot can hold.
        max_queue: requests that may wait for a slot; one more is refused. A tenant with less than
            an equal share of the queue is let in up to twice as many.
        max_queue_s: seconds of sound that may be waiting or being made, with the same exception;
            one job is always let in, 0 is no limit.
        max_frames: ceiling of frames per utterance when the request names none.
        ramp: frames per codec flush of a new stream; the last value repeats.
        stream_bytes: sound a stream holds before its slot is paused.
        read_timeout_s: a full stream nobody reads fails after this long.
        input_timeout_s: a request whose input is open fails when it needs more of it and nothing
            comes for so long.
        loop_window, loop_max_period, loop_repeats: the `loop` guard; window 0 turns it off.
        silence_s, silence_dbfs: the `silence` guard; 0 s turns it off.
        reference: constant batch width and one lane per codec call, so that a slot's result is
            bit-equal whatever runs beside it (F32 only; slower).
        voice_cache_bytes: what is kept, per model, of voices so that they start at once: encoded
            clips, primed codec lanes, prompt prefixes; 0 keeps nothing.
        paragraph_pause_s: silence between the parts of a long text where a paragraph ends.
        terminal_mark: `speak` adds a missing final mark, so that the last word is said whole.
        normalize: steps of the text front end for requests that name none.
        lexicon: a file of respellings for its step `lexicon`.
        strict_instructions: refuse instructions a model cannot use instead of warning.
        nan_fill: fill unused cache rows with NaN, so that a stray read cannot pass (tests).
    """

    device: Device = "auto"
    dtype: DType = "auto"
    kernels: Kernels = "auto"
    kv_dtype: Stored = "auto"
    codec_dtype: Stored = "auto"
    slots: int = 8
    kv_positions: int = 2560
    max_queue: int = 64
    max_queue_s: float = 1800.0
    max_frames: int = 2048
    ramp: tuple[int, ...] = (1, 1, 2, 4, 8)
    stream_bytes: int = 4 * 1024 * 1024
    read_timeout_s: float = 30.0
    input_timeout_s: float = 30.0
    loop_window: int = 64
    loop_max_period: int = 16
    loop_repeats: int = 4
    silence_s: float = 3.0
    silence_dbfs: float = -50.0
    reference: bool = False
    voice_cache_bytes: int = 256 * 1024 * 1024
    paragraph_pause_s: float = 0.4
    terminal_mark: bool = True
    normalize: tuple[str, ...] = DEFAULT_TEXT_STEPS
    lexicon: Path | None = None
    strict_instructions: bool = False
    nan_fill: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot work; raises `InvalidRequest` naming the field."""
        for name, low in _LEAST.items():
            if not getattr(self, name) >= low:  # NaN too
                raise InvalidRequest(
                    f"`{name}` must be at least {low}, got {getattr(self, name)}", name
                )
        for name, choices in _CHOICES.items():
            known = get_args(choices)
            if getattr(self, name) not in known:
                raise InvalidRequest(
                    f"`{name}` must be one of {', '.join(known)}, got {getattr(self, name)!r}", name
                )
        check_text_steps(self.normalize)
        if not self.ramp or min(self.ramp) < 1:
            raise InvalidRequest(f"`ramp` must hold frame counts, got {self.ramp}", "ramp")
        if self.reference and self.dtype not in {"auto", "f32"}:
            raise InvalidRequest(f"`reference` needs `dtype` f32, got {self.dtype}", "reference")
        for name in ("kv_dtype", "codec_dtype"):
            if self.reference and getattr(self, name) == "bf16":
                raise InvalidRequest(f"`reference` needs `{name}` f32, got bf16", "reference")
        if self.reference and self.kernels == "captured":
            raise InvalidRequest("`reference` needs `kernels` plain, got captured", "reference")


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Widths of one Qwen3-style decoder stack."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    context: int


@dataclass(frozen=True, slots=True)
class Speaker:
    """A named speaker: its codec-embedding row and, for some, a dialect's language name."""

    name: str
    id: int
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class CodecTokens:
    """Control ids of the talker's codec vocabulary."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class TextTokens:
    """Control ids of the text vocabulary."""

    im_start: int
    im_end: int
    tts_pad: int
    tts_bos: int
    tts_eos: int


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """The file's `generation.*` keys; None where it has none."""

    do_sample: bool = True
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    subtalker_do_sample: bool = True
    subtalker_temperature: float | None = None
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SpeakerEncoderSpec:
    """Widths of the speaker encoder, all from its tensors."""

    mels: int
    channels: int
    kernel: int  # of the first convolution
    blocks: int  # SE-Res2Net blocks
    block_kernel: int
    scale: int  # groups of channels in a Res2Net block
    squeezed: int  # bottleneck of squeeze and excitation
    attention: int  # bottleneck of the attentive pooling
    width: int  # of the vector

    @property
    def reach(self) -> int:
        """How many mel frames the most dilated convolution looks to either side."""
        return (self.blocks + 1) * (self.block_kernel // 2)


@dataclass(frozen=True, slots=True)
class CodecEncoderSpec:
    """Widths of the codec encoder: convolutions, transformer and residual quantizers."""

    sample_rate: int
    samples_per_frame: int
    filters: int
    kernel: int
    last_kernel: int
    residual_kernel: int
    residual_layers: int
    dilation_growth: int
    compress: int  # a residual block narrows its channels by this
    strides: tuple[int, ...]  # in the order they are applied
    downsample_stride: int  # after the transformer
    downsample_kernel: int
    transformer: DecoderSpec
    semantic_quantizers: int
    acoustic_quantizers: int
    codebook_size: int
    codebook_width: int


@dataclass(frozen=True, slots=True)
class TalkerSpec:
    """A talker file: text side, talker and code predictor."""

    name: str
    task: Task
    size: str  # "0b6", "1b7": as the file says
    code_groups: int
    talker: DecoderSpec
    vocab: int
    text_vocab: int
    text_hidden: int
    predictor: DecoderSpec
    predictor_vocab: int
    predictor_projection: bool  # `mtp_proj` exists: the widths differ
    codec_tokens: CodecTokens
    text_tokens: TextTokens
    languages: Mapping[str, int]
    speakers: tuple[Speaker, ...]
    generation: GenerationDefaults
    speaker_encoder: SpeakerEncoderSpec | None = None

    @property
    def suppressed(self) -> range:
        """The reserved ids; all but eos are never sampled."""
        return range(self.vocab - 1024, self.vocab)


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """A codec file: the decoder's widths, and the encoder's where there is one."""

    sample_rate: int
    samples_per_frame: int
    quantizers: int
    semantic_quantizers: int
    codebook_size: int
    codebook_dim: int  # width after the output projections
    codebook_width: int  # width of a codebook vector: the tensor shape, not the metadata
    latent_dim: int
    decoder_dim: int
    transformer: DecoderSpec
    window: int  # positions a query sees, its own included
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]
    encoder: CodecEncoderSpec | None = None

    @property
    def frame_rate(self) -> float:
        return self.sample_rate / self.samples_per_frame


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One loaded model: a talker file and the codec file it speaks through."""

    talker: TalkerSpec
    codec: CodecSpec
    talker_path: Path
    codec_path: Path

    @property
    def name(self) -> str:
        return self.talker.name


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model's two files lie and what it is called (None: the talker file's name)."""

    talker: Path
    codec: Path
    name: str | None = None


__all__ = [
    "CodecEncoderSpec",
    "CodecSpec",
    "CodecTokens",
    "DType",
    "DecoderSpec",
    "Device",
    "EngineConfig",
    "GenerationDefaults",
    "Kernels",
    "ModelFiles",
    "ModelSpec",
    "Speaker",
    "SpeakerEncoderSpec",
    "Stored",
    "TalkerSpec",
    "TextTokens",
]
