"""What a Kernel does on each call: reading tensors, allocating outputs, refusing what is no tensor."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import threading

import pytest
import torch
from core_inductor import _runtime
from core_inductor.runtime.build import build_library
from core_inductor.runtime.load import calibrate, dtype_code, make_kernels
from core_inductor.runtime.spec import FAILURES, KernelSpec, OutputSpec

SOURCE = """
#define KERNEL(name) extern "C" int name(void *const *p, const long *ints, const double *floats, int nthreads)
KERNEL(add_one) { for (long i = 0; i < 8; i++) ((float *)p[1])[i] = ((const float *)p[0])[i] + 1.0f; return 0; }
KERNEL(scale) {
    const float *x = (const float *)p[0];
    float *y = (float *)p[1];
    const long n = ints[0] * ints[1];
    const float by = (float)floats[0];
    #pragma omp parallel for num_threads(nthreads) if (nthreads > 1)
    for (long i = 0; i < n; i++) y[i] = x[i] * by;
    return 0;
}
KERNEL(sum_and_count) {
    const double *x = (const double *)p[0];
    double s = 0;
    for (long i = 0; i < ints[0]; i++) s += x[i];
    *(double *)p[1] = s;
    *(long *)p[2] = ints[0];
    return 0;
}
KERNEL(threads) { for (long i = 0; i < ints[0]; i++) ((int *)p[1])[i] = nthreads; return 0; }
KERNEL(half_subnormal) { volatile float *y = (float *)p[1]; y[0] = ((const float *)p[0])[0] * 0.5f; return 0; }
KERNEL(nothing) { return 0; }
KERNEL(fails) { return (int)ints[0]; }
"""
N = ("int", 0)


def output(sizes, strides, dtype="float32"):
    return OutputSpec(tuple(sizes), tuple(strides), dtype)


SPECS = {
    spec.name: spec
    for spec in [
        KernelSpec("add_one", 1, (output([8], [1]),)),
        KernelSpec("scale", 1, (output([N, ("int", 1)], [("int", 1), 1]),), int_args=2, float_args=1, parallel=True),
        KernelSpec("sum_and_count", 1, (output([], [], "float64"), output([1], [1], "int64")), int_args=1),
        KernelSpec("threads", 1, (output([N], [1], "int32"),), int_args=1, parallel=True),
        KernelSpec("half_subnormal", 1, (output([1], [1]),)),
        KernelSpec("fails", 0, (output([2], [1]), output([2], [1])), int_args=1),
        KernelSpec("nothing", 0, (output([2, 3], [1, 2], "bfloat16"),)),
    ]
}


@pytest.fixture
def kernels():
    return dict(zip(SPECS, make_kernels(build_library(SOURCE), SPECS.values())))


def kernel_of(spec):
    return make_kernels(build_library(SOURCE), [spec])[0]


def test_a_kernel_reads_its_input_and_returns_a_fresh_plain_tensor(kernels):
    x = torch.randn(8)
    first, second = kernels["add_one"](x), kernels["add_one"](x)
    assert torch.equal(first, x + 1) and torch.equal(second, x + 1)
    assert first.data_ptr() != second.data_ptr()
    assert type(first) is torch.Tensor and not first.requires_grad and first.is_leaf


def test_a_storage_offset_is_part_of_the_pointer(kernels):
    base = torch.randn(20)
    assert torch.equal(kernels["add_one"](base[5:13]), base[5:13] + 1)


def test_a_parameter_and_a_subclass_are_read_like_tensors(kernels):
    class Tagged(torch.Tensor):
        pass

    x = torch.randn(8)
    assert torch.equal(kernels["add_one"](torch.nn.Parameter(x)), x + 1)
    assert torch.equal(kernels["add_one"](x.as_subclass(Tagged)), x + 1)


def test_symbolic_sizes_and_floats_come_from_the_scalar_arguments(kernels):
    for rows, columns in [(1, 1), (3, 5), (0, 4), (700, 131)]:
        x = torch.randn(rows, columns)
        y = kernels["scale"](x, rows, columns, 2.5)
        assert y.shape == (rows, columns) and y.stride() == (columns, 1)
        assert torch.equal(y, x * 2.5)


def test_two_outputs_come_as_a_tuple_and_zero_dimensions_work(kernels):
    x = torch.arange(10, dtype=torch.float64)
    result = kernels["sum_and_count"](x, 10)
    assert type(result) is tuple and len(result) == 2
    assert result[0].shape == () and result[0].item() == 45 and result[1].tolist() == [10]


def test_dtype_and_strides_of_an_output_are_those_of_its_spec(kernels):
    y = kernels["nothing"]()
    assert y.dtype is torch.bfloat16 and y.shape == (2, 3) and y.stride() == (1, 2)
    assert y.untyped_storage().nbytes() == 12


@pytest.mark.parametrize("value", [3, None, [1.0], "x", object()])
def test_an_argument_that_is_no_tensor_raises_type_error_with_its_position(kernels, value):
    with pytest.raises(TypeError, match=r"add_one\(\): argument 1 must be Tensor, not " + type(value).__name__):
        kernels["add_one"](value)


def test_a_wrong_number_of_arguments_and_keywords_raise_type_error(kernels):
    x = torch.randn(8)
    with pytest.raises(TypeError, match="1 tensors, 0 ints and 0 floats"):
        kernels["add_one"](x, x)
    with pytest.raises(TypeError, match="no keyword"):
        kernels["add_one"](x=x)
    with pytest.raises(TypeError):
        kernels["scale"](x, "1", 8, 2.0)
    with pytest.raises(OverflowError):
        kernels["scale"](x, 1 << 70, 8, 2.0)


def test_a_tensor_without_memory_raises_instead_of_being_read(kernels):
    with pytest.raises(RuntimeError, match="add_one"):
        with torch._subclasses.FakeTensorMode():
            fake = torch.empty(8)
        kernels["add_one"](fake)


def test_a_negative_size_raises_what_torch_raises(kernels):
    with pytest.raises(RuntimeError) as expected:
        torch.empty_strided((-1, 4), (4, 1))
    with pytest.raises(RuntimeError) as raised:
        kernels["scale"](torch.randn(4), -1, 4, 1.0)
    assert str(raised.value) == str(expected.value)


def test_more_memory_than_there_is_raises_what_torch_raises(kernels):
    size = 1 << 45
    with pytest.raises(RuntimeError) as expected:
        torch.empty_strided((size, 4), (4, 1))
    with pytest.raises(RuntimeError) as raised:
        kernels["scale"](torch.randn(4), size, 4, 1.0)
    assert type(raised.value) is type(expected.value)
    assert str(raised.value)[:60] == str(expected.value)[:60]


def test_an_output_that_reuses_an_input_of_its_layout_is_that_input():
    kernel = kernel_of(KernelSpec("add_one", 1, (output([8], [1]),), reuse=(0,)))
    x = torch.arange(8.0)
    assert kernel(x) is x
    assert torch.equal(x, torch.arange(8.0) + 1)


def test_an_output_of_another_shape_reuses_the_storage_as_a_new_tensor():
    kernel = kernel_of(KernelSpec("add_one", 1, (output([2, 4], [4, 1]),), reuse=(0,)))
    x = torch.arange(8.0)
    y = kernel(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and y.shape == (2, 4)
    assert y._base is None
    del x
    gc.collect()
    assert torch.equal(y.flatten(), torch.arange(8.0) + 1)


@pytest.mark.parametrize("reuse", [None, 0])
def test_allocating_through_python_gives_the_same_tensors(reuse):
    code = f"""
