// torch's global and thread-local state as one comparable snapshot.
//
// A snapshot is a row of 64-bit readings, each made by a function or a variable that torch's libraries export; what this
// torch does not export is left out when calibrate() runs, which returns the names of what is compared. The thread's
// dispatch key sets answer for most modes at once: autocast per device, inference mode, dispatch modes and functorch
// layers all include or exclude keys. So those modes' details are read only where the snapshot has them.
#include "global_readings.h"

namespace core_state {

Reading readings[MAX_READINGS];
size_t reading_count;
uint8_t hot[MAX_READINGS];
size_t hot_count;
bool hooks_seen;
const char *flags_at;
const int32_t *precision_at[PRECISIONS];
void *context;
void *(*tls_getters[TLS_COUNT])();
PyObject *forward_level_dict, *forward_level_name, *device_name;
Py_hash_t forward_level_hash;
PyTypeObject *device_mode_type;
int64_t (*function_stack_length)();
void **(*function_stack_at)(int64_t);
__thread void *tls_cache[TLS_COUNT];

static int64_t
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
static int64_t
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

int64_t
read_called(const Reading &r)
{
    switch (r.kind) {
    case CALL_BOOL: return as<bool (*)()>(r.function)();
    case CALL_INT: return as<int64_t (*)()>(r.function)();
    case CALL_BYTE: return as<int8_t (*)()>(r.function)();
    case CALL_ENUM: return static_cast<uint8_t>(as<int32_t (*)()>(r.function)());
    case PYTHON_INT: return python_int();
    case LAYER_STACK: {
        char **vector = as<char **(*)()>(r.function)();
        return vector[1] - vector[0];
    }
    default: return guarded(r);
    }
}

PyObject *
mode_at(int64_t i)
{
    void **pointer = function_stack_at(i);
    return pointer == nullptr || *pointer == nullptr ? nullptr : *static_cast<PyObject **>(*pointer);
}

} // namespace core_state

using namespace core_state;

namespace {

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
core_saves_through_hooks(void)
{
    return hooks_seen && read({"", TLS_DEQUE, TLS_HOOKS, 0, 0, 0, nullptr}) != 0;
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
