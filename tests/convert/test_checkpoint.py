"""Checkpoints in the official layout become the peer's two files, or nothing at all."""

import errno
import json
import os
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from gguf import GGUFReader

from engine.convert import checkpoint as checkpoint_module
from engine.convert.checkpoint import convert_checkpoint
from engine.errors import InvalidRequest, ModelFileError
from engine.gguf.spec import read_model_spec
from engine.gguf.tensors import TensorFile
from tests.checkpoints import Case, Codec, Stack, codec_weights, make_checkpoint, talker_weights

SMALL = Stack(hidden=64, ffn=96, layers=1, heads=2, kv_heads=1, head_dim=16)
CODEC = Codec(upsample_rates=(4, 3), upsampling_ratios=(2,))


def case(task="custom_voice", **changes) -> Case:
    return Case(task=task, talker=SMALL, predictor=SMALL, codec=CODEC, **changes)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return make_checkpoint(case(), tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def checkpoint(original, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(original, tmp_path / "checkpoint")


def refusal(checkpoint, tmp_path) -> str:
    out = tmp_path / "out"
    with pytest.raises(ModelFileError) as caught:
        convert_checkpoint(checkpoint, out, "f32")
    assert not out.exists() or list(out.iterdir()) == []
    return str(caught.value)


def edit(path, **changes) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value
    path.write_text(json.dumps(content), encoding="utf-8")


def edit_weights(path, change) -> None:
    weights = safetensors.torch.load_file(path)
    change(weights)
    safetensors.torch.save_file(weights, path)


@pytest.mark.parametrize("task", ["custom_voice", "voice_design", "base"])
def test_each_model_type_converts_and_reads_back(tmp_path, task):
    made = case(task, size="0b6")
    files = convert_checkpoint(
        make_checkpoint(made, tmp_path / "checkpoint"), tmp_path / "out", "q8_0"
    )
    assert (files.talker, files.codec) == (
        tmp_path / "out" / "talker.gguf",
        tmp_path / "out" / "codec.gguf",
    )
    spec = read_model_spec(files.talker, files.codec)
    assert spec.name == f"Qwen3-TTS-12Hz-0.6B-{task}"
    assert (spec.talker.task, spec.talker.size) == (task, "0b6")
    assert [speaker.name for speaker in spec.talker.speakers] == (
        list(made.speakers) if task == "custom_voice" else []
    )
    assert (spec.talker.speaker_encoder is not None) is (task == "base")
    assert (spec.talker.vocab, spec.codec.samples_per_frame) == (made.vocab, 24)


def test_a_size_of_another_form_is_kept_as_it_is(checkpoint, tmp_path):
    edit(checkpoint / "config.json", tts_model_size="tiny")
    files = convert_checkpoint(checkpoint, tmp_path / "out", "f32")
    assert read_model_spec(files.talker, files.codec).name == "Qwen3-TTS-12Hz-tiny-custom_voice"


def test_f32_tensors_equal_the_checkpoint(original, tmp_path):
    files = convert_checkpoint(original, tmp_path, "f32")
    talker, codec = talker_weights(case(), 300), codec_weights(case())
    pairs = [
        (files.talker, "talker.blk.0.attn_q.weight",
         talker, "talker.model.layers.0.self_attn.q_proj.weight"),
        (files.talker, "code_pred.lm_head.2.weight",
         talker, "talker.code_predictor.lm_head.2.weight"),
        (files.codec, "tok_dec.dec.3.snake.beta", codec, "decoder.decoder.3.beta"),
        (files.codec, "tok_dec.dec.4.conv.weight", codec, "decoder.decoder.4.conv.weight"),
        (files.codec, "tok_dec.upsample.0.gamma", codec, "decoder.upsample.0.1.gamma"),
        (files.codec, "tok_enc.blk.1.ffn_up.weight",
         codec, "encoder.encoder_transformer.layers.1.mlp.fc1.weight"),
    ]  # fmt: skip
    for path, name, weights, source in pairs:
        with TensorFile(path) as file:
            assert set(map(file.type_of, file.shapes)) == {"F32"}
            assert np.array_equal(file.load(name).numpy(), weights[source])


def test_codebooks_are_divided_by_usage_and_unused_entries_stay_finite(original, tmp_path):
    weights = codec_weights(case())
    prefix = "decoder.quantizer.rvq_rest.vq.layers.1._codebook"
    usage = weights[f"{prefix}.cluster_usage"]
    assert usage.min() == 0.0
    expected = weights[f"{prefix}.embedding_sum"] / np.maximum(usage, np.float32(1e-5))[:, None]
    files = convert_checkpoint(original, tmp_path, "q4_0")
    with TensorFile(files.codec) as file:
        found = file.load("tok_dec.vq_rest.1.codebook").numpy()
    assert np.array_equal(found, expected)


def test_the_encoder_keeps_as_many_codebooks_as_the_decoder_has(original, tmp_path):
    files = convert_checkpoint(original, tmp_path, "f32")
    with TensorFile(files.codec) as file:
        kept = {name for name in file.shapes if name.startswith("tok_enc.") and "codebook" in name}
    assert kept == {"tok_enc.vq_semantic.0.codebook"} | {
        f"tok_enc.vq_acoustic.{index}.codebook" for index in range(3)
    }


@pytest.mark.parametrize("type_", ["f32", "bf16", "f16", "q8_0", "q5_0", "q4_0"])
def test_each_tensor_is_stored_as_the_policy_says(tmp_path, type_):
    files = convert_checkpoint(
        make_checkpoint(case("base"), tmp_path / "checkpoint"), tmp_path, type_
    )
    asked = type_.upper()
    conv = asked if asked in ("F32", "BF16", "F16") else "F16"
    with TensorFile(files.talker) as talker, TensorFile(files.codec) as codec:
        assert talker.type_of("talker.blk.0.ffn_down.weight") == asked
        assert talker.type_of("talker.codec_embd.weight") == asked
        assert talker.type_of("talker.blk.0.attn_norm.weight") == "F32"
        assert talker.type_of("talker.text_proj.fc2.weight") == conv  # rows of 48
        assert talker.type_of("spk_enc.fc.weight") == "F32"
        assert talker.type_of("spk_enc.conv0.weight") == conv
        assert codec.type_of("tok_dec.pre_tfm.blk.0.attn_q.weight") == asked
        assert codec.type_of("tok_dec.pre_conv.weight") == conv
        assert codec.type_of("tok_dec.vq_first.output_proj.weight") == "F32"
        assert codec.type_of("tok_enc.vq_semantic.input_proj.weight") == "F32"
        assert codec.type_of("tok_dec.dec.1.snake.alpha") == "F32"
        quantised = asked.startswith("Q")
        assert ("general.quantization_version" in talker.metadata) is quantised


def test_a_bf16_source_keeps_its_values(tmp_path):
    made = make_checkpoint(case(), tmp_path / "checkpoint", dtype="BF16", codec_dtype="BF16")
    source = safetensors.torch.load_file(made / "model.safetensors")
    name = "talker.model.codec_embedding.weight"
    assert source[name].dtype == torch.bfloat16
    for type_ in ("f32", "bf16"):
        files = convert_checkpoint(made, tmp_path / type_, type_)
        with TensorFile(files.talker) as file:
            assert torch.equal(file.load("talker.codec_embd.weight"), source[name].float())


def test_shards_give_the_same_bytes_as_one_file(original, tmp_path):
    sharded = make_checkpoint(case(), tmp_path / "sharded", shards=3)
    assert not (sharded / "model.safetensors").exists()
    whole = convert_checkpoint(original, tmp_path / "a", "q8_0")
    parts = convert_checkpoint(sharded, tmp_path / "b", "q8_0")
    assert whole.talker.read_bytes() == parts.talker.read_bytes()
    assert whole.codec.read_bytes() == parts.codec.read_bytes()


def test_progress_counts_every_tensor_of_both_files(original, tmp_path):
    calls = []
    files = convert_checkpoint(original, tmp_path, "f32", progress=lambda *call: calls.append(call))
    names = []
    for path in (files.talker, files.codec):
        with TensorFile(path) as file:
            names += file.shapes
    assert calls == [(name, done + 1, len(names)) for done, name in enumerate(names)]


def test_the_gguf_package_reads_the_files(original, tmp_path):
    files = convert_checkpoint(original, tmp_path, "q8_0")
    reader = GGUFReader(files.talker)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert types["talker.blk.0.attn_q.weight"] == "Q8_0"
    assert reader.fields["tokenizer.ggml.model"].contents() == "gpt2"


def test_metadata_has_the_peers_keys_and_types(tmp_path):
    files = convert_checkpoint(
        make_checkpoint(case("base"), tmp_path / "checkpoint"), tmp_path, "f32"
    )
    fields = GGUFReader(files.talker).fields | GGUFReader(files.codec).fields
    kinds = {name: [kind.name for kind in field.types] for name, field in fields.items()}
    expected = {
        "qwen3-tts.talker.block_count": ["UINT32"],
        "qwen3-tts.talker.rope.freq_base": ["FLOAT32"],
        "qwen3-tts.talker.rope.mrope_section": ["ARRAY", "INT32"],
        "qwen3-tts.talker.mrope_interleaved": ["BOOL"],
        "qwen3-tts.talker.position_id_per_seconds": ["UINT32"],
        "qwen3-tts.spk_enc.sample_rate": ["UINT32"],
        "qwen3-tts.codec.language_ids": ["ARRAY", "INT32"],
        "qwen3-tts.codec.language_names": ["ARRAY", "STRING"],
        "generation.subtalker_do_sample": ["BOOL"],
        "generation.temperature": ["FLOAT32"],
        "generation.max_new_tokens": ["UINT32"],
        "tokenizer.ggml.token_type": ["ARRAY", "INT32"],
        "tokenizer.ggml.eos_token_id": ["UINT32"],
        "qwen3-tts-tokenizer.decoder.upsample_rates": ["ARRAY", "INT32"],
        "qwen3-tts-tokenizer.decoder.codebook_dim_internal": ["UINT32"],
        "qwen3-tts-tokenizer.decoder.rms_norm_eps": ["FLOAT32"],
        "qwen3-tts-tokenizer.encoder.norm_eps": ["FLOAT32"],
        "qwen3-tts-tokenizer.encoder_valid_num_quantizers": ["UINT32"],
    }
    assert {name: kinds.get(name) for name in expected} == expected
    assert "qwen3-tts.codec.speaker_names" not in kinds


def test_the_vocabulary_has_special_tokens_and_placeholders_for_gaps(checkpoint, tmp_path):
    vocab = json.loads((checkpoint / "vocab.json").read_text(encoding="utf-8"))
    edit(
        checkpoint / "tokenizer_config.json",
        added_tokens_decoder={"297": {"content": "<|endoftext|>"}},
    )
    files = convert_checkpoint(checkpoint, tmp_path, "f32")
    with TensorFile(files.talker) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
        types = file.metadata["tokenizer.ggml.token_type"]
        eos = file.metadata["tokenizer.ggml.eos_token_id"]
    assert len(tokens) == len(types) == 298
    assert all(tokens[id_] == token and types[id_] == 1 for token, id_ in vocab.items())
    assert (tokens[297], types[297], eos) == ("<|endoftext|>", 4, 297)
    gaps = range(len(vocab), 297)
    assert len(gaps) > 0
    assert all((tokens[id_], types[id_]) == (f"<|unused-{id_}|>", 5) for id_ in gaps)


def test_merges_of_the_number_sign_are_kept(checkpoint, tmp_path):
    (checkpoint / "merges.txt").write_text("#version: 0.2\na b\n# #\n## #\n", encoding="utf-8")
    files = convert_checkpoint(checkpoint, tmp_path, "f32")
    with TensorFile(files.talker) as file:
        assert file.metadata["tokenizer.ggml.merges"] == ("a b", "# #", "## #")


def test_generation_defaults_are_optional(checkpoint, tmp_path):
    (checkpoint / "generation_config.json").unlink()
    files = convert_checkpoint(checkpoint, tmp_path, "f32")
    assert read_model_spec(files.talker, files.codec).talker.generation.temperature is None


def test_an_unknown_type_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(InvalidRequest, match="`q8_0`") as caught:
        convert_checkpoint(tmp_path / "none", tmp_path / "out", "q4_k")
    assert caught.value.field == "type"


def test_a_checkpoint_that_is_no_directory_is_refused(tmp_path):
    assert "is not a directory" in refusal(tmp_path / "none", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "vocab.json",
        "merges.txt",
        "tokenizer_config.json",
        "speech_tokenizer/config.json",
        "speech_tokenizer/model.safetensors",
    ],
)
def test_a_missing_file_is_named(checkpoint, tmp_path, name):
    (checkpoint / name).unlink()
    message = refusal(checkpoint, tmp_path)
    assert f"`{checkpoint / name}` is missing from the checkpoint" in message


def test_a_missing_speech_tokenizer_is_named(checkpoint, tmp_path):
    shutil.rmtree(checkpoint / "speech_tokenizer")
    assert "speech_tokenizer` is not a directory" in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "speech_tokenizer/config.json"])
