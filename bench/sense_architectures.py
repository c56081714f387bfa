"""More small models of `transformers` for pictures, sound and series: random weights from a config.

For `make models ARGS="--set more"`, as those of `text_architectures`.
"""

from __future__ import annotations

from typing import Any

import torch

from .architectures import PICTURE, VOCABULARY, WIDTHS, Maker, Makers, model_of, pixels, text, tokens
from .text_architectures import SIDES, SPECIAL, TALL

SOUND = {
    "conv_dim": (32, 32),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "apply_spec_augment": False,
    "layerdrop": 0.0,
    **WIDTHS,
}


def _sound(model: str, config: str, **settings: Any) -> Maker:
    return model_of(model, config, lambda: {"input_values": torch.randn(2, 400)}, **{**SOUND, **settings})


def _vision_depths(**more: Any) -> dict[str, Any]:
    return {"hidden_sizes": [16, 32], "depths": [1, 1], **more}


VISION: Makers = {
    "dinov2": pixels("Dinov2Model", "Dinov2Config", **PICTURE),
    "dinov3": pixels("DINOv3ViTModel", "DINOv3ViTConfig", **PICTURE),
    "beit": pixels("BeitModel", "BeitConfig", use_relative_position_bias=True, **PICTURE),
    "deit": pixels("DeiTModel", "DeiTConfig", **PICTURE),
    "vit-mae": pixels("ViTMAEModel", "ViTMAEConfig", **PICTURE),
    "ijepa": pixels("IJepaModel", "IJepaConfig", **PICTURE),
    "siglip": pixels("SiglipVisionModel", "SiglipVisionConfig", **PICTURE),
    "hiera": pixels(
        "HieraModel",
        "HieraConfig",
        size=64,
        image_size=[64, 64],
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 2],
        query_stride=[2, 2],
        masked_unit_size=[4, 4],
        num_query_pool=1,
    ),
    "pvt": pixels(
        "PvtModel",
        "PvtConfig",
        size=64,
        image_size=64,
        **_vision_depths(
            num_encoder_blocks=2,
            sequence_reduction_ratios=[2, 1],
            patch_sizes=[4, 2],
            strides=[4, 2],
            num_attention_heads=[1, 2],
            mlp_ratios=[2, 2],
        ),
    ),
    "pvt2": pixels(
        "PvtV2Model",
        "PvtV2Config",
        size=64,
        image_size=64,
        **_vision_depths(
            num_encoder_blocks=2,
            sr_ratios=[2, 1],
            patch_sizes=[7, 3],
            strides=[4, 2],
            num_attention_heads=[1, 2],
            mlp_ratios=[2, 2],
        ),
    ),
    "mobilevit": pixels(
        "MobileViTModel",
        "MobileViTConfig",
        size=64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 12, 16, 24, 32, 64],
        num_attention_heads=4,
    ),
    "mobilevit2": pixels("MobileViTV2Model", "MobileViTV2Config", size=64, image_size=64, width_multiplier=0.25),
    "mobilenet2": pixels("MobileNetV2Model", "MobileNetV2Config", image_size=32, depth_multiplier=0.25),
    "efficientnet": pixels(
        "EfficientNetModel",
        "EfficientNetConfig",
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.25,
        hidden_dim=320,
    ),
    "regnet": pixels("RegNetModel", "RegNetConfig", embedding_size=16, groups_width=8, **_vision_depths()),
    "resnet": pixels("ResNetModel", "ResNetConfig", embedding_size=16, **_vision_depths()),
    "bit": pixels("BitModel", "BitConfig", embedding_size=16, num_groups=4, **_vision_depths()),
    "poolformer": pixels(
        "PoolFormerModel",
        "PoolFormerConfig",
        num_encoder_blocks=2,
        patch_sizes=[7, 3],
        strides=[4, 2],
        padding=[2, 1],
        mlp_ratio=2.0,
        **_vision_depths(),
    ),
    "focalnet": pixels(
        "FocalNetModel",
        "FocalNetConfig",
        image_size=32,
        embed_dim=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        focal_levels=[1, 1],
        focal_windows=[3, 3],
    ),
    "swinv2": pixels(
        "Swinv2Model",
        "Swinv2Config",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "cvt": pixels(
        "CvtModel",
        "CvtConfig",
        patch_sizes=[7, 3],
        patch_stride=[4, 2],
        patch_padding=[2, 1],
        embed_dim=[16, 32],
        num_heads=[1, 2],
        depth=[1, 2],
        cls_token=[False, True],
        drop_rate=[0.0, 0.0],
        attention_drop_rate=[0.0, 0.0],
        drop_path_rate=[0.0, 0.1],
        qkv_projection_method=["dw_bn"] * 2,
        kernel_qkv=[3, 3],
        padding_kv=[1, 1],
        stride_kv=[2, 2],
        padding_q=[1, 1],
        stride_q=[1, 1],
        mlp_ratio=[2.0, 2.0],
        qkv_bias=[True, True],
    ),
    "glpn": pixels(
        "GLPNForDepthEstimation",
        "GLPNConfig",
        size=64,
        num_encoder_blocks=2,
        sr_ratios=[2, 1],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        **_vision_depths(),
    ),
    "dpt": pixels(
        "DPTForDepthEstimation",
        "DPTConfig",
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        reassemble_factors=[2, 1, 1, 0.5],
        is_hybrid=False,
        **{**PICTURE, "num_hidden_layers": 4},
    ),
    "imagegpt": text("ImageGPTModel", "ImageGPTConfig", **TALL),
}


