// torch's global and thread-local state as one comparable snapshot.
//
// A snapshot is a row of 64-bit readings, each made by a function or a variable that torch's libraries export; what this
// torch does not export is left out when calibrate() runs (`readings()` lists what is compared). The thread's dispatch
// key sets answer for most modes at once: autocast per device, inference mode, dispatch modes and functorch layers all
// include or exclude keys. So the readings of those modes' details are made only where the snapshot has them.
//
// State: the tables below are written by calibrate() under the GIL; addresses of thread-local variables are cached per
// thread (they never move).
#include "global_state.h"
#include "guard_program.h"
#include "tensor_abi.h"

#include <cstring>

namespace {

enum Kind {
    TLS_WORD,      // 8 bytes at an offset of a thread-local object
    TLS_BYTE,
    TLS_DEQUE,     // std::deque: whether it is empty
    CALL_BOOL,     // bool f()
    CALL_INT,      // int64_t f()
    CALL_BYTE,     // int8_t f()
    CALL_ENUM,     // int32_t f()
    DEVICE_BYTE,   // int8_t f(device type), a dtype
    CONTEXT_BOOL,  // bool f(const at::Context *)
    CONTEXT_ENUM,  // int32_t f(const at::Context *)
    CONTEXT_PAIR,  // an enum of one byte or more, f(const at::Context *, int, int)
    PYTHON_INT,    // an int in a module's dict
    LAYER_STACK,   // const std::vector<...> &f(): its bytes
    TLS_VECTOR,    // the same, of a std::vector at an offset of a thread-local object
};

// IF_SET: compared on a call only where the snapshot's value is not 0, as the key sets tell otherwise. DETAIL: covered
// by a cheaper comparison; made for descriptions only.
enum { ALWAYS, IF_SET, DETAIL };
enum { TLS_KEYS, TLS_AUTOGRAD, TLS_FUNCTION, TLS_HOOKS, TLS_COUNT };

struct Reading {
    const char *name;
    Kind kind;
    uint8_t tls;          // TLS_*
    uint8_t when;         // ALWAYS, IF_SET, DETAIL
    int16_t a, b;         // offset, or arguments
    void *function;
};

constexpr size_t MAX_READINGS = 64;
Reading readings[MAX_READINGS];
size_t reading_count;
uint8_t hot[MAX_READINGS]; // indices of the readings that a comparison makes
size_t hot_count;

// The flags of at::Context as they lie in memory, so that twenty getters become one comparison. Offsets checked with
// torch 2.13; used only when learn_flags() finds every flag that has a getter in its place.
enum {
    FLAGS_START = 1008,     // enabled_cudnn
    FLAGS_END = 1080,       // before flags that torch sets by itself
    FLAG_CUDNN = 1008,
    FLAG_DETERMINISTIC = 1011,
    FLAG_FLASH = 1036,
    FLAG_BENCHMARK = 1043,
    FLAG_MATMUL_PRECISION = 1048,
    FLAG_BENCHMARK_LIMIT = 1052,
    FLAG_MKLDNN = 1068,
    PRECISION_MAP = 1088,   // std::unordered_map<pair of two enums, enum>
    PRECISIONS = 9,
};
struct Flags {
    char bytes[FLAGS_END - FLAGS_START];
    int32_t precisions[PRECISIONS];
};
const char *flags_at;                        // nullptr: not readable, the getters are called
const int32_t *precision_at[PRECISIONS];     // the map's nodes neither move nor die
void *context;                    // at::Context
void *(*tls_getters[TLS_COUNT])(); // reference to the thread's object
PyObject *forward_level_dict, *forward_level_name;
Py_hash_t forward_level_hash;
PyTypeObject *device_mode_type;
PyObject *device_name;
int64_t (*function_stack_length)();
void **(*function_stack_at)(int64_t);

thread_local void *tls_cache[TLS_COUNT] __attribute__((tls_model("initial-exec")));

inline char *
tls_object(int which)
{
    if (tls_cache[which] == nullptr)
        tls_cache[which] = tls_getters[which]();
    return static_cast<char *>(tls_cache[which]);
}

void *
local_keys()
{
    // dlsym() of a thread-local variable gives its address in the calling thread.
    return core_torch_symbol("libc10", "_ZN3c104impl26raw_local_dispatch_key_setE");
}

template <class T> inline T
as(void *function)
{
    T typed;
    std::memcpy(&typed, &function, sizeof(typed));
    return typed;
}

int64_t
python_int()
{
    static uint64_t seen_version;
    static int64_t seen;
    if (core_dict_unchanged(forward_level_dict, &seen_version))
        return seen;
    PyObject *value = _PyDict_GetItem_KnownHash(forward_level_dict, forward_level_name, forward_level_hash);
    int overflow;
    seen = value != nullptr && PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : INT64_MIN;
    return seen;
}

// Getters of at::Context may throw where a user mixed two generations of settings: that, too, is a state.
int64_t
guarded(const Reading &r)
{
    try {
        if (r.kind == CONTEXT_PAIR)
            return static_cast<uint8_t>(as<int32_t (*)(void *, int, int)>(r.function)(context, r.a, r.b));
        if (r.kind == CONTEXT_ENUM)
            return static_cast<uint8_t>(as<int32_t (*)(void *)>(r.function)(context));
        if (r.kind == DEVICE_BYTE)
            return as<int8_t (*)(int8_t)>(r.function)(static_cast<int8_t>(r.a));
        return as<bool (*)(void *)>(r.function)(context);
    }
    catch (...) {
        return INT64_MIN;
    }
}

inline int64_t
read(const Reading &r)
{
    switch (r.kind) {
    case TLS_WORD: return *reinterpret_cast<int64_t *>(tls_object(r.tls) + r.a);
    case TLS_BYTE: return *reinterpret_cast<uint8_t *>(tls_object(r.tls) + r.a);
    case TLS_DEQUE: {
        // libstdc++: map, map size, then two iterators of four words, each starting with its position.
        void **words = reinterpret_cast<void **>(tls_object(r.tls));
        return words[2] != words[6];
    }
    case CALL_BOOL: return as<bool (*)()>(r.function)();
    case CALL_INT: return as<int64_t (*)()>(r.function)();
    case CALL_BYTE: return as<int8_t (*)()>(r.function)();
    case CALL_ENUM: return static_cast<uint8_t>(as<int32_t (*)()>(r.function)());
    case PYTHON_INT: return python_int();
    case TLS_VECTOR: {
        char **vector = reinterpret_cast<char **>(tls_object(r.tls) + r.a);
        return vector[1] - vector[0];
    }
    case LAYER_STACK: {
        char **vector = as<char **(*)()>(r.function)();
        return vector[1] - vector[0];
    }
    default: return guarded(r);
    }
}

// ---- the snapshot object ----

void
read_flags(Flags *out)
{
    std::memcpy(out->bytes, flags_at, sizeof(out->bytes));
    for (int i = 0; i < PRECISIONS; i++)
        out->precisions[i] = *precision_at[i];
}

struct Snapshot {
    PyObject_HEAD
    Flags flags;
    int64_t values[MAX_READINGS];
    size_t count;
    PyObject *modes; // tuple of the TorchFunction modes on the stack, lowest first
};

PyTypeObject *snapshot_type;

inline bool
flags_equal(const Snapshot *snapshot)
{
    if (std::memcmp(snapshot->flags.bytes, flags_at, sizeof(snapshot->flags.bytes)) != 0)
        return false;
    for (int i = 0; i < PRECISIONS; i++) {
        if (*precision_at[i] == snapshot->flags.precisions[i])
            continue;
        // A setting that came back may be spelled out now where it was inherited before: ask what is in force.
        for (size_t r = 0; r < reading_count; r++) {
            if (readings[r].kind == CONTEXT_PAIR && read(readings[r]) != snapshot->values[r])
                return false;
        }
        return true;
    }
    return true;
}

// A borrowed reference to a mode of the thread's stack: std::shared_ptr<SafePyObject>, whose first word is the object.
PyObject *
mode_at(int64_t i)
{
    void **pointer = function_stack_at(i);
    return pointer == nullptr || *pointer == nullptr ? nullptr : *static_cast<PyObject **>(*pointer);
}

// `torch.device(...)` as a context makes a mode of its own each time: two with one device are the same state.
bool
same_mode(PyObject *now, PyObject *then)
{
    if (now == then)
        return true;
    if (now == nullptr || device_mode_type == nullptr || !Py_IS_TYPE(now, device_mode_type) ||
        !Py_IS_TYPE(then, device_mode_type))
        return false;
    // The generic lookup of a plain attribute: it neither allocates nor calls anything of a user's.
    PyObject *device = PyObject_GenericGetAttr(now, device_name), *other = PyObject_GenericGetAttr(then, device_name);
    int equal = device != nullptr && other != nullptr && Py_TYPE(device) == Py_TYPE(other)
                    ? PyObject_RichCompareBool(device, other, Py_EQ) // torch.device: C code
                    : 0;
    Py_XDECREF(device);
    Py_XDECREF(other);
    if (equal < 0 || PyErr_Occurred())
        PyErr_Clear();
    return equal == 1;
}

bool
same_modes(const Snapshot *snapshot)
{
    Py_ssize_t count = PyTuple_GET_SIZE(snapshot->modes);
    if (function_stack_length == nullptr)
        return true;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!same_mode(mode_at(i), PyTuple_GET_ITEM(snapshot->modes, i)))
            return false;
    }
    return true;
}

