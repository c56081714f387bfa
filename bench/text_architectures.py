"""More small text models of `transformers` for `make models ARGS="--set more"`: random weights from a config.

They are beside the architectures that every table has: what they add is other ways to write a model (attention in
blocks and hashes, routers of experts, states, two sides).
"""

from __future__ import annotations

from typing import Any

from .architectures import GROUPED, VOCABULARY, WIDTHS, Maker, Makers, model_of, text, tokens

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
TALL = {"n_embd": 64, "n_layer": 2, "n_head": 4}
SIDES = {
    f"{side}_{name}": n
    for side in ("encoder", "decoder")
    for name, n in {"layers": 2, "attention_heads": 4, "ffn_dim": 128, "layerdrop": 0.0}.items()
}
MOE = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}


def _both_sides() -> dict[str, Any]:
    return {"input_ids": tokens(), "decoder_input_ids": tokens(8)}


def _translation(model: str, config: str, **settings: Any) -> Maker:
    """An encoder and a decoder of token ids."""
    return model_of(model, config, _both_sides, **{"vocab_size": VOCABULARY, "d_model": 64, **SPECIAL, **settings})


ENCODERS: Makers = {
    "longformer": text("LongformerModel", "LongformerConfig", attention_window=8, **WIDTHS),
    "bigbird": text(
        "BigBirdModel", "BigBirdConfig", attention_type="block_sparse", block_size=2, num_random_blocks=1, **WIDTHS
    ),
    "xlm": text("XLMModel", "XLMConfig", emb_dim=64, n_layers=2, n_heads=4),
    "flaubert": text("FlaubertModel", "FlaubertConfig", emb_dim=64, n_layers=2, n_heads=4),
    "xlnet": text("XLNetModel", "XLNetConfig", d_model=64, n_layer=2, n_head=4, d_inner=128),
    "reformer": text(
        "ReformerModel",
        "ReformerConfig",
        hidden_size=64,
        num_attention_heads=2,
        attention_head_size=32,
        feed_forward_size=64,
        attn_layers=["local", "lsh"],
        axial_pos_embds=False,
        is_decoder=False,
        local_attn_chunk_length=4,
        lsh_attn_chunk_length=4,
        num_buckets=2,
    ),
    "funnel": text(
        "FunnelModel",
        "FunnelConfig",
        block_sizes=[1, 1],
        num_decoder_layers=1,
        d_model=64,
        n_head=4,
        d_head=16,
        d_inner=128,
    ),
    "roformer": text("RoFormerModel", "RoFormerConfig", **WIDTHS),
    "mpnet": text("MPNetModel", "MPNetConfig", **WIDTHS),
    "electra": text("ElectraModel", "ElectraConfig", embedding_size=32, **WIDTHS),
    "distilbert": text("DistilBertModel", "DistilBertConfig", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "deberta1": text("DebertaModel", "DebertaConfig", relative_attention=True, pos_att_type=["p2c", "c2p"], **WIDTHS),
    "convbert": text("ConvBertModel", "ConvBertConfig", embedding_size=32, **WIDTHS),
    "squeezebert": text("SqueezeBertModel", "SqueezeBertConfig", embedding_size=64, **WIDTHS),
    "mobilebert": text(
        "MobileBertModel",
        "MobileBertConfig",
        embedding_size=32,
        intra_bottleneck_size=32,
        true_hidden_size=32,
        **WIDTHS,
    ),
    "nystromformer": text(
        "NystromformerModel", "NystromformerConfig", num_landmarks=16, segment_means_seq_len=16, **WIDTHS
    ),
    "yoso": text("YosoModel", "YosoConfig", use_expectation=True, **WIDTHS),
    "fnet": text("FNetModel", "FNetConfig", hidden_size=64, num_hidden_layers=2, intermediate_size=128),
    "ibert": text("IBertModel", "IBertConfig", quant_mode=False, **WIDTHS),
    "rembert": text("RemBertModel", "RemBertConfig", input_embedding_size=32, output_embedding_size=32, **WIDTHS),
    "esm": text("EsmModel", "EsmConfig", pad_token_id=0, mask_token_id=3, position_embedding_type="rotary", **WIDTHS),
    "modernbert": text(
        "ModernBertModel",
        "ModernBertConfig",
        pad_token_id=0,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
        global_attn_every_n_layers=2,
        local_attention=8,
        **WIDTHS,
    ),
    "canine": text(
        "CanineModel", "CanineConfig", num_hash_buckets=64, local_transformer_stride=4, downsampling_rate=4, **WIDTHS
    ),
    "perceiver": text(
        "PerceiverForMaskedLM",
        "PerceiverConfig",
        num_latents=8,
        d_latents=32,
        d_model=64,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
        max_position_embeddings=16,
    ),
    "tapas": text("TapasModel", "TapasConfig", **WIDTHS),
    "luke": text("LukeModel", "LukeConfig", entity_vocab_size=10, entity_emb_size=16, **WIDTHS),
}

DECODERS: Makers = {
    "openai-gpt": text("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", **TALL),
    "ctrl": text("CTRLLMHeadModel", "CTRLConfig", dff=128, **TALL),
    "bloom": text("BloomForCausalLM", "BloomConfig", hidden_size=64, n_layer=2, n_head=4),
    "opt": text(
        "OPTForCausalLM",
        "OPTConfig",
        word_embed_proj_dim=64,
        ffn_dim=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    ),
    "gptj": text("GPTJForCausalLM", "GPTJConfig", rotary_dim=8, **TALL),
    "gpt-neo": text(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        window_size=8,
        attention_types=[[["global", "local"], 1]],
    ),
    "gpt-neox": text("GPTNeoXForCausalLM", "GPTNeoXConfig", **WIDTHS),
    "gpt-bigcode": text("GPTBigCodeForCausalLM", "GPTBigCodeConfig", **TALL),
    "codegen": text("CodeGenForCausalLM", "CodeGenConfig", rotary_dim=8, **TALL),
    "falcon": text("FalconForCausalLM", "FalconConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4),
    "mpt": text("MptForCausalLM", "MptConfig", d_model=64, n_heads=4, n_layers=2),
    "stablelm": text("StableLmForCausalLM", "StableLmConfig", **GROUPED),
    "phi": text("PhiForCausalLM", "PhiConfig", **GROUPED),
    "olmo": text("OlmoForCausalLM", "OlmoConfig", **GROUPED),
    "olmo2": text("Olmo2ForCausalLM", "Olmo2Config", **GROUPED),
    "granite": text("GraniteForCausalLM", "GraniteConfig", **GROUPED),
    "cohere": text("CohereForCausalLM", "CohereConfig", pad_token_id=0, bos_token_id=1, eos_token_id=2, **GROUPED),
    "starcoder2": text("Starcoder2ForCausalLM", "Starcoder2Config", **GROUPED),
    "nemotron": text("NemotronForCausalLM", "NemotronConfig", **GROUPED),
    "glm4": text("Glm4ForCausalLM", "Glm4Config", head_dim=16, pad_token_id=0, **GROUPED),
    "gemma3": text("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=16, sliding_window=8, **GROUPED),
    "biogpt": text("BioGptForCausalLM", "BioGptConfig", **WIDTHS),
    "xglm": text("XGLMForCausalLM", "XGLMConfig", d_model=64, ffn_dim=128, num_layers=2, attention_heads=4),
    "qwen2-moe": text("Qwen2MoeForCausalLM", "Qwen2MoeConfig", shared_expert_intermediate_size=64, **MOE, **GROUPED),
    "olmoe": text("OlmoeForCausalLM", "OlmoeConfig", num_experts=4, num_experts_per_tok=2, **GROUPED),
    "granite-moe": text(
        "GraniteMoeForCausalLM", "GraniteMoeConfig", num_local_experts=4, num_experts_per_tok=2, **GROUPED
    ),
    "phimoe": text("PhimoeForCausalLM", "PhimoeConfig", num_local_experts=4, **GROUPED),
    "gpt-oss": text("GptOssForCausalLM", "GptOssConfig", num_local_experts=4, head_dim=16, **GROUPED),
    "deepseek-v3": text(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        moe_intermediate_size=32,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=32,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
        **{**GROUPED, "num_key_value_heads": 4},
    ),
    "jamba": text(
        "JambaForCausalLM",
        "JambaConfig",
        num_experts=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        use_mamba_kernels=False,
        mamba_d_state=8,
        **GROUPED,
    ),
    "bamba": text(
        "BambaForCausalLM",
        "BambaConfig",
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_n_groups=1,
        mamba_d_state=8,
        mamba_chunk_size=8,
        **GROUPED,
    ),
    "zamba2": text(
        "Zamba2ForCausalLM",
        "Zamba2Config",
        mamba_d_state=8,
        mamba_ngroups=1,
        n_mamba_heads=8,
        chunk_size=8,
        hybrid_layer_ids=[1],
        layers_block_type=["mamba", "hybrid"],
        num_mem_blocks=1,
        use_mem_rope=True,
        **GROUPED,
    ),
    "falcon-mamba": text(
        "FalconMambaForCausalLM", "FalconMambaConfig", hidden_size=64, num_hidden_layers=2, state_size=8
    ),
    "rwkv": text(
        "RwkvForCausalLM",
        "RwkvConfig",
        hidden_size=64,
        attention_hidden_size=64,
        num_hidden_layers=2,
        intermediate_size=128,
    ),
    "recurrent-gemma": text(
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        lru_width=64,
        attention_window_size=8,
        block_types=["recurrent", "attention"],
        **GROUPED,
    ),
    "qwen3-next": text(
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        head_dim=16,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        shared_expert_intermediate_size=32,
        **MOE,
        **GROUPED,
    ),
    "lfm2": text("Lfm2ForCausalLM", "Lfm2Config", layer_types=["conv", "full_attention"], **GROUPED),
}

TRANSLATORS: Makers = {
    "led": _translation("LEDForConditionalGeneration", "LEDConfig", attention_window=[8, 8], **SIDES),
    "bigbird-pegasus": _translation(
        "BigBirdPegasusForConditionalGeneration", "BigBirdPegasusConfig", block_size=2, num_random_blocks=1, **SIDES
    ),
    "pegasus": _translation("PegasusForConditionalGeneration", "PegasusConfig", **SIDES),
    "pegasus-x": _translation(
        "PegasusXForConditionalGeneration", "PegasusXConfig", block_size=8, num_global_tokens=4, **SIDES
    ),
    "mbart": _translation("MBartForConditionalGeneration", "MBartConfig", **SIDES),
    "m2m100": _translation("M2M100ForConditionalGeneration", "M2M100Config", **SIDES),
    "marian": _translation("MarianMTModel", "MarianConfig", decoder_vocab_size=VOCABULARY, **SIDES),
    "blenderbot": _translation("BlenderbotForConditionalGeneration", "BlenderbotConfig", **SIDES),
    "prophetnet": _translation(
        "ProphetNetForConditionalGeneration",
        "ProphetNetConfig",
        hidden_size=64,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
    ),
    "longt5": _translation(
        "LongT5ForConditionalGeneration",
        "LongT5Config",
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        local_radius=4,
        encoder_attention_type="transient-global",
        global_block_size=4,
    ),
    "switch": _translation(
        "SwitchTransformersForConditionalGeneration",
        "SwitchTransformersConfig",
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        num_experts=4,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
        router_jitter_noise=0.0,
    ),
    "nllb-moe": _translation(
        "NllbMoeForConditionalGeneration",
        "NllbMoeConfig",
        num_experts=4,
        encoder_sparse_step=1,
        decoder_sparse_step=1,
        **SIDES,
    ),
    "fsmt": _translation(
        "FSMTForConditionalGeneration",
        "FSMTConfig",
        langs=["a", "b"],
        src_vocab_size=VOCABULARY,
        tgt_vocab_size=VOCABULARY,
        **SIDES,
    ),
}
