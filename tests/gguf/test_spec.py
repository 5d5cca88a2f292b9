"""Specs are read from the metadata, and every value that cannot be used is named."""

import pytest

from engine.config import CodecTokens, DecoderSpec, GenerationDefaults, Speaker, TextTokens
from engine.convert.checkpoint import convert_checkpoint
from engine.errors import ModelFileError
from engine.gguf.spec import read_codec_spec, read_model_spec, read_talker_spec
from engine.gguf.tensors import TensorFile
from tests.checkpoints import CONTROL, LANGUAGES, SPEAKERS, Case, Codec, Stack, make_checkpoint
from tests.gguf.files import rewrite

CASE = Case(
    talker=Stack(hidden=64, ffn=96, layers=1, heads=4, kv_heads=2, head_dim=16),
    predictor=Stack(hidden=48, ffn=64, layers=1, heads=4, kv_heads=2, head_dim=12),
    codec=Codec(upsample_rates=(4, 3), upsampling_ratios=(2,)),
)
TOKENS = 299


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    out = tmp_path_factory.mktemp("spec")
    return convert_checkpoint(make_checkpoint(CASE, out / "checkpoint"), out, "f32")


def talker_refusal(files, tmp_path, changes, drop="") -> str:
    path = rewrite(files.talker, tmp_path / "changed.gguf", changes, drop)
    with TensorFile(path) as file, pytest.raises(ModelFileError) as caught:
        read_talker_spec(file)
    return str(caught.value)


def codec_refusal(files, tmp_path, changes, drop="") -> str:
    path = rewrite(files.codec, tmp_path / "changed.gguf", changes, drop)
    with TensorFile(path) as file, pytest.raises(ModelFileError) as caught:
        read_codec_spec(file)
    return str(caught.value)


def test_every_fact_of_a_talker_file_is_in_its_spec(files):
    with TensorFile(files.talker) as file:
        spec = read_talker_spec(file)
        first_text = file.metadata["tokenizer.ggml.tokens"].index("<|im_start|>")
    assert (spec.name, spec.task, spec.size) == (
        "Qwen3-TTS-12Hz-1.7B-custom_voice",
        "custom_voice",
        "1b7",
    )
    assert (spec.code_groups, spec.vocab, spec.predictor_vocab) == (4, 1088, 64)
    assert spec.suppressed == range(64, 1088)
    assert spec.talker == DecoderSpec(64, 96, 1, 4, 2, 16, 1e6, 1e-6, 32768)
    assert spec.predictor == DecoderSpec(48, 64, 1, 4, 2, 12, 1e6, 1e-6, 32768)
    assert spec.predictor_projection
    assert spec.codec_tokens == CodecTokens(*(64 + offset for offset in CONTROL.values()))
    assert spec.text_tokens == TextTokens(*(first_text + offset for offset in (0, 1, 3, 4, 5)))
    assert spec.languages == {name: 64 + offset for name, offset in LANGUAGES.items()}
    assert spec.speakers == (
        Speaker("vivian", 64 + SPEAKERS["vivian"]),
        Speaker("ryan", 64 + SPEAKERS["ryan"]),
        Speaker("eric", 64 + SPEAKERS["eric"], "sichuan_dialect"),
        Speaker("dylan", 64 + SPEAKERS["dylan"], "beijing_dialect"),
    )
    assert spec.generation == GenerationDefaults(
        True, 0.9, 50, 1.0, 1.05, True, 0.9, 50, 1.0, max_new_tokens=2048
    )


def test_every_fact_of_a_codec_file_is_in_its_spec(files):
    with TensorFile(files.codec) as file:
        spec = read_codec_spec(file)
    assert (spec.sample_rate, spec.samples_per_frame, spec.frame_rate) == (24000, 24, 1000.0)
    assert (spec.quantizers, spec.semantic_quantizers, spec.codebook_size) == (4, 1, 64)
    assert (spec.codebook_dim, spec.codebook_width, spec.latent_dim, spec.decoder_dim) == (
        32,
        16,
        32,
        32,
    )
    assert spec.transformer == DecoderSpec(32, 48, 2, 2, 2, 16, 10000.0, 1e-5, 72)
    assert (spec.window, spec.upsample_rates, spec.upsampling_ratios) == (72, (4, 3), (2,))


def test_the_width_of_a_codebook_comes_from_its_tensor_and_not_from_the_literal(files):
    with TensorFile(files.codec) as file:
        assert file.metadata["qwen3-tts-tokenizer.decoder.codebook_dim_internal"] == 256
        assert read_codec_spec(file).codebook_width == 16