def test_damaged_json_is_named_with_its_place(checkpoint, tmp_path, name):
    (checkpoint / name).write_text('{"a": [1,', encoding="utf-8")
    message = refusal(checkpoint, tmp_path)
    assert f"`{checkpoint / name}` is not valid JSON" in message
    assert "line 1" in message


def test_text_that_is_not_utf8_and_json_that_is_no_object_are_named(checkpoint, tmp_path):
    (checkpoint / "merges.txt").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in refusal(checkpoint, tmp_path)
    (checkpoint / "config.json").write_text("[]", encoding="utf-8")
    assert "must be a JSON object" in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("config.json", {"tts_model_type": "singer"}, "one of `custom_voice`, `voice_design`"),
        ("config.json", {"tokenizer_type": "qwen3_tts_tokenizer_25hz"}, "`tokenizer_type` is"),
        ("config.json", {"im_end_token_id": None}, "`im_end_token_id` is missing"),
        ("config.json", {"tts_eos_token_id": -1}, "`tts_eos_token_id` is -1"),
        ("config.json", {"talker_config": []}, "`talker_config` must be a JSON object"),
        ("config.json", {"tts_model_size": 17}, "`tts_model_size` is 17; it must be a string"),
        ("generation_config.json", {"temperature": "hot"}, "`temperature` is 'hot'"),
        ("generation_config.json", {"temperature": 1e300}, "`temperature` is 1e+300; it must be"),
        ("generation_config.json", {"top_p": float("nan")}, "`top_p` is nan; it must be a number"),
        ("generation_config.json", {"top_p": 10**400}, "it must be a number that F32 can hold"),
        ("vocab.json", {"\ud800": 7}, "the key '\\ud800' must not hold lone surrogates"),
        ("vocab.json", {"a": 400}, "`a` is 400; it must be a token id below 306"),
        ("vocab.json", {"a": [[[[[[[[1]]]]]]]]}, "it must be a token id below"),
        ("config.json", {"tts_model_size": "\udfff"}, "`tts_model_size` is '\\udfff'; it must be"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"400": {}}}, "has the key '400'"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9" * 5000: {}}}, "has the key '99"),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"299": {"content": "\ud800"}}},
            "`added_tokens_decoder.299.content` is '\\ud800'",
        ),
        ("generation_config.json", {"do_sample": 1}, "`do_sample` is 1; it must be true or"),
        ("vocab.json", {"a": "x"}, "`a` is 'x'; it must be a token id"),
        ("vocab.json", {"a": 1 << 40}, "it must be a token id below"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}, "has the key 'x'"),
        ("speech_tokenizer/config.json", {"model_type": "mimi"}, "`model_type` is 'mimi'"),
        ("speech_tokenizer/config.json", {"encoder_config": None}, "`encoder_config` is missing"),
    ],
)
def test_a_value_that_cannot_be_converted_is_named(checkpoint, tmp_path, name, changes, expected):
    edit(checkpoint / name, **changes)
    message = refusal(checkpoint, tmp_path)
    assert f"`{checkpoint / name}`" in message
    assert expected in message


