"""The models of the demo and the benchmark: random weights from a config, nothing is downloaded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Subject:
    """A model with inputs. `run(model)` gives the tensors to compare and time; training subjects include gradients."""

    name: str
    model: torch.nn.Module
    inputs: dict[str, Any]
    training: bool = False

    def run(self, model: torch.nn.Module) -> list[torch.Tensor]:
        """One inference or training step; [outputs] or [loss, gradients...]."""
        if not self.training:
            with torch.no_grad():
                return tensors(model(**self.inputs))
        self.model.zero_grad(set_to_none=True)
        loss = model(**self.inputs).loss
        loss.backward()
        return [loss.detach(), *(p.grad for p in self.model.parameters() if p.grad is not None)]

    def on(self, device: str) -> Subject:
        """The same with model and inputs on a device."""
        inputs = {
            key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in self.inputs.items()
        }
        return Subject(self.name, self.model.to(device), inputs, self.training)

    def reference(self) -> list[torch.Tensor]:
        """The same step in double precision."""
        model = copy.deepcopy(self.model).double()
        inputs = {key: value.double() if _is_float(value) else value for key, value in self.inputs.items()}
        return Subject(self.name, model, inputs, self.training).run(model)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a model's output, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def bert() -> Subject:
    """BERT at the width of bert-base, two layers, batch 4 x 128 tokens."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(num_hidden_layers=2)).eval()
    ids = torch.randint(0, model.config.vocab_size, (4, 128))
    return Subject("bert", model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def gpt2() -> Subject:
    """GPT-2 at the width of the small model, two layers, batch 2 x 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, vocab_size=8192, use_cache=False)).eval()
    return Subject("gpt2", model, {"input_ids": torch.randint(0, 8192, (2, 128))})


def llama() -> Subject:
    """A Llama with grouped heads, two layers, batch 2 x 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=8192,
        use_cache=False,
    )
    return Subject("llama", LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 8192, (2, 128))})


def gpt2_training() -> Subject:
    """One training step of the GPT-2 above, dropout off so that results can be compared."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, vocab_size=8192, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    ids = torch.randint(0, 8192, (2, 64))
    return Subject("gpt2-train", GPT2LMHeadModel(config).train(), {"input_ids": ids, "labels": ids}, training=True)


def resnet50() -> Subject:
    """ResNet-50 with its own widths and depths, one picture of 64 x 64."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig()).eval()
    return Subject("resnet50", model, {"pixel_values": torch.randn(1, 3, 64, 64)})


def vit() -> Subject:
    """A ViT at the width of the base model, two layers, one picture of 224 x 224 in patches of 16."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    model = ViTModel(ViTConfig(num_hidden_layers=2)).eval()
    return Subject("vit", model, {"pixel_values": torch.randn(1, 3, 224, 224)})


def mlp() -> Subject:
    """Three linear layers with gelu and layer norm: needs nothing but torch."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024), torch.nn.Linear(1024, 256)]
    return Subject("mlp", torch.nn.Sequential(*layers).eval(), {"input": torch.randn(64, 256)})


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "gpt2-train": gpt2_training,
    "resnet50": resnet50,
    "vit": vit,
    "mlp": mlp,
}


def worst_error(got: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """Largest relative error ||got - ref|| / ||ref|| over the tensors; inf when they don't match."""
    if len(got) != len(reference):
        return float("inf")
    worst = 0.0
    for one, other in zip(got, reference):
        if one.shape != other.shape:
            return float("inf")
        exact = other.detach().double()
        norm = exact.norm().clamp_min(1e-30)
        error = float((one.detach().double() - exact).norm() / norm)
        worst = max(worst, error) if error == error else float("inf")
    return worst
