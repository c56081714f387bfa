"""Small models of many architectures: random weights from a config, nothing is downloaded.

`ARCHITECTURES` maps a name to a function that makes the model and its inputs. Those of `transformers` keep the class
and the code paths of the full models at a width of tens; the others need nothing but torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .subjects import tensors

VOCABULARY = 100
WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
GROUPED = {"vocab_size": VOCABULARY, "num_key_value_heads": 2, **WIDTHS}
PICTURE = {"image_size": 32, "patch_size": 8, **WIDTHS}


@dataclass
class Architecture:
    """A model and what to call it with."""

    model: nn.Module
    inputs: dict[str, Any]

    def infer(self, model: nn.Module) -> list[torch.Tensor]:
        """The tensors of one call without gradients."""
        with torch.no_grad():
            return tensors(_plain(model(**self.inputs)))

    def train(self, model: nn.Module) -> list[torch.Tensor]:
        """The tensors of one call and the gradients of a weighted sum of them."""
        self.model.zero_grad(set_to_none=True)
        outputs = tensors(_plain(model(**self.inputs)))
        losses = [_weighted(out) for out in outputs if out.is_floating_point() and out.requires_grad]
        torch.stack(losses).sum().backward()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return [*(out.detach() for out in outputs), *gradients]


def _plain(output: Any) -> Any:
    return dict(output) if isinstance(output, Mapping) else output


def _weighted(out: torch.Tensor) -> torch.Tensor:
    # a plain sum has no gradient behind a layer norm: weights that differ from element to element have
    return (out.float() * torch.arange(out.numel()).reshape(out.shape).cos()).sum()


def tokens(length: int = 16, batch: int = 2) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (batch, length))


Maker = Callable[[], Architecture]
Makers = dict[str, Maker]


def model_of(model: str, config: str, inputs: Callable[[], dict[str, Any]], **settings: Any) -> Maker:
    """A transformers model of these inputs, by the names of its class and of its config's."""

    def make() -> Architecture:
        import transformers

        settled = getattr(transformers, config)(**settings)
        return Architecture(getattr(transformers, model)(settled), inputs())

    return make


def text(model: str, config: str, **settings: Any) -> Maker:
    """A transformers model of token ids."""
    return model_of(model, config, lambda: {"input_ids": tokens()}, **{"vocab_size": VOCABULARY, **settings})


def pixels(model: str, config: str, batch: int = 2, size: int = 32, **settings: Any) -> Maker:
    """A transformers model of pictures."""
    return model_of(model, config, lambda: {"pixel_values": torch.randn(batch, 3, size, size)}, **settings)


# -- transformers: more than one input -------------------------------------------------------------------------------


def t5() -> Architecture:
    """Encoder and decoder with relative positions."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    inputs = {"input_ids": tokens(), "decoder_input_ids": tokens(8)}
    return Architecture(T5ForConditionalGeneration(config), inputs)


def _encoder_decoder() -> dict[str, int]:
    sides = ("encoder", "decoder")
    counts = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}
    return {f"{side}_{name}": value for side in sides for name, value in counts.items()}


def bart() -> Architecture:
    """Encoder and decoder with learned positions."""
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(vocab_size=VOCABULARY, d_model=64, **_encoder_decoder())
    return Architecture(BartForConditionalGeneration(config), {"input_ids": tokens(), "decoder_input_ids": tokens(8)})


def whisper() -> Architecture:
    """Speech features to text."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(vocab_size=VOCABULARY, d_model=64, max_source_positions=50, **special, **_encoder_decoder())
    inputs = {"input_features": torch.randn(2, 80, 100), "decoder_input_ids": tokens(8)}
    return Architecture(WhisperForConditionalGeneration(config), inputs)


