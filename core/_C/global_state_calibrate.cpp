// Finds out what of torch's state this torch lets us read, and how cheaply; see global_state.cpp.
//
// What lies in memory is believed only after it was seen to follow: thread-local state is switched for a moment in the
// calling thread; process-wide flags, which other threads may be using, are compared with their getters and never written.
#include "global_readings.h"

using namespace core_state;

namespace {

void *
local_keys()
{
    // dlsym() of a thread-local variable gives its address in the calling thread.
    return core_torch_symbol("libc10", "_ZN3c104impl26raw_local_dispatch_key_setE");
}

void
add(const char *name, Kind kind, void *function, int tls = 0, int a = 0, int b = 0, int when = ALWAYS)
{
    if (reading_count < MAX_READINGS && (function != nullptr || kind == PYTHON_INT))
        readings[reading_count++] = {name, kind, static_cast<uint8_t>(tls), static_cast<uint8_t>(when),
                                     static_cast<int16_t>(a), static_cast<int16_t>(b), function};
}

void *
cpu_symbol(const char *name)
{
    return core_torch_symbol("libtorch_cpu", name);
}

void
add_context(const char *label, const char *method, Kind kind)
{
    char name[160];
    PyOS_snprintf(name, sizeof(name), "_ZNK2at7Context%zu%sEv", std::strlen(method), method);
    add(label, kind, cpu_symbol(name), 0, 0, 0, flags_at != nullptr ? DETAIL : ALWAYS);
}

// The byte of c10::AutogradState with the grad mode, found by switching the mode of this thread for a moment.
int
find_grad_byte()
{
    auto enabled = as<bool (*)()>(core_torch_symbol("libc10", "_ZN3c108GradMode10is_enabledEv"));
    auto set = as<void (*)(bool)>(core_torch_symbol("libc10", "_ZN3c108GradMode11set_enabledEb"));
    if (tls_getters[TLS_AUTOGRAD] == nullptr || enabled == nullptr || set == nullptr)
        return -1;
    const char *bytes = tls_object(TLS_AUTOGRAD);
    bool before = enabled();
    for (int i = 0; i < 32; i++) {
        char then = bytes[i];
        set(!before);
        char now = bytes[i];
        set(before);
        if (then != now && bytes[i] == then)
            return i;
    }
    return -1;
}

// Whether the saved-tensor hooks lie in a deque that reads as expected, found by pushing a pair in this thread.
bool
hooks_readable(PyObject *push, PyObject *pop)
{
    const Reading probe = {"", TLS_DEQUE, TLS_HOOKS, 0, 0, 0, nullptr};
    if (tls_getters[TLS_HOOKS] == nullptr || read(probe) != 0)
        return false;
    PyObject *result = PyObject_CallFunctionObjArgs(push, push, push, nullptr);
    if (result == nullptr)
        return false;
    Py_DECREF(result);
    bool seen = read(probe) == 1;
    result = PyObject_CallNoArgs(pop);
    Py_XDECREF(result);
    return result != nullptr && seen && read(probe) == 0;
}

// Whether the torch-function state reads as its functions say: {enum, bool, std::vector of shared pointers}, seen without
// and with a mode that is entered in this thread for a moment.
bool
function_state_readable(PyObject *mode, void *disabled)
{
    if (tls_getters[TLS_FUNCTION] == nullptr || function_stack_length == nullptr || disabled == nullptr)
        return false;
    const Reading stack = {"", TLS_VECTOR, TLS_FUNCTION, 0, 8, 0, nullptr};
    const Reading state = {"", TLS_BYTE, TLS_FUNCTION, 0, 0, 0, nullptr};
    constexpr int64_t shared_pointer = 16;
    auto right = [&] {
        return read(stack) == function_stack_length() * shared_pointer &&
               read(state) == static_cast<uint8_t>(as<int32_t (*)()>(disabled)());
    };
    if (!right())
        return false;
    PyObject *entered = PyObject_CallMethod(mode, "__enter__", nullptr);
    if (entered == nullptr)
        return false;
    Py_DECREF(entered);
    bool good = right() && function_stack_length() > 0 && mode_at(function_stack_length() - 1) == mode;
    PyObject *left = PyObject_CallMethod(mode, "__exit__", "OOO", Py_None, Py_None, Py_None);
    Py_XDECREF(left);
    return left != nullptr && good && right();
}

// Whether the flags of at::Context lie where they are expected, by comparing those that have getters.
void
learn_flags()
{
    auto *base = static_cast<const char *>(context);
    auto flag = [&](const char *method, int offset) {
        void *getter = cpu_symbol(method);
        return getter != nullptr && as<bool (*)(void *)>(getter)(context) == (base[offset] != 0) &&
               static_cast<unsigned char>(base[offset]) <= 1;
    };
    auto number = [&](const char *method, int offset) {
        void *getter = cpu_symbol(method);
        int32_t value;
        std::memcpy(&value, base + offset, sizeof(value));
        return getter != nullptr && as<int32_t (*)(void *)>(getter)(context) == value;
    };
    auto *map = reinterpret_cast<void *const *>(base + PRECISION_MAP);
    try {
        if (!flag("_ZNK2at7Context16userEnabledCuDNNEv", FLAG_CUDNN) ||
            !flag("_ZNK2at7Context23deterministicAlgorithmsEv", FLAG_DETERMINISTIC) ||
            !flag("_ZNK2at7Context19userEnabledFlashSDPEv", FLAG_FLASH) ||
            !flag("_ZNK2at7Context14benchmarkCuDNNEv", FLAG_BENCHMARK) ||
            !flag("_ZNK2at7Context17userEnabledMkldnnEv", FLAG_MKLDNN) ||
            !number("_ZNK2at7Context22float32MatmulPrecisionEv", FLAG_MATMUL_PRECISION) ||
            !number("_ZNK2at7Context19benchmarkLimitCuDNNEv", FLAG_BENCHMARK_LIMIT))
            return;
    }
    catch (...) {
        return; // settings of two generations are mixed just now
    }
    // libstdc++: buckets, their number, first node, number of elements. A node: next, two enums, the enum.
    if (reinterpret_cast<uintptr_t>(map[3]) != PRECISIONS || reinterpret_cast<uintptr_t>(map[1]) > 128)
        return;
    auto *node = static_cast<void *const *>(map[2]);
    for (int i = 0; i < PRECISIONS; i++, node = static_cast<void *const *>(*node)) {
        if (node == nullptr)
            return;
        auto *numbers = reinterpret_cast<const int32_t *>(node + 1);
        if (numbers[0] < 0 || numbers[0] > 2 || numbers[1] < 0 || numbers[1] > 3 || numbers[2] < 0 || numbers[2] > 15)
            return;
        precision_at[i] = numbers + 2;
    }
    if (node == nullptr)
        flags_at = base + FLAGS_START;
}

void
add_thread_state(PyObject *devices, PyObject *mode)
{
    static const char *const dtype_labels[] = {"autocast dtype (cpu)", "autocast dtype (cuda)", "autocast dtype (xpu)",
                                               "autocast dtype (mps)", "autocast dtype (other)"};
    add("dispatch keys included", TLS_WORD, reinterpret_cast<void *>(1), TLS_KEYS, 0);
    add("dispatch keys excluded", TLS_WORD, reinterpret_cast<void *>(1), TLS_KEYS, 8);
    int grad_byte = find_grad_byte(), when = grad_byte >= 0 ? DETAIL : ALWAYS;
    add("grad mode", CALL_BOOL, core_torch_symbol("libc10", "_ZN3c108GradMode10is_enabledEv"), 0, 0, 0, when);
    add("inference mode", CALL_BOOL, core_torch_symbol("libc10", "_ZN3c1013InferenceMode10is_enabledEv"), 0, 0, 0, when);
    if (grad_byte >= 0)
        add("autograd mode bits (grad, inference, forward grad, ...)", TLS_BYTE, reinterpret_cast<void *>(1),
            TLS_AUTOGRAD, grad_byte);
    add("autocast cache enabled", CALL_BOOL, cpu_symbol("_ZN2at8autocast25is_autocast_cache_enabledEv"));
    void *dtype = cpu_symbol("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(devices); i++) {
        int type = static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(devices, i)));
        const char *label = dtype_labels[type == 0 ? 0 : type == 1 ? 1 : type == 12 ? 2 : type == 13 ? 3 : 4];
        add(label, DEVICE_BYTE, dtype, 0, type);
    }
    void *disabled = cpu_symbol("_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    when = function_state_readable(mode, disabled) ? DETAIL : ALWAYS;
    add("torch function modes", CALL_INT, reinterpret_cast<void *>(function_stack_length), 0, 0, 0, when);
    add("torch function disabled", CALL_ENUM, disabled, 0, 0, 0, when);
    if (when == DETAIL) {
        add("torch function disabled (raw)", TLS_BYTE, reinterpret_cast<void *>(1), TLS_FUNCTION, 0);
        add("torch function modes (raw)", TLS_VECTOR, reinterpret_cast<void *>(1), TLS_FUNCTION, 8);
    }
    add("torch dispatch modes", CALL_INT, core_torch_symbol("libc10", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"),
        0, 0, 0, IF_SET);
    add("functorch layers", LAYER_STACK, cpu_symbol("_ZN2at9functorch20getDynamicLayerStackEv"), 0, 0, 0, IF_SET);
    add("forward-mode level", PYTHON_INT, nullptr);
}

void
add_process_state()
{
    static const struct { const char *label, *method; Kind kind; } flags[] = {
        {"deterministic algorithms", "deterministicAlgorithms", CONTEXT_BOOL},
        {"deterministic algorithms, warn only", "deterministicAlgorithmsWarnOnly", CONTEXT_BOOL},
        {"deterministic fill of uninitialized memory", "deterministicFillUninitializedMemory", CONTEXT_BOOL},
        {"deterministic cudnn", "deterministicCuDNN", CONTEXT_BOOL},
        {"deterministic mkldnn", "deterministicMkldnn", CONTEXT_BOOL},
        {"cudnn enabled", "userEnabledCuDNN", CONTEXT_BOOL},
        {"cudnn benchmark", "benchmarkCuDNN", CONTEXT_BOOL},
        {"mkldnn enabled", "userEnabledMkldnn", CONTEXT_BOOL},
        {"nnpack enabled", "userEnabledNNPACK", CONTEXT_BOOL},
        {"flash attention enabled", "userEnabledFlashSDP", CONTEXT_BOOL},
        {"memory-efficient attention enabled", "userEnabledMemEfficientSDP", CONTEXT_BOOL},
        {"math attention enabled", "userEnabledMathSDP", CONTEXT_BOOL},
        {"cudnn attention enabled", "userEnabledCuDNNSDP", CONTEXT_BOOL},
        {"reduced-precision math attention", "allowFP16BF16ReductionMathSDP", CONTEXT_BOOL},
        {"fp16 reduction in cublas", "allowFP16ReductionCuBLAS", CONTEXT_ENUM},
        {"bf16 reduction in cublas", "allowBF16ReductionCuBLAS", CONTEXT_ENUM},
        {"fp16 accumulation in cublas", "allowFP16AccumulationCuBLAS", CONTEXT_BOOL},
        {"float32 matmul precision", "float32MatmulPrecision", CONTEXT_ENUM},
        {"tf32 in cublas", "allowTF32CuBLAS", CONTEXT_BOOL},
        {"tf32 in onednn", "allowTF32OneDNN", CONTEXT_BOOL},
    };
    static const char *const precision_labels[3][4] = {
        {"float32 precision", "float32 precision (conv)", "float32 precision (rnn)", "float32 precision (matmul)"},
        {"cuda float32 precision", "cuda conv precision", "cuda rnn precision", "cuda matmul precision"},
        {"mkldnn float32 precision", "mkldnn conv precision", "mkldnn rnn precision", "mkldnn matmul precision"},
    };
    add("default dtype", CALL_BYTE, core_torch_symbol("libc10", "_ZN3c1031get_default_dtype_as_scalartypeEv"));
    void *precision = cpu_symbol("_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE");
    for (int backend = 0; backend < 3; backend++) {
        for (int op = 0; op < 4; op++) {
            if (backend > 0 || op == 0)
                add(precision_labels[backend][op], CONTEXT_PAIR, precision, 0, backend, op,
                    flags_at != nullptr ? DETAIL : ALWAYS);
        }
    }
    for (const auto &flag : flags)
        add_context(flag.label, flag.method, flag.kind);
}

} // namespace