PyObject *
take_snapshot(PyObject *, PyObject *)
{
    if (reading_count == 0)
        return PyErr_Format(PyExc_RuntimeError, "global_state_calibrate() comes before the first snapshot");
    auto *self = reinterpret_cast<Snapshot *>(snapshot_type->tp_alloc(snapshot_type, 0));
    if (self == nullptr)
        return nullptr;
    self->count = reading_count;
    for (size_t i = 0; i < reading_count; i++)
        self->values[i] = read(readings[i]);
    if (flags_at != nullptr)
        read_flags(&self->flags);
    int64_t length = function_stack_length == nullptr ? 0 : function_stack_length();
    self->modes = PyTuple_New(length);
    if (self->modes == nullptr) {
        Py_DECREF(self);
        return nullptr;
    }
    for (int64_t i = 0; i < length; i++) {
        PyObject *mode = mode_at(i);
        PyTuple_SET_ITEM(self->modes, i, Py_NewRef(mode == nullptr ? Py_None : mode));
    }
    return reinterpret_cast<PyObject *>(self);
}

int
snapshot_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(reinterpret_cast<Snapshot *>(object)->modes);
    return 0;
}

int
snapshot_clear(PyObject *object)
{
    (void)object; // an evaluation reads `modes`; a tuple alone makes no cycle that the collector can't break elsewhere
    return 0;
}

