"""The global-state guard: each state of torch that changes what code does is seen when it is toggled."""

import builtins
import contextlib
import threading

import pytest
import torch

from core import _C, torch_compat
from core.guards import GlobalState, Guard, GuardSet
from core.guards.failure import describe_failure
from core.guards.tree import build_program


class CountingMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class PassingMode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def setting(read, write, value):
    """Writes a process-wide setting and restores it."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def attribute(owner, name, value):
    return setting(lambda: getattr(owner, name), lambda new: setattr(owner, name, new), value)


@contextlib.contextmanager
def autocast_dtype(device, dtype):
    with setting(lambda: torch.get_autocast_dtype(device), lambda new: torch.set_autocast_dtype(device, new), dtype):
        yield


@contextlib.contextmanager
def vmap_level():
    level = torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        assert level >= 1
        yield
    finally:
        torch._C._functorch._vmap_decrement_nesting()


@contextlib.contextmanager
def cache_disabled():
    with setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False):
        yield


backends = torch.backends

STATES = {
    "no_grad": (torch.no_grad, "grad mode was 1, now 0"),
    "inference mode": (torch.inference_mode, "grad mode was 1, now 0"),
    "forward grad off": (lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False), "autograd mode bits"),
    "autocast cpu": (lambda: torch.autocast("cpu", torch.bfloat16), "dispatch keys"),
    "autocast cpu, off inside": (lambda: torch.autocast("cpu", enabled=False), None),
    "autocast dtype cpu": (lambda: autocast_dtype("cpu", torch.float16), "autocast dtype (cpu) was"),
    "autocast dtype cuda": (lambda: autocast_dtype("cuda", torch.bfloat16), "autocast dtype (cuda) was"),
    "autocast cache": (cache_disabled, "autocast cache enabled was 1, now 0"),
    "default dtype": (
        lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        "default dtype was",
    ),
    "default device": (lambda: torch.device("meta"), "torch function modes was 0, now 1"),
    "function mode": (CountingMode, "torch function modes was 0, now 1"),
    "functions disabled": (torch._C.DisableTorchFunctionSubclass, "torch function disabled was"),
    "functions disabled for all": (torch._C.DisableTorchFunction, "torch function disabled was"),
    "dispatch mode": (PassingMode, "torch dispatch modes was 0, now 1"),
    "vmap": (vmap_level, "functorch layers was 0"),
    "forward-mode level": (torch.autograd.forward_ad.dual_level, "forward-mode level was -1, now 0"),
    "saved-tensor hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        "saved-tensor hooks was 0, now 1",
    ),
    "deterministic": (
        lambda: setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
        "deterministic algorithms was 0, now 1",
    ),
    "deterministic fill": (
        lambda: attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
        "deterministic fill",
    ),
    "matmul precision": (
        lambda: setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
        "precision was",
    ),
    "tf32 matmul": (lambda: attribute(backends.cuda.matmul, "allow_tf32", True), "was"),
    "tf32 cudnn": (lambda: attribute(backends.cudnn, "allow_tf32", False), None),
    "fp32 precision of conv": (lambda: attribute(backends.cudnn.conv, "fp32_precision", "ieee"), "conv precision was"),
    "fp32 precision of mkldnn": (
        lambda: attribute(backends.mkldnn.matmul, "fp32_precision", "bf16"),
        "mkldnn matmul precision was",
    ),
    "fp16 reduction": (
        lambda: attribute(backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
        "fp16 reduction in cublas",
    ),
    "bf16 reduction": (
        lambda: attribute(backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
        "bf16 reduction in cublas",
    ),
    "cudnn off": (lambda: attribute(backends.cudnn, "enabled", False), "cudnn enabled was 1, now 0"),
    "cudnn benchmark": (lambda: attribute(backends.cudnn, "benchmark", True), "cudnn benchmark was 0, now 1"),
    "cudnn deterministic": (lambda: attribute(backends.cudnn, "deterministic", True), "deterministic cudnn"),
    "mkldnn off": (
        lambda: setting(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False),
        "mkldnn enabled was 1, now 0",
    ),
    "flash attention": (
        lambda: setting(backends.cuda.flash_sdp_enabled, backends.cuda.enable_flash_sdp, False),
        "flash attention enabled was 1, now 0",
    ),
    "memory-efficient attention": (
        lambda: setting(backends.cuda.mem_efficient_sdp_enabled, backends.cuda.enable_mem_efficient_sdp, False),
        "memory-efficient attention enabled",
    ),
    "math attention": (
        lambda: setting(backends.cuda.math_sdp_enabled, backends.cuda.enable_math_sdp, False),
        "math attention enabled",
    ),
    "cudnn attention": (
        lambda: setting(backends.cuda.cudnn_sdp_enabled, backends.cuda.enable_cudnn_sdp, False),
        "cudnn attention enabled",
    ),
}
UNCHANGED = {"autocast cpu, off inside"}


def recalibrate(known_flags):
    from torch.utils._device import DeviceContext

    hooks = torch._C._autograd
    return _C.global_state_calibrate(
        torch.autograd.forward_ad.__dict__,
        DeviceContext(torch.device("meta")),
        (0, 1),
        hooks._push_saved_tensors_default_hooks,
        hooks._pop_saved_tensors_default_hooks,
        known_flags,
    )


@pytest.fixture(params=["from memory", "by getters"])
def way(request):
    """Process-wide flags compared in memory, or read one by one."""
    torch_compat.calibrate_tensor_guards()
    # The first write spells out what was inherited, for good: let that be the state that tests start from.
    torch.set_float32_matmul_precision(torch.get_float32_matmul_precision())
    recalibrate(request.param == "from memory")
    yield request.param
    recalibrate(torch.__version__.startswith("2.13."))


def program_of_now():
    return build_program(GuardSet([Guard(None, GlobalState(_C.global_state_snapshot()))]))


def miss(program):
    return program.check((), globals(), vars(builtins), None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STATES)
def test_a_toggled_state_misses_and_its_reason_names_it(name, way):
    enter, words = STATES[name]
    if name == "tf32 cudnn" and way == "by getters":
        pytest.skip("this flag has no getter without arguments; the precision settings stand for it")
    program, owners = program_of_now()
    assert miss(program) == -1
    with enter():
        if name in UNCHANGED:
            assert miss(program) == -1
        else:
            assert miss(program) == 0
            text = describe_failure(owners, program, (), globals(), vars(builtins), None)
            assert text.startswith("torch's global state changed: ")
            assert words is None or words in text
        inside, _ = program_of_now()
        assert miss(inside) == -1
    assert miss(program) == -1
    assert (miss(inside) == -1) == (name in UNCHANGED)


def test_the_states_are_compared_in_memory_with_this_torch():
    torch_compat.calibrate_tensor_guards()
    names = recalibrate(torch.__version__.startswith("2.13."))
    for expected in (
        "autograd mode bits (grad, inference, forward grad, ...)",
        "torch function modes (raw)",
        "saved-tensor hooks",
    ):
        assert expected in names


def test_equal_default_devices_are_one_state_and_others_are_not():
    torch_compat.calibrate_tensor_guards()
    with torch.device("meta"):
        program, _ = program_of_now()
        snapshot = _C.global_state_snapshot()
        assert miss(program) == -1
    with torch.device("meta"):
        assert miss(program) == -1
        assert snapshot == _C.global_state_snapshot() and hash(snapshot) == hash(_C.global_state_snapshot())
    with torch.device("cpu"):
        assert miss(program) == 0
        assert snapshot != _C.global_state_snapshot()
    with CountingMode():
        assert miss(program) == 0
    assert miss(program) == 0


def test_nested_levels_are_told_apart(way):
    with vmap_level():
        program, _ = program_of_now()
        assert miss(program) == -1
        with vmap_level():
            assert miss(program) == 0
        assert miss(program) == -1
    with PassingMode():
        program, _ = program_of_now()
        assert miss(program) == -1
        with PassingMode():
            assert miss(program) == 0


def test_each_thread_has_a_state_of_its_own(way):
    program, _ = program_of_now()
    seen = []

    def work():
        seen.append(miss(program))
        with torch.no_grad():
            seen.append(miss(program))
        with torch.autocast("cpu", torch.bfloat16):
            seen.append(miss(program))

    with torch.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert miss(program) == 0
    assert seen == [-1, 0, 0]


def test_snapshots_of_one_state_are_equal_and_have_readable_values():
    torch_compat.calibrate_tensor_guards()
    one, two = _C.global_state_snapshot(), _C.global_state_snapshot()
    assert one == two and hash(one) == hash(two) and one != 5
    assert one.values()["grad mode"] == 1 and one.values()["function_modes"] == ()
    with torch.no_grad():
        assert _C.global_state_snapshot() != one
        assert _C.describe_difference(one) == "grad mode was 1, now 0"
    assert _C.describe_difference(one) is None
    assert GlobalState(one) == GlobalState(two) and len({GlobalState(one), GlobalState(two)}) == 1


def test_calibration_leaves_the_state_as_it_was():
    torch_compat.calibrate_tensor_guards()
    with torch.no_grad(), torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
        before = _C.global_state_snapshot()
        recalibrate(torch.__version__.startswith("2.13."))
        torch_compat.calibrate_tensor_guards.__wrapped__()
        assert before == _C.global_state_snapshot()
