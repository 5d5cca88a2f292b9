"""The widths of the bundled voice, in the engine's own terms, shared by every later step."""

from __future__ import annotations

from teacher import CODES, SPEAKERS

from engine.config import (
    CodecSpec,
    CodecTokens,
    DecoderSpec,
    GenerationDefaults,
    Speaker,
    TalkerSpec,
    TextTokens,
)

GROUPS = 6


def _stack(hidden: int, ffn: int, layers: int, heads: int, kv_heads: int) -> DecoderSpec:
    return DecoderSpec(
        hidden=hidden,
        ffn=ffn,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        rope_theta=10000.0,
        norm_eps=1e-6,
        context=32768,
    )


def codec_spec() -> CodecSpec:
    return CodecSpec(
        sample_rate=24000,
        samples_per_frame=1920,
        quantizers=GROUPS,
        semantic_quantizers=1,
        codebook_size=CODES,
        codebook_dim=432,
        codebook_width=216,
        latent_dim=256,
        decoder_dim=256,
        transformer=_stack(320, 640, 3, 5, 5),
        window=72,
        upsample_rates=(1, 1, 64),
        upsampling_ratios=(30, 1),
    )


def talker_spec(text_vocab: int, first_special: int) -> TalkerSpec:
    """`first_special` is the id of `<|endoftext|>`, which the other markers follow."""
    reserved = {"pad": 100, "bos": 101, "eos": 102, "think": 106, "nothink": 107}
    reserved |= {"think_bos": 108, "think_eos": 109}
    special = ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos")
    return TalkerSpec(
        name="framecast-voice",
        task="custom_voice",
        size="0b6",
        code_groups=GROUPS,
        talker=_stack(256, 640, 5, 4, 2),
        vocab=CODES + 1024,
        text_vocab=text_vocab,
        text_hidden=256,
        predictor=_stack(128, 320, 2, 4, 2),
        predictor_vocab=CODES,
        predictor_projection=True,
        codec_tokens=CodecTokens(**{name: CODES + at for name, at in reserved.items()}),
        text_tokens=TextTokens(**{name: first_special + 1 + i for i, name in enumerate(special)}),
        languages={"english": CODES + 2},
        speakers=tuple(Speaker(name, CODES + 200 + i) for i, name in enumerate(SPEAKERS)),
        generation=GenerationDefaults(),
    )


__all__ = ["GROUPS", "codec_spec", "talker_spec"]