@pytest.mark.parametrize("name", ["config.json", "speech_tokenizer/config.json"])
def test_json_that_is_nested_too_deeply_is_named(checkpoint, tmp_path, name):
    (checkpoint / name).write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", encoding="utf-8")
    message = refusal(checkpoint, tmp_path)
    assert f"`{checkpoint / name}`" in message
    assert "nested too deeply" in message


def test_a_vocabulary_never_grows_past_a_million_ids_whatever_the_config_says(checkpoint, tmp_path):
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    talker = config["talker_config"] | {"text_vocab_size": (1 << 32) - 1}
    edit(checkpoint / "config.json", talker_config=talker)
    edit(checkpoint / "vocab.json", a=(1 << 24) - 1)
    assert "`a` is 16777215; it must be a token id below 1048576" in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize("section", ["spk_id", "codec_language_id"])
def test_a_name_that_is_no_text_is_refused(checkpoint, tmp_path, section):
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    talker = config["talker_config"]
    edit(checkpoint / "config.json", talker_config=talker | {section: {"\ud800": 70}})
    assert f"the key 'talker_config.{section}.\\ud800'" in refusal(checkpoint, tmp_path)


@pytest.mark.parametrize(
    "name", ["config.json", "merges.txt", "model.safetensors", "speech_tokenizer/model.safetensors"]
)
def test_a_pipe_in_a_checkpoint_is_refused_without_waiting_for_its_writer(
    checkpoint, tmp_path, name
):
    (checkpoint / name).unlink()
    os.mkfifo(checkpoint / name)
    assert f"`{checkpoint / name}` is not a regular file" in refusal(checkpoint, tmp_path)


