"""Official tensor names translate to the peer's, whatever the number of layers or stages."""

import pytest

from engine.gguf.names import codebook_name, codec_name, is_unused, talker_name


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("talker.model.text_embedding.weight", "talker.text_embd.weight"),
        ("talker.model.layers.27.self_attn.q_norm.weight", "talker.blk.27.attn_q_norm.weight"),
        ("talker.model.layers.0.mlp.down_proj.weight", "talker.blk.0.ffn_down.weight"),
        ("talker.text_projection.linear_fc2.bias", "talker.text_proj.fc2.bias"),
        ("talker.code_predictor.model.layers.4.self_attn.o_proj.weight",
         "code_pred.blk.4.attn_output.weight"),
        ("talker.code_predictor.model.codec_embedding.14.weight", "code_pred.codec_embd.14.weight"),
        ("talker.code_predictor.lm_head.3.weight", "code_pred.lm_head.3.weight"),
        ("talker.code_predictor.small_to_mtp_projection.bias", "code_pred.mtp_proj.bias"),
        ("speaker_encoder.blocks.0.conv.bias", "spk_enc.conv0.bias"),
        ("speaker_encoder.blocks.2.res2net_block.blocks.6.conv.weight",
         "spk_enc.blk.2.res2net.6.weight"),
        ("speaker_encoder.blocks.3.se_block.conv2.weight", "spk_enc.blk.3.se.conv2.weight"),
        ("speaker_encoder.asp.tdnn.conv.weight", "spk_enc.asp.tdnn.weight"),
        ("speaker_encoder.fc.weight", "spk_enc.fc.weight"),
    ],
)  # fmt: skip
def test_a_talker_tensor_gets_its_name(source, target):
    assert talker_name(source) == target
    assert codec_name(source) is None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("decoder.pre_conv.conv.weight", "tok_dec.pre_conv.weight"),
        ("decoder.pre_transformer.norm.weight", "tok_dec.pre_tfm.norm.weight"),
        ("decoder.pre_transformer.layers.7.mlp_layer_scale.scale",
         "tok_dec.pre_tfm.blk.7.ffn_scale"),
        ("decoder.upsample.1.1.dwconv.conv.bias", "tok_dec.upsample.1.dwconv.bias"),
        ("decoder.upsample.0.1.gamma", "tok_dec.upsample.0.gamma"),
        ("decoder.decoder.0.conv.weight", "tok_dec.dec.0.conv.weight"),
        ("decoder.decoder.4.block.0.beta", "tok_dec.dec.4.snake.beta"),
        ("decoder.decoder.4.block.1.conv.bias", "tok_dec.dec.4.conv_t.bias"),
        ("decoder.decoder.4.block.4.act2.alpha", "tok_dec.dec.4.res.2.act2.alpha"),
        ("decoder.decoder.1.block.2.conv1.conv.weight", "tok_dec.dec.1.res.0.conv1.weight"),
        ("decoder.quantizer.rvq_rest.output_proj.weight", "tok_dec.vq_rest.output_proj.weight"),
        ("encoder.encoder.layers.14.conv.weight", "tok_enc.conv.14.weight"),
        ("encoder.encoder.layers.4.block.3.conv.bias", "tok_enc.res.4.blk.3.bias"),
        ("encoder.encoder_transformer.layers.7.mlp.fc2.weight", "tok_enc.blk.7.ffn_down.weight"),
        ("encoder.encoder_transformer.layers.7.input_layernorm.bias",
         "tok_enc.blk.7.attn_norm.bias"),
        ("encoder.downsample.conv.weight", "tok_enc.downsample.weight"),
        ("encoder.quantizer.acoustic_residual_vector_quantizer.input_proj.weight",
         "tok_enc.vq_acoustic.input_proj.weight"),
    ],
)  # fmt: skip
def test_a_codec_tensor_gets_its_name(source, target):
    assert codec_name(source) == target
    assert talker_name(source) is None


@pytest.mark.parametrize("stages", [2, 4, 6])
def test_the_end_of_the_wave_chain_is_numbered_after_its_stages(stages):
    last = stages + 1
    assert codec_name(f"decoder.decoder.{last}.alpha") == f"tok_dec.dec.{last}.snake.alpha"
    final = f"decoder.decoder.{last + 1}.conv.weight"
    assert codec_name(final) == f"tok_dec.dec.{last + 1}.conv.weight"


@pytest.mark.parametrize(
    ("source", "target", "field"),
    [
        ("decoder.quantizer.rvq_first.vq.layers.0._codebook.embedding_sum",
         "tok_dec.vq_first.0.codebook", "sum"),
        ("decoder.quantizer.rvq_rest.vq.layers.14._codebook.cluster_usage",
         "tok_dec.vq_rest.14.codebook", "usage"),
        ("encoder.quantizer.semantic_residual_vector_quantizer.layers.0.codebook.embed_sum",
         "tok_enc.vq_semantic.0.codebook", "sum"),
        ("encoder.quantizer.acoustic_residual_vector_quantizer.layers.30.codebook.initialized",
         "tok_enc.vq_acoustic.30.codebook", "initialized"),
    ],
)  # fmt: skip
def test_a_codebook_part_says_what_it_belongs_to(source, target, field):
    book = codebook_name(source)
    assert (book.target, book.field) == (target, field)
    assert book.acoustic_encoder == ("acoustic" in source)
    assert codec_name(source) is None


@pytest.mark.parametrize(
    "source",
    [
        "talker.model.layers.x.mlp.up_proj.weight",
        "talker.model.layers.0.mlp.up_proj",
        "talker.model.layers.0.mlp.up_proj.scale",
        "decoder.decoder.1.block.5.act1.alpha",
        "decoder.quantizer.semantic_residual_vector_quantizer.layers.0.codebook.embed_sum",
        "lm_head.weight",
        "",
    ],
)
def test_an_unknown_tensor_has_no_name(source):
    assert talker_name(source) is None
    assert codec_name(source) is None
    assert codebook_name(source) is None
    assert not is_unused(source)


def test_only_the_decoder_leaves_its_input_projection_out():
    assert is_unused("decoder.quantizer.rvq_first.input_proj.weight")
    assert is_unused("decoder.quantizer.rvq_rest.input_proj.weight")
    assert not is_unused("encoder.quantizer.semantic_residual_vector_quantizer.input_proj.weight")
