"""The programs that people try first: a toy model, decorators, a training loop, a model built inside the function."""

from __future__ import annotations

import pytest
import torch

import core

transformers = pytest.importorskip("transformers")
BACKENDS = ["eager", "inductor"]


class ToyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 10))

    def forward(self, x):
        if x.sum().dim() == 0:
            x = x / 2
        return self.layers(x).softmax(-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_toy_model(backend):
    torch.manual_seed(0)
    model = ToyModel()
    x = torch.randn(4, 10)
    torch.testing.assert_close(core.compile(model, backend=backend)(x), model(x))
    assert core.stats()["graphs"] == 1 and core.stats()["breaks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_decorator_and_function_forms(backend):
    @core.optimize(backend)
    def decorated(a, b):
        x = a / (torch.abs(a) + 1)
        return x * b

    def plain(a, b):
        x = a / (torch.abs(a) + 1)
        return x * b

    @core.compile(backend=backend, fullgraph=True)
    def full(a, b):
        return torch.sin(a) + b

    a, b = torch.randn(10), torch.randn(10)
    torch.testing.assert_close(decorated(a, b), plain(a, b))
    torch.testing.assert_close(core.optimize(backend)(plain)(a, b), plain(a, b))
    torch.testing.assert_close(core.optimize(backend, nopython=True)(plain)(a, b), plain(a, b))
    torch.testing.assert_close(full(a, b), torch.sin(a) + b)


def test_a_function_that_branches_on_data_breaks_and_goes_on():
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = core.compile(toy, backend="eager")
    a = torch.randn(10)
    for b in (torch.ones(10), -torch.ones(10)):
        torch.testing.assert_close(compiled(a, b), toy(a, b))
    assert core.stats()["breaks"] >= 1
    with pytest.raises(core.Unsupported, match="value of a tensor"):
        core.optimize("eager", nopython=True)(toy)(a, torch.ones(10))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_loop(backend):
    def train(compiled):
        torch.manual_seed(0)
        model = ToyModel()
        step_model = core.compile(model, backend=backend) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(5):
            batch = torch.randn(8, 10)
            optimizer.zero_grad()
            loss = (step_model(batch) - 0.1).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.testing.assert_close(torch.tensor(train(True)), torch.tensor(train(False)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_step_function(backend):
    def training_loop(model, batch):
        return (model(batch) ** 2).mean()

    torch.manual_seed(0)
    model = ToyModel()
    compiled = core.optimize(backend)(training_loop)
    batch = torch.randn(3, 10)
    loss = compiled(model, batch)
    loss.backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    training_loop(model, batch).backward()
    for ours, theirs in zip(got, model.parameters()):
        torch.testing.assert_close(ours, theirs.grad)


def test_a_tokenizer_and_a_model_built_inside_the_compiled_function(tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    vocab_file = str(tmp_path / "vocab.txt")

    def run():
        torch.manual_seed(0)
        tokenizer = transformers.BertTokenizer(vocab_file)
        config = transformers.BertConfig(
            vocab_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
        )
        model = transformers.BertModel(config).eval()
        encoded = tokenizer("hello world", return_tensors="pt")
        with torch.no_grad():
            return model(**encoded).last_hidden_state

    torch.testing.assert_close(core.compile(run, backend="eager")(), run())
    assert core.stats()["graphs"] >= 1