def test_a_speaker_encoder_is_found_by_its_tensors_and_not_by_its_keys(files, tmp_path):
    base = Case(task="base", talker=CASE.talker, predictor=CASE.predictor, codec=CASE.codec)
    with_encoder = convert_checkpoint(make_checkpoint(base, tmp_path / "base"), tmp_path, "f32")
    for path, present in ((files.talker, False), (with_encoder.talker, True)):
        with TensorFile(path) as file:
            assert "qwen3-tts.spk_enc.embedding_length" in file.metadata
            assert (read_talker_spec(file).speaker_encoder is not None) is present


def test_equal_widths_have_no_predictor_projection(tmp_path):
    case = Case(talker=CASE.predictor, predictor=CASE.predictor, codec=CASE.codec)
    files = convert_checkpoint(make_checkpoint(case, tmp_path / "checkpoint"), tmp_path, "f32")
    with TensorFile(files.talker) as file:
        assert not read_talker_spec(file).predictor_projection


def test_keys_that_older_files_lack_are_not_required(files, tmp_path):
    optional = (
        "general.name",
        "qwen3-tts.tokenizer_type",
        "qwen3-tts.talker.position_id_per_seconds",
        "qwen3-tts.talker.rope.mrope_section",
        "qwen3-tts.talker.mrope_interleaved",
        "qwen3-tts.codec.language_names",
        "qwen3-tts.codec.language_ids",
        "qwen3-tts.codec.speaker_names",
        "qwen3-tts.codec.speaker_ids",
        "qwen3-tts.codec.speaker_dialects",
        "generation.temperature",
        "generation.do_sample",
    )
    path = rewrite(files.talker, tmp_path / "older.gguf", dict.fromkeys(optional))
    with TensorFile(path) as file:
        spec = read_talker_spec(file)
    assert (spec.name, spec.languages, spec.speakers) == ("older", {}, ())
    assert (spec.generation.temperature, spec.generation.do_sample) == (None, True)
    assert spec.generation.top_k == 50


def test_speakers_without_a_dialect_table_have_none(files, tmp_path):
    changes = {"qwen3-tts.codec.speaker_dialects": None}
    with TensorFile(rewrite(files.talker, tmp_path / "m.gguf", changes)) as file:
        assert {speaker.dialect for speaker in read_talker_spec(file).speakers} == {None}


def test_both_files_make_one_model(files):
    spec = read_model_spec(files.talker, files.codec)
    assert (spec.talker_path, spec.codec_path) == (files.talker, files.codec)
    assert spec.name == "Qwen3-TTS-12Hz-1.7B-custom_voice"


def test_swapped_files_are_recognised(files):
    with pytest.raises(ModelFileError, match=r"is a codec file.*were the two swapped"):
        read_model_spec(files.codec, files.talker)
    with pytest.raises(ModelFileError, match=r"is a talker file.*were the two swapped"):
        read_model_spec(files.talker, files.talker)


@pytest.mark.parametrize("refusal", [talker_refusal, codec_refusal])
def test_another_architecture_is_named(files, tmp_path, refusal):
    message = refusal(files, tmp_path, {"general.architecture": "llama"})
    assert "`general.architecture` is `llama`, which is not supported" in message


TALKER_FAULTS = [
    ("qwen3-tts.model_type", "singer", "one of `custom_voice`, `voice_design`, `base`"),
    ("qwen3-tts.model_type", None, "is missing"),
    ("qwen3-tts.model_size", None, "is missing"),
    ("qwen3-tts.tokenizer_type", "qwen3_tts_tokenizer_25hz", "`qwen3_tts_tokenizer_12hz`"),
    ("qwen3-tts.num_code_groups", 1, "an integer from 2 to 64"),
    ("qwen3-tts.num_code_groups", 65, "an integer from 2 to 64"),
    ("qwen3-tts.num_code_groups", "four", "is 'four'; it must be an integer"),
    ("qwen3-tts.num_code_groups", True, "is True; it must be an integer"),
    ("qwen3-tts.talker.vocab_size", 1024, "an integer from 1025"),
    ("qwen3-tts.talker.vocab_size", None, "is missing"),
    ("qwen3-tts.talker.block_count", 1025, "an integer from 1 to 1024"),
    ("qwen3-tts.talker.block_count", 0, "an integer from 1 to 1024"),
    ("qwen3-tts.talker.embedding_length", (1 << 20) + 1, "an integer from 1 to 1048576"),
    ("qwen3-tts.talker.attention.head_count", 5, "a multiple of 2"),
    ("qwen3-tts.talker.attention.key_length", 15, "a multiple of 2"),
    ("qwen3-tts.talker.rope.freq_base", "high", "a number"),
    ("qwen3-tts.talker.rope.freq_base", 0.5, "a number from 1 to"),
    ("qwen3-tts.talker.rope.freq_base", float("nan"), "a number from 1 to"),
    ("qwen3-tts.code_pred.block_count", None, "is missing"),
    ("qwen3-tts.code_pred.attention.layer_norm_rms_epsilon", -1.0, "a number from 0 to 1"),
    ("qwen3-tts.codec.eos_id", 1088, "an integer from 0 to 1087"),
    ("qwen3-tts.codec.pad_id", -1, "an integer from 0 to 1087"),
    ("qwen3-tts.codec.think_id", None, "is missing"),
    ("qwen3-tts.text.tts_eos_id", 1 << 30, "an integer from 0 to"),
    (
        "qwen3-tts.codec.language_ids",
        [70],
        "12 ids, one per entry of `qwen3-tts.codec.language_names`",
    ),
    ("qwen3-tts.codec.language_ids", None, "is missing"),
    ("qwen3-tts.codec.language_names", ["english"], "an array of 1 ids"),
    ("qwen3-tts.codec.language_names", [1], "an array of strings"),
    ("qwen3-tts.codec.speaker_ids", [65, 66, 67, 1088], "ids below the vocabulary size 1088"),
    ("qwen3-tts.codec.speaker_dialects", ["", ""], "an array of 4 strings"),
    ("qwen3-tts.codec.speaker_dialects", ["", "", "", "klingon"], "has 'klingon'; each must be"),
    ("generation.temperature", -0.5, "a number from 0 to 100"),
    ("generation.top_p", 1.5, "a number from 0 to 1"),
    ("generation.top_k", 2.5, "an integer from 0"),
    ("generation.do_sample", 1, "true or false"),
]