def test_a_nested_key_is_named_with_its_section(checkpoint, tmp_path):
    path = checkpoint / "config.json"
    talker = json.loads(path.read_text(encoding="utf-8"))["talker_config"]
    del talker["code_predictor_config"]["head_dim"]
    edit(path, talker_config=talker)
    assert "`talker_config.code_predictor_config.head_dim` is missing" in refusal(
        checkpoint, tmp_path
    )


@pytest.mark.parametrize("part", ["", "speech_tokenizer"])
def test_an_unknown_tensor_is_named(checkpoint, tmp_path, part):
    weights = checkpoint / part / "model.safetensors"
    edit_weights(weights, lambda found: found.update({"decoder.novelty": torch.zeros(3)}))
    assert "unknown tensor `decoder.novelty`" in refusal(checkpoint, tmp_path)


def test_a_tensor_of_integers_is_named(checkpoint, tmp_path):
    name = "talker.model.norm.weight"
    weights = checkpoint / "model.safetensors"
    edit_weights(weights, lambda found: found.update({name: torch.zeros(64, dtype=torch.int32)}))
    message = refusal(checkpoint, tmp_path)
    assert f"`{name}` has the type I32; it must be one of F32, F16, BF16" in message


def test_a_tensor_without_values_is_named(checkpoint, tmp_path):
    name = "talker.model.norm.weight"
    weights = checkpoint / "model.safetensors"
    edit_weights(weights, lambda found: found.update({name: torch.zeros(0)}))
    assert f"`{name}` is [0]" in refusal(checkpoint, tmp_path)