import torch
from core_inductor import _runtime
from core_inductor.runtime.load import calibrate, dtype_code
calibrate()
from core_inductor.runtime.build import build_library
_runtime.allocate_in_python()
library = build_library({SOURCE!r})
code, dtype = dtype_code("float32")
reuse = {-1 if reuse is None else reuse}
kernel = _runtime.Kernel(library, "add_one", 1, (((2, 4), (4, 1), code, dtype, reuse),))
x = torch.randn(8)
expected = x + 1
y = kernel(x)
assert _runtime.allocation() == "python"
assert y.shape == (2, 4) and torch.equal(y.flatten(), expected) and type(y) is torch.Tensor
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**_environment()})


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_kernels_use_the_number_of_threads_torch_has_now(kernels):
    before = torch.get_num_threads()
    x = torch.empty(40000)
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert kernels["threads"](x, 40000).unique().tolist() == [count]
            assert _runtime.thread_count() == count
        torch.set_num_threads(2)
        assert kernels["threads"](x[:100], 100).unique().tolist() == [1], "small work stays on one thread"
    finally:
        torch.set_num_threads(before)


def test_a_kernel_that_is_not_parallel_gets_one_thread():
    kernel = make_kernels(build_library(SOURCE), [SPECS["threads"]], parallel=False)[0]
    assert kernel(torch.empty(40000), 40000).unique().tolist() == [1]


def test_subnormal_numbers_survive_a_loaded_kernel_library(kernels):
    tiny = torch.tensor([1.1754943508222875e-38])
    assert kernels["half_subnormal"](tiny).item() == 5.877471754111438e-39
    assert (tiny * 0.5).item() != 0.0, "torch's own arithmetic in this process"
    assert 5e-324 * 1.0 != 0.0


def test_inference_mode_makes_inference_tensors_as_torch_does(kernels):
    x = torch.randn(8)
    with torch.inference_mode():
        assert kernels["add_one"](x).is_inference()
    assert not kernels["add_one"](x).is_inference()


def test_many_threads_share_one_kernel(kernels):
    kernel, failures = kernels["scale"], []

    def work(seed):
        x = torch.full((200, 100), float(seed))
        for _ in range(50):
            if not torch.equal(kernel(x, 200, 100, 3.0), x * 3):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_calls_neither_leak_tensors_nor_references(kernels):
    x = torch.randn(1000, 100)
    references = sys.getrefcount(x)
    kernels["scale"](x, 1000, 100, 2.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500):  # 200 MB if outputs stayed
        kernels["scale"](x, 1000, 100, 2.0)
        with pytest.raises(TypeError):
            kernels["scale"](x, "n", 100, 2.0)
    assert sys.getrefcount(x) == references
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_kernel_keeps_its_library_and_the_library_goes_with_it():
    import weakref

    library = build_library(SOURCE)
    alive = weakref.ref(library)
    kernel = make_kernels(library, [SPECS["add_one"]])[0]
    del library
    assert torch.equal(kernel(torch.zeros(8)), torch.ones(8))
    del kernel
    gc.collect()
    assert alive() is None


