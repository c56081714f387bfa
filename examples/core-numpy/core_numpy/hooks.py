"""Everything that core asks of this plugin, as functions."""

from importlib import metadata

from core.plugin import Artifact, Backend, Capabilities, Finding, Option, Probe, Support, Unsupported, hookimpl

DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


class NumpyBackend(Backend):
    name = "numpy"
    version = "0.3.0"
    capabilities = Capabilities(
        graph_level="aten-functional",
        modes=("inference", "training"),
        dtypes=DTYPES,
        devices=("cpu",),
        dynamic_shapes="full",
        deterministic="always",
    )


@hookimpl
def core_backend():
    return NumpyBackend()


@hookimpl
def core_diagnose():
    return [Finding("info", f"core-numpy runs on NumPy {metadata.version('numpy')}")]


@hookimpl
def backend_probe(device):
    if device.partition(":")[0] != "cpu":
        return Probe(False, "NumPy arrays live in the memory of the CPU", "move the tensors to the CPU")
    return Probe(True, runtime_versions={"numpy": metadata.version("numpy")})


@hookimpl
def backend_options():
    return {"accumulate": Option(str, "float64", ("float64", "float32"), help="in what float32 is summed up")}


@hookimpl
def backend_supports(node, ctx):
    from .translate import refusal

    why = refusal(node)
    return Support("no", why) if why else Support("native")


@hookimpl
def backend_compile(graph, fake_inputs, ctx):
    from .translate import refusal, translate

    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    refused = {node: why for node in nodes if (why := refusal(node))}
    if refused:
        raise Unsupported(list(refused), "; ".join(sorted(set(refused.values()))))
    run, source = translate(graph, wide_sums=ctx.options["accumulate"] == "float64")
    return Artifact(
        call=run,
        kernels=len(nodes),
        provenance={node.name: "native" for node in nodes},
        describe=lambda: source,
    )