def clip() -> Architecture:
    """Text and pictures side by side."""
    from transformers import CLIPConfig, CLIPModel

    text = {"vocab_size": VOCABULARY, "eos_token_id": 2, "projection_dim": 32, **WIDTHS}
    config = CLIPConfig(text_config=text, vision_config={"projection_dim": 32, **PICTURE}, projection_dim=32)
    return Architecture(CLIPModel(config), {"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 32, 32)})


def sam() -> Architecture:
    """A picture and points to masks."""
    from transformers import SamConfig, SamModel

    grid = {"image_size": 64, "patch_size": 8}
    vision = {
        **grid,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "output_channels": 32,
        "mlp_dim": 64,
        "window_size": 4,
        "global_attn_indexes": [1],
        "num_pos_feats": 16,
    }
    decoder = {"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4, "iou_head_hidden_dim": 32}
    config = SamConfig(
        vision_config=vision,
        prompt_encoder_config={**grid, "hidden_size": 32, "image_embedding_size": 8},
        mask_decoder_config=decoder,
    )
    inputs = {"pixel_values": torch.randn(1, 3, 64, 64), "input_points": torch.rand(1, 1, 2, 2) * 60}
    return Architecture(SamModel(config), inputs)


def wav2vec2() -> Architecture:
    """Waveforms. Its masking and layer drop draw from NumPy's generator, which no graph holds: both are off."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        conv_dim=(32, 32),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        apply_spec_augment=False,
        layerdrop=0.0,
        **WIDTHS,
    )
    return Architecture(Wav2Vec2Model(config), {"input_values": torch.randn(2, 400)})


def detr() -> Architecture:
    """Object detection: convolutions, an encoder, learned queries. In training it branches on its activations."""
    from transformers import DetrConfig, DetrModel, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"], layer_type="basic"
    )
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in _DETR_SIDE.items()}
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        num_queries=5,
        **sides,
    )
    return Architecture(DetrModel(config), {"pixel_values": torch.randn(1, 3, 64, 64)})


_DETR_SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}


# -- torch alone -----------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """Embeddings, a recurrent network of two layers and both directions, a linear layer."""

    def __init__(self, network: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.network = network(32, 32, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [B, T] -> scores [B, T, 10]."""
        states, _ = self.network(self.embedding(tokens))
        return self.head(states)


class Translator(nn.Module):
    """nn.Transformer between embeddings and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """source: [B, S], target: [B, T] -> scores [B, T, V]."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        states = self.transformer(self.embedding(source), self.embedding(target), tgt_mask=mask, tgt_is_causal=True)
        return self.head(states)


class Recommender(nn.Module):
    """Numbers through one network, categories through bags of embeddings, dot products of all pairs, a network."""

    def __init__(self, tables: int = 3, width: int = 16) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.tables = nn.ModuleList([nn.EmbeddingBag(50, width, mode="sum") for _ in range(tables)])
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, numbers: torch.Tensor, categories: list[torch.Tensor], offsets: torch.Tensor) -> torch.Tensor:
        """numbers: [B, 13], categories: one [N] a table, offsets: [B] -> probability [B, 1]."""
        dense = self.bottom(numbers)
        bags = [table(indices, offsets) for table, indices in zip(self.tables, categories)]
        features = torch.stack([dense, *bags], dim=1)
        products = features @ features.transpose(1, 2)
        rows, columns = torch.tril_indices(features.shape[1], features.shape[1], offset=-1)
        return torch.sigmoid(self.top(torch.cat([dense, products[:, rows, columns]], dim=1)))


class Block(nn.Module):
    """Two convolutions with norms and a shortcut."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, after), nn.BatchNorm2d(after)])
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, before, H, W] -> [B, after, H, W]."""
        inner = nn.functional.silu(self.norms[0](self.first(x)))
        return nn.functional.silu(self.norms[1](self.second(inner)) + self.shortcut(x))


class UNet(nn.Module):
    """Down to a quarter of the size and up again, each level joined with its opposite."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.entry = Block(3, widths[0])
        self.down = nn.ModuleList([Block(a, b) for a, b in pairs])
        self.up = nn.ModuleList([Block(a + b, a) for a, b in reversed(pairs)])
        self.exit = nn.Conv2d(widths[0], 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [B, 3, H, W], H and W multiples of 4 -> [B, 3, H, W]."""
        levels = [self.entry(x)]
        for block in self.down:
            levels.append(block(nn.functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for block in self.up:
            joined = torch.cat([nn.functional.interpolate(x, scale_factor=2.0), levels.pop()], dim=1)
            x = block(joined)
        return self.exit(x)


def recommender() -> Architecture:
    """A batch of 4, each with two categories a table."""
    categories = [torch.randint(50, (8,)) for _ in range(3)]
    inputs = {"numbers": torch.randn(4, 13), "categories": categories, "offsets": torch.arange(0, 8, 2)}
    return Architecture(Recommender(), inputs)


def lstm() -> Architecture:
    """A tagger over LSTMs."""
    return Architecture(Tagger(nn.LSTM), {"tokens": tokens()})


def gru() -> Architecture:
    """A tagger over GRUs."""
    return Architecture(Tagger(nn.GRU), {"tokens": tokens()})


def translator() -> Architecture:
    """nn.Transformer."""
    return Architecture(Translator(), {"source": tokens(), "target": tokens(8)})


def unet() -> Architecture:
    """A UNet of three levels."""
    return Architecture(UNet(), {"x": torch.randn(2, 3, 16, 16)})


ARCHITECTURES: Makers = {
    "bert": text("BertModel", "BertConfig", **WIDTHS),
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4),
    "llama": text("LlamaForCausalLM", "LlamaConfig", **GROUPED),
    "mistral": text("MistralForCausalLM", "MistralConfig", **GROUPED),
    "qwen3": text("Qwen3ForCausalLM", "Qwen3Config", head_dim=16, **GROUPED),
    "gemma2": text("Gemma2ForCausalLM", "Gemma2Config", head_dim=16, **GROUPED),
    "phi3": text("Phi3ForCausalLM", "Phi3Config", pad_token_id=0, **GROUPED),
    "mixtral": text("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **GROUPED),
    "t5": t5,
    "bart": bart,
    "whisper": whisper,
    "vit": pixels("ViTModel", "ViTConfig", **PICTURE),
    "clip": clip,
    "deberta": text(
        "DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"], **WIDTHS
    ),
    "swin": pixels(
        "SwinModel",
        "SwinConfig",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "sam": sam,
    "mamba": text("MambaForCausalLM", "MambaConfig", hidden_size=64, num_hidden_layers=2, state_size=8),
    "mamba2": text(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        hidden_size=64,
        num_hidden_layers=2,
        state_size=8,
        num_heads=8,
        head_dim=16,
        n_groups=1,
        chunk_size=8,
    ),
    "wav2vec2": wav2vec2,
    "albert": text("AlbertModel", "AlbertConfig", embedding_size=32, **WIDTHS),
    "convnext": pixels(
        "ConvNextModel", "ConvNextConfig", hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, image_size=32
    ),
    "segformer": pixels(
        "SegformerModel",
        "SegformerConfig",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
    ),
    "yolos": pixels("YolosModel", "YolosConfig", **{**PICTURE, "image_size": [32, 32]}, num_detection_tokens=5),
    "detr": detr,
    "lstm": lstm,
    "gru": gru,
    "transformer": translator,
    "recommender": recommender,
    "unet": unet,
}


def make(name: str) -> Architecture:
    """The architecture with the same weights and inputs each time."""
    torch.manual_seed(0)
    return ARCHITECTURES[name]()