def test_more_arguments_than_the_inline_buffers_hold():
    count = 100
    body = "".join(f"s += ((const float *)p[{i}])[0];" for i in range(count))
    body += "".join(f"s += ints[{i}];" for i in range(count)) + "".join(f"s += floats[{i}];" for i in range(count))
    source = (
        'extern "C" int wide(void *const *p, const long *ints, const double *floats, int nthreads) {'
        f" float s = 0; {body} ((float *)p[{count}])[0] = s; return 0; }}"
    )
    spec = KernelSpec("wide", count, (output([1], [1]),), int_args=count, float_args=count)
    kernel = make_kernels(build_library(source), [spec])[0]
    assert kernel(*[torch.ones(1)] * count, *[2] * count, *[3.0] * count).item() == 6 * count


def test_a_bad_output_description_is_refused_when_the_kernel_is_made():
    calibrate()
    library = build_library(SOURCE)
    code, dtype = dtype_code("float32")
    for outputs in [
        (((8,), (1,), code, dtype, 1),),
        (((8, 1), (1,), code, dtype, -1),),
        (((("int", 0),), (1,), code, dtype, -1),),
        (((("float", 0),), (1,), code, dtype, -1),),
        (((8.0,), (1,), code, dtype, -1),),
        ((8,),),
    ]:
        with pytest.raises((TypeError, ValueError)):
            _runtime.Kernel(library, "add_one", 1, outputs)
    with pytest.raises(KeyError, match="missing"):
        _runtime.Kernel(library, "missing", 1, ())


def test_check_layout_ignores_strides_that_have_no_meaning():
    calibrate()
    code, _ = dtype_code("float32")
    x = torch.randn(4, 1, 3)
    assert _runtime.check_layout(x, (4, 1, 3), (3, 3, 1), code)
    assert _runtime.check_layout(x, (4, 1, 3), (3, 77, 1), code)
    assert not _runtime.check_layout(x, (4, 1, 3), (1, 3, 4), code)
    assert not _runtime.check_layout(x, (4, 3), (3, 1), code)
    assert not _runtime.check_layout(x.double(), (4, 1, 3), (3, 3, 1), code)
    assert _runtime.check_layout(torch.empty(0, 3), (0, 3), (9, 9), code)


def test_a_view_has_the_layout_asked_for_on_the_same_memory():
    calibrate()
    base = torch.arange(24.0)
    x = base[4:16].view(3, 4)
    transposed = _runtime.View((4, 3), (1, 4))(x)
    assert torch.equal(transposed, x.t()) and transposed.data_ptr() == x.data_ptr()
    assert torch.equal(_runtime.View((2, 2), (4, 1), 5)(x), x[1:, 1:3])
    symbolic = _runtime.View((("int", 0), 2), (("int", 1), 1), ("int", 2), ints=3)
    assert torch.equal(symbolic(x, 2, 4, 5), x[1:, 1:3])
    assert _runtime.View((), ())(x).item() == 4.0


def test_a_view_keeps_its_memory_and_refuses_what_is_no_tensor():
    calibrate()
    view = _runtime.View((4,), (1,))(torch.full((4,), 3.0))
    gc.collect()
    assert view.tolist() == [3.0] * 4
    with pytest.raises(TypeError, match="Tensor"):
        _runtime.View((4,), (1,))(3)
    with pytest.raises(TypeError, match="0 ints"):
        _runtime.View((4,), (1,))(view, 1)
    with pytest.raises(RuntimeError):
        _runtime.View((400,), (1,))(view)


@pytest.mark.parametrize("status", FAILURES)
def test_a_failed_kernel_raises_the_error_that_eager_would(kernels, status):
    kind, message = FAILURES[status]
    with pytest.raises(kind, match=message):
        kernels["fails"](status)
    assert len(kernels["fails"](0)) == 2


def test_an_unknown_status_is_an_error_too(kernels):
    with pytest.raises(RuntimeError, match="fails failed with status 77"):
        kernels["fails"](77)


def test_large_work_runs_without_the_gil():
    source = """
    extern "C" int wait_for(void *const *p, const long *ints, const double *floats, int nthreads) {
        volatile long *flag = (volatile long *)p[0];
        for (long i = 0; i < 40000000000 && *flag == 0; i++) {}
        ((long *)p[1])[0] = *flag;
        return 0;
    }"""
    kernel = make_kernels(build_library(source), [KernelSpec("wait_for", 1, (output([1], [1], "int64"),))])[0]
    flag = torch.zeros(100_000, dtype=torch.int64)
    timer = threading.Timer(0.05, flag.fill_, [5])
    timer.start()
    assert kernel(flag).item() == 5, "the other thread could run while the kernel waited"
    timer.join()