void
snapshot_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(reinterpret_cast<Snapshot *>(object)->modes);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *
snapshot_compare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !core_global_state_check(a) || !core_global_state_check(b))
        Py_RETURN_NOTIMPLEMENTED;
    auto *x = reinterpret_cast<Snapshot *>(a), *y = reinterpret_cast<Snapshot *>(b);
    bool same = x->count == y->count && std::memcmp(x->values, y->values, x->count * sizeof(int64_t)) == 0 &&
                std::memcmp(x->flags.bytes, y->flags.bytes, sizeof(x->flags.bytes)) == 0 &&
                PyTuple_GET_SIZE(x->modes) == PyTuple_GET_SIZE(y->modes);
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(x->modes); i++)
        same = same_mode(PyTuple_GET_ITEM(x->modes, i), PyTuple_GET_ITEM(y->modes, i));
    return PyBool_FromLong(same == (op == Py_EQ));
}

Py_hash_t
snapshot_hash(PyObject *object)
{
    auto *self = reinterpret_cast<Snapshot *>(object);
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < self->count; i++)
        hash = (hash ^ static_cast<uint64_t>(self->values[i])) * 1099511628211u;
    return hash == static_cast<uint64_t>(-1) ? -2 : static_cast<Py_hash_t>(hash);
}

PyObject *
snapshot_values(PyObject *object, PyObject *)
{
    auto *self = reinterpret_cast<Snapshot *>(object);
    PyObject *result = PyDict_New();
    for (size_t i = 0; result != nullptr && i < self->count; i++) {
        PyObject *value = PyLong_FromLongLong(self->values[i]);
        if (value == nullptr || PyDict_SetItemString(result, readings[i].name, value) < 0)
            Py_CLEAR(result);
        Py_XDECREF(value);
    }
    if (result != nullptr && PyDict_SetItemString(result, "function_modes", self->modes) < 0)
        Py_CLEAR(result);
    return result;
}

PyObject *
snapshot_repeat(PyObject *object, PyObject *times)
{
    Py_ssize_t count = PyLong_AsSsize_t(times), matches = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        matches += core_global_state_matches(object);
    return PyErr_Occurred() ? nullptr : PyLong_FromSsize_t(matches);
}