BOOK = "decoder.quantizer.rvq_rest.vq.layers.0._codebook"


@pytest.mark.parametrize("half", ["cluster_usage", "embedding_sum"])
def test_half_a_codebook_is_refused(checkpoint, tmp_path, half):
    weights = checkpoint / "speech_tokenizer" / "model.safetensors"
    edit_weights(weights, lambda found: found.pop(f"{BOOK}.{half}"))
    message = refusal(checkpoint, tmp_path)
    assert BOOK in message
    assert "needs both its embedding sum and its cluster usage" in message


def test_halves_of_different_length_are_refused(checkpoint, tmp_path):
    weights = checkpoint / "speech_tokenizer" / "model.safetensors"
    edit_weights(weights, lambda found: found.update({f"{BOOK}.cluster_usage": torch.ones(63)}))
    message = refusal(checkpoint, tmp_path)
    assert "is [64, 16] and its cluster usage [63]" in message


def test_damaged_weights_are_named(checkpoint, tmp_path):
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    message = refusal(checkpoint, tmp_path)
    assert f"`{weights}` is not a readable safetensors file" in message


def test_an_index_must_match_its_shards(tmp_path):
    made = make_checkpoint(case(), tmp_path / "checkpoint", shards=2)
    index = made / "model.safetensors.index.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    first, *_ = content["weight_map"]
    for shard, expected in (
        ("../outside.safetensors", "which is not a file beside it"),
        ("\ud800.safetensors", r"\ud800.safetensors` is not a readable safetensors file"),
        ("x" * 5000, "File name too long"),
        ("none.safetensors", "none.safetensors` is missing from the checkpoint"),
        ("model-00002-of-00002.safetensors", f"has no tensor `{first}`"),
    ):
        edit(index, weight_map=content["weight_map"] | {first: shard})
        assert expected in refusal(made, tmp_path)


def test_an_aborted_conversion_leaves_nothing_and_spares_what_was_there(original, tmp_path):
    (tmp_path / "talker.gguf").write_bytes(b"an older file")

    def stop(name: str, done: int, total: int) -> None:
        if done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(original, tmp_path, "f32", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["talker.gguf"]
    assert (tmp_path / "talker.gguf").read_bytes() == b"an older file"


def test_an_output_that_cannot_be_written_is_named(original, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"cannot write `.*file"):
        convert_checkpoint(original, blocked, "f32")


def test_a_vocabulary_without_an_end_of_text_token_names_the_published_id(checkpoint, tmp_path):
    edit(checkpoint / "tokenizer_config.json", added_tokens_decoder=None)
    files = convert_checkpoint(checkpoint, tmp_path, "f32")
    with TensorFile(files.talker) as file:
        assert file.metadata["tokenizer.ggml.eos_token_id"] == 151643


def test_a_disk_that_fails_while_writing_is_reported_and_cleaned_up(
    original, tmp_path, monkeypatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "encode", full)
    assert "No space left on device" in refusal(original, tmp_path)