@pytest.mark.parametrize(("key", "value", "expected"), TALKER_FAULTS)
def test_a_talker_value_that_cannot_be_used_is_named(files, tmp_path, key, value, expected):
    message = talker_refusal(files, tmp_path, {key: value})
    assert f"`{key}`" in message
    assert expected in message


def test_more_tokens_than_text_embeddings_are_refused(files, tmp_path):
    message = talker_refusal(files, tmp_path, {"qwen3-tts.talker.text_vocab_size": TOKENS})
    assert "`tokenizer.ggml.tokens` has 300 tokens, more than the 299 rows" in message


CODEC_FAULTS = [
    ("decoder.num_quantizers", 1, "an integer from 2 to 64"),
    ("decoder.num_semantic_quantizers", 4, "an integer from 1 to 3"),
    ("decoder.num_attention_heads", 3, "a multiple of 2"),
    ("decoder.sliding_window", 0, "an integer from 1"),
    ("decoder.sliding_window", 1 << 20, "an integer from 1 to 1024"),
    ("decoder.upsample_rates", [4, 0], "integers from 1 to 256"),
    ("decoder.upsample_rates", [1] * 17, "an array of 1 to 16 integers"),
    ("decoder.upsample_rates", None, "is missing"),
    ("decoder.upsampling_ratios", 2, "an array of 1 to 16 integers"),
    ("decoder.decoder_dim", 34, "a multiple of 4"),
    ("decode_upsample_rate", 25, "24, the product of `decoder.upsample_rates`"),
    ("decode_upsample_rate", 1 << 20, "an integer from 1 to 65536"),
    ("output_sample_rate", 0, "an integer from 1000"),
]


@pytest.mark.parametrize(("key", "value", "expected"), CODEC_FAULTS)
def test_a_codec_value_that_cannot_be_used_is_named(files, tmp_path, key, value, expected):
    message = codec_refusal(files, tmp_path, {f"qwen3-tts-tokenizer.{key}": value})
    assert f"`qwen3-tts-tokenizer.{key}`" in message
    assert expected in message


def test_a_codec_without_its_first_codebook_is_refused(files, tmp_path):
    message = codec_refusal(files, tmp_path, {}, drop="tok_dec.vq_first.0")
    assert "has no tensor `tok_dec.vq_first.0.codebook`" in message


def test_a_codebook_of_another_size_than_the_metadata_says_is_refused(files, tmp_path):
    message = codec_refusal(files, tmp_path, {"qwen3-tts-tokenizer.decoder.codebook_size": 65})
    assert "is [64, 16]; `decoder.codebook_size` asks for [65, width]" in message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"qwen3-tts.num_code_groups": 5}, "the talker makes 5 codes per frame"),
        ({"qwen3-tts.talker.vocab_size": 1089}, "`talker.vocab_size` allows 65 codes"),
        ({"qwen3-tts.code_pred.vocab_size": 65}, "`code_pred.vocab_size` allows 65 codes"),
    ],
)
def test_files_that_disagree_do_not_make_a_model(files, tmp_path, changes, expected):
    talker = rewrite(files.talker, tmp_path / "talker.gguf", changes)
    with pytest.raises(ModelFileError, match="do not belong together") as caught:
        read_model_spec(talker, files.codec)
    assert expected in str(caught.value)