namespace core_state {

const char calibrate_doc[] =
    "global_state_calibrate(forward_level_dict, device_mode, devices, push_hooks, pop_hooks, known_flags)\n--\n\n"
    "Find what of torch's state can be read; returns the names of the readings.\n"
    "forward_level_dict: the module dict with `_current_level` of forward-mode AD; device_mode: a mode of the kind\n"
    "that `torch.device` as a context pushes; devices: device type numbers whose autocast dtype counts; push_hooks and\n"
    "pop_hooks: torch's functions for default saved-tensor hooks; known_flags: this torch keeps its flags as the versions\n"
    "that were checked, so they may be read from memory.";

PyObject *
calibrate(PyObject *, PyObject *args)
{
    PyObject *levels, *mode, *devices, *push, *pop;
    int known_flags;
    if (!PyArg_ParseTuple(args, "O!OO!OOp:global_state_calibrate", &PyDict_Type, &levels, &mode, &PyTuple_Type, &devices,
                          &push, &pop, &known_flags))
        return nullptr;
    auto globals = as<void *(*)()>(cpu_symbol("_ZN2at13globalContextEv"));
    if (globals == nullptr || local_keys() == nullptr)
        return PyErr_Format(PyExc_RuntimeError, "this torch does not export its global state");
    reading_count = 0;
    context = globals();
    tls_getters[TLS_KEYS] = local_keys;
    tls_getters[TLS_AUTOGRAD] = as<void *(*)()>(core_torch_symbol("libc10", "_ZN3c1013AutogradState13get_tls_stateEv"));
    tls_getters[TLS_FUNCTION] =
        as<void *(*)()>(cpu_symbol("_ZN2at4impl22PythonTorchFunctionTLS9get_stateEv"));
    tls_getters[TLS_HOOKS] = as<void *(*)()>(cpu_symbol("_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv"));
    Py_XSETREF(forward_level_dict, Py_NewRef(levels));
    if (forward_level_name == nullptr) {
        forward_level_name = PyUnicode_InternFromString("_current_level");
        device_name = PyUnicode_InternFromString("device");
        if (forward_level_name == nullptr || device_name == nullptr)
            return nullptr;
        forward_level_hash = PyObject_Hash(forward_level_name);
    }
    Py_XSETREF(device_mode_type, reinterpret_cast<PyTypeObject *>(Py_NewRef(Py_TYPE(mode))));
    function_stack_length = as<int64_t (*)()>(cpu_symbol("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"));
    function_stack_at = as<void **(*)(int64_t)>(cpu_symbol("_ZN2at4impl22PythonTorchFunctionTLS12get_stack_atEl"));
    if (function_stack_at == nullptr)
        function_stack_length = nullptr;
    flags_at = nullptr;
    if (known_flags)
        learn_flags();
    add_thread_state(devices, mode);
    hooks_seen = hooks_readable(push, pop);
    if (hooks_seen)
        add("saved-tensor hooks", TLS_DEQUE, reinterpret_cast<void *>(1), TLS_HOOKS);
    if (PyErr_Occurred())
        return nullptr;
    add_process_state();
    hot_count = 0;
    for (size_t i = 0; i < reading_count; i++) {
        if (readings[i].when != DETAIL)
            hot[hot_count++] = static_cast<uint8_t>(i);
    }
    PyObject *names = PyTuple_New(static_cast<Py_ssize_t>(reading_count));
    for (size_t i = 0; names != nullptr && i < reading_count; i++) {
        PyObject *name = PyUnicode_FromString(readings[i].name);
        if (name == nullptr)
            Py_CLEAR(names);
        else
            PyTuple_SET_ITEM(names, static_cast<Py_ssize_t>(i), name);
    }
    return names;
}

} // namespace core_state