SOUNDS: Makers = {
    "hubert": _sound("HubertModel", "HubertConfig"),
    "unispeech": _sound("UniSpeechModel", "UniSpeechConfig"),
    "wavlm": _sound("WavLMModel", "WavLMConfig"),
    "sew": _sound("SEWModel", "SEWConfig", squeeze_factor=2),
    "sew-d": _sound("SEWDModel", "SEWDConfig", squeeze_factor=2),
    "conformer": _sound("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", position_embeddings_type="rotary"),
    "data2vec-audio": _sound("Data2VecAudioModel", "Data2VecAudioConfig", num_conv_pos_embeddings=2),
}


def _series(length: int = 19, ahead: int = 4) -> dict[str, Any]:
    seen = {"past_values": torch.randn(2, length), "past_observed_mask": torch.ones(2, length)}
    times = {"past_time_features": torch.randn(2, length, 1), "future_time_features": torch.randn(2, ahead, 1)}
    return {**seen, **times, "future_values": torch.randn(2, ahead)}


def _returns() -> dict[str, Any]:
    steps = {"states": torch.randn(2, 6, 5), "actions": torch.randn(2, 6, 3), "rewards": torch.randn(2, 6, 1)}
    places = {"timesteps": torch.arange(6).expand(2, 6), "attention_mask": torch.ones(2, 6)}
    return {**steps, **places, "returns_to_go": torch.randn(2, 6, 1)}


FORECAST = {
    "prediction_length": 4,
    "context_length": 16,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 1,
    "d_model": 32,
    **SIDES,
}
PATCHES = {
    "num_input_channels": 2,
    "context_length": 16,
    "patch_length": 4,
    "patch_stride": 4,
    "d_model": 32,
    "num_hidden_layers": 2,
}

SERIES: Makers = {
    "informer": model_of("InformerModel", "InformerConfig", _series, **FORECAST),
    "time-series": model_of("TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", _series, **FORECAST),
    "patchtst": model_of(
        "PatchTSTModel",
        "PatchTSTConfig",
        lambda: {"past_values": torch.randn(2, 16, 2)},
        num_attention_heads=4,
        ffn_dim=64,
        do_mask_input=False,
        **PATCHES,
    ),
    "patchtsmixer": model_of(
        "PatchTSMixerModel",
        "PatchTSMixerConfig",
        lambda: {"past_values": torch.randn(2, 16, 2)},
        mode="mix_channel",
        **PATCHES,
    ),
    "decision": model_of(
        "DecisionTransformerModel",
        "DecisionTransformerConfig",
        _returns,
        state_dim=5,
        act_dim=3,
        hidden_size=32,
        n_layer=2,
        n_head=2,
        max_ep_len=16,
    ),
    "encodec": model_of(
        "EncodecModel",
        "EncodecConfig",
        lambda: {"input_values": torch.randn(1, 1, 640)},
        num_filters=4,
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
        target_bandwidths=[6.0, 12.0],
    ),
    "vits": model_of(
        "VitsModel",
        "VitsConfig",
        lambda: {"input_ids": tokens(8, batch=1)},
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=64,
        flow_size=32,
        spectrogram_bins=17,
        upsample_initial_channel=32,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2,
        duration_predictor_num_flows=2,
        duration_predictor_filter_channels=32,
        depth_separable_num_layers=2,
        depth_separable_channels=2,
        layerdrop=0.0,
    ),
    "speech2text": model_of(
        "Speech2TextForConditionalGeneration",
        "Speech2TextConfig",
        lambda: {"input_features": torch.randn(2, 40, 16), "decoder_input_ids": tokens(8)},
        vocab_size=VOCABULARY,
        d_model=64,
        input_feat_per_channel=16,
        input_channels=1,
        conv_channels=32,
        **SPECIAL,
        **SIDES,
    ),
    "speecht5": model_of(
        "SpeechT5ForSpeechToText",
        "SpeechT5Config",
        lambda: {"input_values": torch.randn(2, 400), "decoder_input_ids": tokens(8)},
        vocab_size=VOCABULARY,
        **SPECIAL,
        **{
            f"{a}_{b}": n
            for a in ("encoder", "decoder")
            for b, n in {"layers": 2, "attention_heads": 4, "ffn_dim": 128, "layerdrop": 0.0}.items()
        },
        **{key: value for key, value in SOUND.items() if key not in WIDTHS},
        hidden_size=64,
    ),
    "ast": model_of(
        "ASTModel",
        "ASTConfig",
        lambda: {"input_values": torch.randn(2, 32, 16)},
        patch_size=4,
        num_mel_bins=16,
        max_length=32,
        frequency_stride=4,
        time_stride=4,
        **WIDTHS,
    ),
    "timesformer": model_of(
        "TimesformerModel",
        "TimesformerConfig",
        lambda: {"pixel_values": torch.randn(1, 4, 3, 32, 32)},
        num_frames=4,
        **PICTURE,
    ),
    "videomae": model_of(
        "VideoMAEModel",
        "VideoMAEConfig",
        lambda: {"pixel_values": torch.randn(1, 4, 3, 32, 32)},
        num_frames=4,
        tubelet_size=2,
        **PICTURE,
    ),
    "vivit": model_of(
        "VivitModel",
        "VivitConfig",
        lambda: {"pixel_values": torch.randn(1, 4, 3, 32, 32)},
        num_frames=4,
        tubelet_size=[2, 8, 8],
        **PICTURE,
    ),
}
