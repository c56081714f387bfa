"""How far the backend tensorrt is shown to work here, without a GPU: models converted, their engines built.

    python -m bench.tensorrt_stages [--models bert,vit] [--capability 8.6] [--out FILE]

*convert*: every node is taken, and the ONNX model, run by ONNX Runtime, is as near to float64 as eager is. *build*:
TensorRT-RTX makes an engine of the same bytes. *run*: an engine's own results, which need a GPU that it has code for.
Random weights, nothing is downloaded; weights are given by pointer, as `freeze=True` does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

import core
from core.plugin import Artifact, Backend, Capabilities, CompileFailed, Unsupported, installed_version

from .subjects import SUBJECTS, Subject, worst_error
from .vendor_table import machine

MODELS = ("resnet50", "vit", "bert", "gpt2")
STAGES = ("convert", "build", "run")
TOLERANCE = 1e-4  # relative, of float32
LISTED = 3
NO_GPU = "no engine is run here: that needs a GPU of a compute capability that the product has code for"


class Keeps(Backend):
    """Runs a graph as it is, or by `instead`, and keeps it with what the backend under test would have been given."""

    name = "keeps"
    version = "1"
    capabilities = Capabilities(graph_level="core-aten", dynamic_shapes="bounded")
    instead: Callable[..., Any] | None = None

    def compile(self, graph: Any, fake_inputs: Any, ctx: Any) -> Artifact:
        self.graph, self.fakes, self.ctx, self.weights = graph, list(fake_inputs), ctx, dict(ctx.constants)

        return Artifact(call=lambda *inputs: (self.instead or graph.forward)(*inputs))


def by_onnx_runtime(model: Any) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A converted graph as a function that ONNX Runtime computes, from the same bytes and weights."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3  # errors; it warns of weights that no node reads
    values = [ort.OrtValue.from_dlpack(weight) for weight in model.external.values()]
    options.add_external_initializers(list(model.external), values)
    engine = ort.InferenceSession(model.serialized(), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in model.model.graph.input}

    def call(*inputs: Any) -> tuple[torch.Tensor, ...]:
        given = {
            name: torch.as_tensor(one).detach().numpy() for name, one in zip(model.inputs, inputs) if name in names
        }
        return tuple(torch.from_numpy(value) for value in engine.run(None, given))

    return call


def measure(name: str, capability: str) -> list[dict[str, Any]]:
    """The rows of a model: one a stage."""
    from core_tensorrt.build import Settings, build_model, model_of
    from core_tensorrt.plugin import TensorRtBackend
    from core_tensorrt.runtimes import choose

    subject = SUBJECTS[name]()
    reference = subject.reference()
    eager_error = worst_error(subject.run(subject.model), reference)
    kept = Keeps()
    core.reset()
    compiled = core.compile(subject.model, backend=kept, fullgraph=True, freeze=True)
    subject.run(compiled)
    calls = [node for node in kept.graph.graph.nodes if node.op == "call_function"]
    size = sum(parameter.numel() for parameter in subject.model.parameters())
    base = {"model": name, "parameters": size, "nodes": len(calls), "inputs": _shapes(subject)}
    rows = [{**base, "stage": stage, "outcome": "not run", "seconds": None, "note": ""} for stage in STAGES]
    convert, build, run = rows
    run["note"] = NO_GPU
    refused = {node.name: reason for node in calls if (reason := TensorRtBackend().supports(node, kept.ctx).reason)}
    if refused:
        convert.update(outcome="failed", note="; ".join(f"{n}: {why}" for n, why in list(refused.items())[:LISTED]))
        return rows
    frozen = {index: weight.detach().contiguous() for index, weight in kept.weights.items() if weight.numel()}
    began = time.perf_counter()
    try:
        model = model_of(kept.graph, frozen, name)
    except Unsupported as error:
        convert.update(outcome="failed", note=str(error))
        return rows
    convert["seconds"] = time.perf_counter() - began
    kept.instead = by_onnx_runtime(model)
    convert.update(error=worst_error(subject.run(compiled), reference), eager_error=eager_error)
    right = convert["error"] <= max(TOLERANCE, 4 * eager_error)
    convert["outcome"] = "passed" if right else "failed"
    choice = choose("auto", capability)
    if not choice.module:
        build["note"] = choice.reason
        return rows
    began = time.perf_counter()
    try:
        built = build_model(model, kept.fakes, kept.ctx.ranges, Settings(choice.module, capability))
    except (CompileFailed, Unsupported) as error:
        build.update(outcome="failed", note=str(error).splitlines()[0])
        return rows
    build.update(outcome="passed", seconds=time.perf_counter() - began, layers=built.layers, bytes=len(built.engine))
    build["note"] = f"{choice.label}, for compute capability {capability}"
    return rows


def _shapes(subject: Subject) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in subject.inputs.items()}


def report(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows as the catalog keeps them: with the machine, the versions, the state of each stage and a digest."""
    states = {}
    for stage in STAGES:
        outcomes = {row["outcome"] for row in rows if row["stage"] == stage}
        states[stage] = "failed" if "failed" in outcomes else outcomes.pop() if len(outcomes) == 1 else "not run"
    names = (
        "core",
        "core-tensorrt",
        "core-onnx",
        "torch",
        "onnxruntime",
        "tensorrt-rtx-cu13-bindings",
        "tensorrt-cu13",
    )
    made: dict[str, Any] = {
        "schema": 1,
        "backend": {
            "name": "tensorrt",
            "distribution": "core-tensorrt",
            "version": installed_version("core-tensorrt"),
        },
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": {name: version for name in names if (version := installed_version(name))},
        "stages": states,
        "rows": list(rows),
    }
    text = json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return {**made, "digest": hashlib.sha256(text.encode()).hexdigest()}


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    facts = [f"{row['parameters'] / 1e6:.1f}M parameters", f"{row['nodes']} nodes"]
    if row.get("error") is not None:
        facts.append(f"error {row['error']:.1e}, eager's {row['eager_error']:.1e}")
    if row["seconds"] is not None:
        facts.append(f"{row['seconds']:.2f} s")
    if "layers" in row:
        facts.append(f"{row['layers']} layers, {row['bytes'] / 1e6:.1f} MB")
    return f"{row['model']:9} {row['stage']:8} {row['outcome']:8} {', '.join(facts)}  {row['note']}".rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tensorrt_stages", description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--capability", default="8.6", help="the compute capability that engines are built for")
    parser.add_argument("--out", type=Path, help="where the report goes")
    options = parser.parse_args(arguments)
    rows = []
    for name in filter(None, options.models.split(",")):
        for row in measure(name, options.capability):
            rows.append(row)
            print(line(row), flush=True)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report(rows), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 1 if any(row["outcome"] == "failed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
