"""Where everything may be caught: a listed set of borders, none of which drops what it caught."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# (file, function): (what becomes of the error, why everything is caught there).
# raises: it, or an error made from it, is raised; emits: an event names it; answers: the returned value names it.
BORDERS = {
    ("core/capture/convert_frame.py", "FrameCompiler.compile_frame"): (
        "emits",
        "a fault of core must not break the user's program; CORE_STRICT=1 raises it",
    ),
    ("core/capture/convert_frame.py", "FrameCompiler._traced"): ("raises", "the fake world must be left"),
    ("core/capture/lazy_modules.py", "infer_parameters"): (
        "raises",
        "the user's initialization: Python shows it again",
    ),
    ("core/capture/lazy_modules.py", "_refuse_to_need_values"): ("raises", "a trial of the user's initialization"),
    ("core/backends/restored_modes.py", "restoring.run"): ("raises", "torch's modes are put back"),
    ("core/capture/convert_frame.py", "FrameCompiler._entry"): ("raises", "the fake world must be left"),
    ("core/capture/as_written.py", "AsWritten._watched"): ("raises", "the program's own exception, in strict runs"),
    ("core/capture/tracer.py", "TracerServices.add_to_graph"): ("raises", "it is the traced program's own exception"),
    ("core/capture/tracer.py", "TracerServices.answer"): ("raises", "it is the traced program's own exception"),
    ("core/graph/builder.py", "GraphBuilder._run"): (
        "raises",
        "a fake run fails with whatever torch raises",
    ),
    ("core/graph/transform_region.py", "transformed"): ("raises", "eager is asked by breaking the graph"),
    ("core/torch_compat/__init__.py", "dispatch_state_kept"): ("raises", "frames of the error hold torch's guards"),
    ("core/graph/refusals.py", "eager_exception"): ("answers", "the exception that eager raises is the answer"),
    ("core/backends/cuda_graphs/graph_device.py", "CudaDevice.capture"): ("raises", "a capture that failed is left"),
    ("core/backends/artifact.py", "build_artifact"): ("raises", "the edge of a plugin: named after it"),
    ("core/backends/partition_support.py", "Verdicts._asked"): ("raises", "the edge of a plugin: named after it"),
    ("core/backends/passes.py", "collect"): ("answers", "the edge of a plugin: a finding, CORE_STRICT=1 raises it"),
    ("core/backends/passes.py", "_entry_points"): ("answers", "the edge of a plugin: a finding, the others go on"),
    ("core/backends/passes.py", "_run_one"): ("answers", "the edge of a plugin: a finding, the pass is off"),
    ("core/backends/partition.py", "_ask_own"): ("answers", "the edge of a plugin: a finding, core divides the graph"),
    ("core/backends/auto.py", "_Choice._tried"): ("answers", "the edge of a plugin: a row of the table"),
    ("core/cli/bench.py", "compare"): ("answers", "the edge of a plugin: its row says what it raised"),
    ("core/cli/explain.py", "run_script"): ("answers", "the user's program: the report says how it ended"),
    ("core/backends/bridge.py", "load_foreign"): ("raises", "the edge of a foreign module: named after it"),
    ("core/backends/registry.py", "Registry._load"): ("raises", "the edge of a plugin: it is quarantined"),
    ("core/backends/registry.py", "Registry.diagnose"): ("answers", "the edge of a plugin: a finding of the doctor"),
    ("core/backends/registry.py", "Registry.unload"): ("answers", "the edge of a plugin: a finding"),
    ("core/report/doctor_probe.py", "_verified"): ("answers", "the edge of a plugin: a finding of the doctor"),
    ("core/backends/stored.py", "_restored"): ("emits", "the edge of a plugin: stored bytes are worth a compile"),
    ("core/backends/stored.py", "_keep"): ("emits", "the edge of a plugin: what is not stored was compiled"),
    ("core/backends/isolated_compile.py", "main"): ("answers", "the edge of a plugin, and of its process"),
    ("core/backends/probing.py", "ask.run"): ("answers", "the edge of a plugin: unusable, with reason"),
    ("core/backends/aot_fallback.py", "compile_refused"): ("emits", "a second tracer fails where the first refused"),
    ("core/guards/checks.py", "shorten"): ("answers", "a report survives a user's __repr__"),
    ("core/guards/failure.py", "explain_guard"): ("answers", "a report survives user objects"),
    ("plugins/onnxrt/core_onnxrt/engine.py", "open_engine"): ("raises", "the edge of the runtime: CompileFailed"),
    ("plugins/openvino/core_openvino/artifact.py", "_model_call"): (
        "raises",
        "the edge of the runtime: CompileFailed",
    ),
    ("plugins/tvm/core_tvm/artifact.py", "compile_graph"): ("raises", "the edge of TVM: CompileFailed"),
    ("plugins/ofi/core_ofi/torchscript.py", "_program"): ("raises", "the edge of TorchScript: CompileFailed"),
    ("plugins/inductor/core_inductor/runtime/build.py", "_run"): ("raises", "no compiler process is left behind"),
}
ALL = {"Exception", "BaseException"}
NEVER_RETURN = {"raise_exception"}


def catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or isinstance(kind, ast.Name) and kind.id in ALL for kind in kinds)


def borders_of(path: Path) -> list[tuple[str, ast.ExceptHandler]]:
    """(qualified function name, handler) of every handler that catches everything."""
    found = []

    def visit(node: ast.AST, trail: tuple[str, ...]) -> None:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            trail = (*trail, node.name)
        if isinstance(node, ast.ExceptHandler) and catches_all(node):
            found.append((".".join(trail), node))
        for child in ast.iter_child_nodes(node):
            visit(child, trail)

    visit(ast.parse(path.read_text()), ())
    return found


def product_files() -> list[Path]:
    return sorted(p for root in ("core", "plugins") for p in (ROOT / root).rglob("*.py") if is_product(p))


def is_product(path: Path) -> bool:
    return not {"tests", "build"} & set(path.relative_to(ROOT).parts)


FOUND = [(str(path.relative_to(ROOT)), name, node) for path in product_files() for name, node in borders_of(path)]


def test_everything_is_caught_at_listed_borders_only():
    unlisted = [f"{file}:{node.lineno} in {name}" for file, name, node in FOUND if (file, name) not in BORDERS]
    assert not unlisted, "\n".join(unlisted)


def test_every_listed_border_exists():
    assert set(BORDERS) <= {(file, name) for file, name, _ in FOUND}


@pytest.mark.parametrize("file, name, handler", FOUND, ids=[f"{name}:{node.lineno}" for _, name, node in FOUND])
def test_no_border_drops_its_error(file, name, handler):
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    calls = {called(node) for node in inside if isinstance(node, ast.Call)}
    uses = handler.name is not None and any(isinstance(n, ast.Name) and n.id == handler.name for n in inside)
    how = BORDERS.get((file, name), ("raises", ""))[0]
    if how == "raises":
        assert any(isinstance(node, ast.Raise) for node in inside) or calls & NEVER_RETURN
    elif how == "emits":
        assert uses and "emit" in calls
    else:
        assert how == "answers" and uses


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
