"""More small models of `transformers` that join text, pictures and sound, or find things in pictures.

For `make models ARGS="--set more"`, as those of `text_architectures`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .architectures import GROUPED, PICTURE, VOCABULARY, WIDTHS, Architecture, Maker, Makers, model_of, tokens
from .text_architectures import SPECIAL

ModelAndInputs = tuple[nn.Module, dict[str, Any]]


def _configured(build: Callable[[Any], ModelAndInputs]) -> Maker:
    """A model whose config has configs."""

    def make() -> Architecture:
        import transformers

        return Architecture(*build(transformers))

    return make


def _with_boxes() -> dict[str, Any]:
    corners = torch.randint(0, 50, (2, 16, 2))
    return {"input_ids": tokens(), "bbox": torch.cat([corners, corners + torch.randint(1, 50, (2, 16, 2))], dim=-1)}


def _text_of_picture() -> dict[str, Any]:
    return {"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 32, 32)}


def _musicgen(transformers: Any) -> ModelAndInputs:
    config = transformers.MusicgenDecoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=128,
        num_codebooks=2,
        layerdrop=0.0,
        pad_token_id=VOCABULARY,
        bos_token_id=VOCABULARY,
    )
    return transformers.MusicgenForCausalLM(config), {"input_ids": tokens(8, batch=4)}


def _llava(transformers: Any) -> ModelAndInputs:
    vision = transformers.CLIPVisionConfig(projection_dim=32, **PICTURE)
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=transformers.LlamaConfig(**GROUPED),
        image_token_index=3,
        vision_feature_layer=-1,
    )
    ids = torch.cat([torch.full((2, 16), 3), tokens(8)], dim=1)
    return transformers.LlavaForConditionalGeneration(config), {
        "input_ids": ids,
        "pixel_values": torch.randn(2, 3, 32, 32),
    }


def _qwen2_vl(transformers: Any) -> ModelAndInputs:
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 4, "mlp_ratio": 2}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    text_config = {**GROUPED, "rope_parameters": rope}
    config = transformers.Qwen2VLConfig(
        vision_config=vision,
        text_config=text_config,
        image_token_id=3,
        video_token_id=4,
        vision_start_token_id=1,
        vision_end_token_id=2,
    )
    ids = torch.cat([torch.tensor([[1, 3, 3, 3, 3, 2]]), tokens(8, batch=1)], dim=1)
    return transformers.Qwen2VLForConditionalGeneration(config), {
        "input_ids": ids,
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (ids == 3).int(),
    }


def _blip(transformers: Any) -> ModelAndInputs:
    sides = {"vocab_size": VOCABULARY, "projection_dim": 32, "bos_token_id": 1, "sep_token_id": 2, "pad_token_id": 0}
    config = transformers.BlipConfig(
        text_config={**sides, "encoder_hidden_size": 64, **WIDTHS},
        vision_config=PICTURE,
        projection_dim=32,
        image_text_hidden_size=32,
    )
    return transformers.BlipForConditionalGeneration(config), _text_of_picture()


def _picture_to_text(encoder: str, **settings: Any) -> Callable[[Any], ModelAndInputs]:
    def build(transformers: Any) -> ModelAndInputs:
        decoder = {
            "vocab_size": VOCABULARY,
            "d_model": 64,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 128,
            "is_decoder": True,
            "add_cross_attention": True,
            **SPECIAL,
        }
        kind = "TrOCRConfig" if encoder.startswith("ViT") else "MBartConfig"
        config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
            getattr(transformers, encoder)(**settings), getattr(transformers, kind)(**decoder)
        )
        return transformers.VisionEncoderDecoderModel(config), {
            "pixel_values": torch.randn(2, 3, 32, 32),
            "decoder_input_ids": tokens(8),
        }

    return build


def _masks(kind: str) -> Callable[[Any], ModelAndInputs]:
    def build(transformers: Any) -> ModelAndInputs:
        backbone = transformers.SwinConfig(
            image_size=64,
            patch_size=2,
            embed_dim=16,
            depths=[1, 1, 1, 1],
            num_heads=[1, 2, 2, 4],
            window_size=4,
            out_features=["stage1", "stage2", "stage3", "stage4"],
        )
        shared = {
            "hidden_dim": 32,
            "mask_feature_size": 32,
            "dim_feedforward": 64,
            "encoder_feedforward_dim": 32,
            "num_attention_heads": 4,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "num_queries": 5,
        }
        if kind == "mask2former":
            config = transformers.Mask2FormerConfig(backbone_config=backbone, feature_size=32, **shared)
            return transformers.Mask2FormerModel(config), {"pixel_values": torch.randn(1, 3, 64, 64)}
        config = transformers.OneFormerConfig(
            backbone_config=backbone,
            conv_dim=32,
            mask_dim=32,
            use_task_norm=True,
            text_encoder_width=32,
            text_encoder_context_length=16,
            text_encoder_num_layers=1,
            text_encoder_vocab_size=VOCABULARY,
            text_encoder_n_ctx=2,
            task_seq_len=16,
            query_dec_layers=1,
            is_training=False,
            **shared,
        )
        return transformers.OneFormerModel(config), {
            "pixel_values": torch.randn(1, 3, 64, 64),
            "task_inputs": tokens(batch=1).float(),
        }

    return build


def _detection(transformers: Any) -> ModelAndInputs:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage1", "stage2"], layer_type="basic"
    )
    config = transformers.DeformableDetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        num_queries=5,
        num_feature_levels=2,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )
    return transformers.DeformableDetrModel(config), {"pixel_values": torch.randn(1, 3, 64, 64)}


def _idefics3(transformers: Any) -> ModelAndInputs:
    config = transformers.Idefics3Config(
        vision_config=PICTURE, text_config=transformers.LlamaConfig(**GROUPED), image_token_id=3, scale_factor=2
    )
    ids = torch.cat([torch.full((1, 4), 3), tokens(8, batch=1)], dim=1)
    return transformers.Idefics3ForConditionalGeneration(config), {
        "input_ids": ids,
        "pixel_values": torch.randn(1, 1, 3, 32, 32),
    }


LAYOUT = {"max_2d_position_embeddings": 128, "vocab_size": VOCABULARY, **WIDTHS}

JOINED: Makers = {
    "layoutlm": model_of("LayoutLMModel", "LayoutLMConfig", _with_boxes, **LAYOUT),
    "layoutlmv3": model_of(
        "LayoutLMv3Model",
        "LayoutLMv3Config",
        _with_boxes,
        visual_embed=False,
        coordinate_size=8,
        shape_size=16,
        **LAYOUT,
    ),
    "lilt": model_of("LiltModel", "LiltConfig", _with_boxes, **{**LAYOUT, "hidden_size": 96}),
    "vilt": model_of("ViltModel", "ViltConfig", _text_of_picture, vocab_size=VOCABULARY, **PICTURE),
    "musicgen": _configured(_musicgen),
    "llava": _configured(_llava),
    "qwen2-vl": _configured(_qwen2_vl),
    "blip": _configured(_blip),
    "idefics3": _configured(_idefics3),
    "trocr": _configured(_picture_to_text("ViTConfig", **PICTURE)),
    "donut": _configured(
        _picture_to_text(
            "DonutSwinConfig", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
        )
    ),
    "mask2former": _configured(_masks("mask2former")),
    "oneformer": _configured(_masks("oneformer")),
    "deformable-detr": _configured(_detection),
}