PyMethodDef snapshot_methods[] = {
    {"values", snapshot_values, METH_NOARGS, "values()\n--\n\nThe readings by name."},
    {"_repeat", snapshot_repeat, METH_O, "_repeat(times)\n--\n\nCompare many times: for measuring."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot snapshot_slots[] = {
    {Py_tp_doc, const_cast<char *>("torch's global state at one moment, in one thread; equal when the states are.")},
    {Py_tp_traverse, reinterpret_cast<void *>(snapshot_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(snapshot_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(snapshot_dealloc)},
    {Py_tp_richcompare, reinterpret_cast<void *>(snapshot_compare)},
    {Py_tp_hash, reinterpret_cast<void *>(snapshot_hash)},
    {Py_tp_methods, snapshot_methods},
    {0, nullptr},
};

PyType_Spec snapshot_spec = {
    "core._C.GlobalStateSnapshot", sizeof(Snapshot), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    snapshot_slots,
};

// ---- description ----

PyObject *
describe_difference(PyObject *, PyObject *object)
{
    if (!core_global_state_check(object))
        return PyErr_Format(PyExc_TypeError, "%R is not a snapshot", object);
    auto *self = reinterpret_cast<Snapshot *>(object);
    for (size_t i = 0; i < self->count; i++) {
        int64_t now = read(readings[i]);
        // Key sets say little to a person: one of the later readings usually names the change.
        if (now != self->values[i] && readings[i].tls == TLS_KEYS && readings[i].kind == TLS_WORD)
            continue;
        if (now != self->values[i])
            return PyUnicode_FromFormat("%s was %lld, now %lld", readings[i].name,
                                        static_cast<long long>(self->values[i]), static_cast<long long>(now));
    }
    if (function_stack_length != nullptr && function_stack_length() != PyTuple_GET_SIZE(self->modes))
        return PyUnicode_FromFormat("the number of torch function modes (a default device is one) was %zd, now %zd",
                                    PyTuple_GET_SIZE(self->modes), static_cast<Py_ssize_t>(function_stack_length()));
    if (!same_modes(self))
        return PyUnicode_FromString("another torch function mode (a default device is one) is active");
    if (flags_at != nullptr && !flags_equal(self))
        return PyUnicode_FromString("a backend flag (attention, cudnn, linear algebra, precision) changed");
    if (!core_global_state_matches(object))
        return PyUnicode_FromString("the thread's dispatch keys differ: a mode was entered or left");
    Py_RETURN_NONE;
}

// ---- calibration ----

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

PyDoc_STRVAR(calibrate_doc,
"global_state_calibrate(forward_level_dict, device_mode, devices, push_hooks, pop_hooks, known_flags)\n--\n\n"
"Find what of torch's state can be read; returns the names of the readings.\n"
"forward_level_dict: the module dict with `_current_level` of forward-mode AD; device_mode: a mode of the kind\n"
"that `torch.device` as a context pushes; devices: device type numbers whose autocast dtype counts; push_hooks and\n"
"pop_hooks: torch's functions for default saved-tensor hooks; known_flags: this torch keeps its flags as the versions\n"
"that were checked, so they may be read from memory.");

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
    if (hooks_readable(push, pop))
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

PyMethodDef functions[] = {
    {"global_state_calibrate", calibrate, METH_VARARGS, calibrate_doc},
    {"global_state_snapshot", take_snapshot, METH_NOARGS,
     "global_state_snapshot()\n--\n\nThe present state of this thread and process, for the `global_state` instruction."},
    {"describe_difference", describe_difference, METH_O,
     "describe_difference(snapshot)\n--\n\nWhat of the state differs now, as text, or None."},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

int
core_global_state_check(PyObject *object)
{
    return snapshot_type != nullptr && Py_IS_TYPE(object, snapshot_type);
}

int
core_global_state_matches(PyObject *object)
{
    const auto *snapshot = reinterpret_cast<const Snapshot *>(object);
    if (snapshot->count != reading_count)
        return 0;
    for (size_t h = 0; h < hot_count; h++) {
        size_t i = hot[h];
        const Reading &r = readings[i];
        if ((r.when == ALWAYS || snapshot->values[i] != 0) && read(r) != snapshot->values[i])
            return 0;
    }
    if (flags_at != nullptr && !flags_equal(snapshot))
        return 0;
    return PyTuple_GET_SIZE(snapshot->modes) == 0 || same_modes(snapshot);
}

int
core_global_state_add_to_module(PyObject *module)
{
    if (snapshot_type == nullptr) {
        snapshot_type = reinterpret_cast<PyTypeObject *>(PyType_FromModuleAndSpec(module, &snapshot_spec, nullptr));
        if (snapshot_type == nullptr)
            return -1;
    }
    return PyModule_AddType(module, snapshot_type) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
