/* Chooses how tensors are read (see tensor_abi.c), and measures the ways against each other. */
#define _GNU_SOURCE
#include "tensor_layout.h"

#include <dlfcn.h>
#include <string.h>
#ifdef __linux__
#include <link.h>
#include <malloc.h>
#endif

/* ---- symbols ---- */

#ifdef __linux__
typedef struct Search { const char *part; char path[4096]; } Search;

static int
match_library(struct dl_phdr_info *info, size_t size, void *data)
{
    Search *search = data;
    (void)size;
    const char *base = strrchr(info->dlpi_name, '/');
    if (base == NULL || strncmp(base + 1, search->part, strlen(search->part)) != 0 ||
        strlen(info->dlpi_name) >= sizeof(search->path))
        return 0;
    strcpy(search->path, info->dlpi_name);
    return 1;
}
#endif

void *
core_torch_symbol(const char *library, const char *name)
{
    void *symbol = NULL;
#ifdef __linux__
    Search search = {library, ""};
    if (dl_iterate_phdr(match_library, &search)) {
        void *handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            symbol = dlsym(handle, name);
            dlclose(handle); /* the library stays: Python holds it */
        }
    }
#endif
    return symbol != NULL ? symbol : dlsym(RTLD_DEFAULT, name);
}

/* ---- calibration ---- */

static int
block_holds(const void *block, size_t bytes)
{
#ifdef __linux__
    return malloc_usable_size((void *)block) >= bytes;
#else
    (void)block;
    (void)bytes;
    return 0; /* no way to know: tier B */
#endif
}

static int
resolve(void)
{
    struct { const char *library, *name; void *target; int optional; } wanted[] = {
        {"libc10", "_ZNK3c1010TensorImpl13requires_gradEv", &core_abi.requires_grad},
        {"libtorch_cpu", "aoti_torch_get_sizes", &core_abi.sizes},
        {"libtorch_cpu", "aoti_torch_get_strides", &core_abi.strides},
        {"libtorch_cpu", "aoti_torch_get_dim", &core_abi.dim},
        {"libtorch_cpu", "aoti_torch_get_storage_offset", &core_abi.offset},
        {"libtorch_cpu", "aoti_torch_get_dtype", &core_abi.dtype},
        {"libtorch_cpu", "aoti_torch_get_device_type", &core_abi.device_type},
        {"libtorch_cpu", "aoti_torch_get_device_index", &core_abi.device_index},
        {"libtorch_cpu", "aoti_torch_get_layout", &core_abi.layout, 1},
        {"libtorch_cpu", "aoti_torch_get_data_ptr", &core_abi.data},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = core_torch_symbol(wanted[i].library, wanted[i].name);
        if (symbol == NULL && !wanted[i].optional)
            return PyErr_Format(PyExc_RuntimeError, "this torch does not export %s", wanted[i].name), -1;
        memcpy(wanted[i].target, &symbol, sizeof(symbol));
    }
    return 0;
}

static long long
integer_attribute(PyObject *object, const char *name, int call)
{
    PyObject *value = call ? PyObject_CallMethod(object, name, NULL) : PyObject_GetAttrString(object, name);
    long long result = value == NULL ? -1 : PyLong_AsLongLong(value);
    Py_XDECREF(value);
    return result;
}

/* Where the Python object keeps the pointer to its c10::TensorImpl; -1 when no candidate fits every sample. */
static Py_ssize_t
find_cdata(PyObject *samples)
{
    static const Py_ssize_t candidates[] = {16, 24};
    for (size_t c = 0; c < 2; c++) {
        int fits = 1;
        for (Py_ssize_t i = 0; fits && i < PyList_GET_SIZE(samples); i++) {
            PyObject *tensor = PyTuple_GET_ITEM(PyList_GET_ITEM(samples, i), 0);
            long long address = integer_attribute(tensor, "_cdata", 0);
            if (PyErr_Occurred())
                return -1;
            fits = Py_TYPE(tensor)->tp_basicsize >= candidates[c] + (Py_ssize_t)sizeof(void *) &&
                   *(long long *)((char *)tensor + candidates[c]) == address;
        }
        if (fits)
            return candidates[c];
    }
    PyErr_SetString(PyExc_RuntimeError, "the pointer to the C++ tensor was not found in torch.Tensor");
    return -1;
}

static int
learn_dtype(PyObject *tensor)
{
    int32_t code;
    PyObject *dtype = PyObject_GetAttrString(tensor, "dtype"), *number = NULL;
    long long bytes = integer_attribute(tensor, "element_size", 1);
    int result = -1;
    if (dtype == NULL || PyErr_Occurred())
        goto done;
    if (core_abi.dtype((char *)tensor + core_abi.cdata, &code) != 0 || code < 0 || code > 255) {
        PyErr_Format(PyExc_RuntimeError, "torch's C interface does not tell the dtype %R", dtype);
        goto done;
    }
    core_abi.itemsize[code] = (int32_t)bytes;
    number = PyLong_FromLong(code);
    result = number == NULL ? -1 : PyDict_SetItem(core_abi.dtypes, dtype, number);
done:
    Py_XDECREF(dtype);
    Py_XDECREF(number);
    return result;
}

static int
says_strided(PyObject *tensor, PyObject *strided)
{
    PyObject *layout = PyObject_GetAttrString(tensor, "layout");
    int result = layout == NULL ? -1 : layout == strided;
    Py_XDECREF(layout);
    return result;
}

/* The keys that samples without strides have and none with strides has. */
static int
learn_unstrided(PyObject *torch_module, PyObject *samples)
{
    PyObject *strided = PyObject_GetAttrString(torch_module, "strided");
    uint64_t with = 0, without = 0;
    int right = strided != NULL;
    for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(samples); i++) {
        PyObject *sample = PyList_GET_ITEM(samples, i);
        int is_strided = says_strided(PyTuple_GET_ITEM(sample, 0), strided);
        *(is_strided ? &with : &without) |= PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(sample, 1));
        right = is_strided >= 0;
    }
    Py_XDECREF(strided);
    core_abi.unstrided = without & ~with;
    return right ? 0 : -1;
}

/* Checked with torch 2.13 and 2.14, and with torch 2.11, whose tensors still carry a pointer to dimension names. */
static const TensorOffsets known_offsets[] = {
    {24, 56, 64, 144, 160, 162, 166, 168, 128, 176, 136},
    {24, 64, 72, 152, 168, 170, 174, 176, 144, 184, 152},
};
TensorOffsets core_offsets = {24, 56, 64, 144, 160, 162, 166, 168, 128, 176, 136};

/* 1 when every field of the tensor reads as torch itself says. */
static int
reads_right(PyObject *tensor, uint64_t keys)
{
    void *handle = (char *)tensor + core_abi.cdata;
    const char *impl = impl_of(tensor);
    int64_t ndim, offset, *sizes, *strides;
    int32_t dtype, device, index;
    if (!block_holds(impl, core_offsets.block) || FIELD(impl, uint64_t, keys) != keys)
        return 0;
    if (core_abi.dim(handle, &ndim) != 0 || core_abi.dtype(handle, &dtype) != 0 ||
        core_abi.device_type(handle, &device) != 0 || core_abi.device_index(handle, &index) != 0)
        return 0;
    if (FIELD(impl, uint64_t, ndim) != (uint64_t)ndim || FIELD(impl, uint16_t, dtype) != dtype ||
        FIELD(impl, int8_t, device) != device || (&FIELD(impl, int8_t, device))[1] != index)
        return 0;
    if (core_abi.requires_grad(impl) && FIELD(impl, void *, autograd) == NULL)
        return 0;
    if (core_abi.layout != NULL ? !core_tensor_is_strided(handle) : (keys & core_abi.unstrided) != 0)
        return 1;
    if (core_abi.sizes(handle, &sizes) != 0 || core_abi.strides(handle, &strides) != 0 || core_abi.offset(handle, &offset) != 0)
        return 0;
    return raw_dims(impl, (uint32_t)ndim) == sizes && sizes + strides_start((uint32_t)ndim) == strides &&
           FIELD(impl, int64_t, offset) == offset && (FIELD(impl, uint8_t, policy) & POLICY_MASK) == 0;
}

/* Choose the known offsets under which every sample reads right; 0 when there are none. */
static int
find_offsets(PyObject *samples)
{
    for (size_t known = 0; known < sizeof(known_offsets) / sizeof(known_offsets[0]); known++) {
        int right = 1;
        core_offsets = known_offsets[known];
        for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(samples); i++) {
            PyObject *sample = PyList_GET_ITEM(samples, i);
            uint64_t keys = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(sample, 1));
            right = reads_right(PyTuple_GET_ITEM(sample, 0), keys);
        }
        if (right)
            return 1;
    }
    return 0;
}

/* Whether the flag in the autograd metadata lies where it is expected: seen both set and clear, never wrong. */
static void
learn_raw_grad(PyObject *samples)
{
    int set = 0, clear = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
        const char *impl = impl_of(PyTuple_GET_ITEM(PyList_GET_ITEM(samples, i), 0));
        const char *meta = FIELD(impl, const char *, autograd);
        if (meta == NULL)
            continue;
        if (!block_holds(meta, core_offsets.meta) || (unsigned char)meta[core_offsets.grad] > 1 ||
            (meta[core_offsets.grad] && !core_abi.requires_grad(impl)))
            return;
        set += meta[core_offsets.grad] == 1;
        clear += meta[core_offsets.grad] == 0;
    }
    core_abi.raw_grad = set > 0 && clear > 0;
}

PyDoc_STRVAR(calibrate_doc,
"calibrate(torch_module, samples, dispatch_keys, tier=None)\n--\n\n"
"Choose how tensors are read, from samples of known contents; returns 'A' (offsets) or 'B' (torch's exported functions).\n"
"samples: a list of (tensor, key bits), one a dtype at least; dispatch_keys: a callable tensor -> key set.\n"
"tier='B' passes over the offsets, a 'k' behind it over torch's function for layouts, which torch 2.8 lacks.\n"
"Raises RuntimeError when this torch can be read in neither way.");

static PyObject *
calibrate(PyObject *unused, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"torch_module", "samples", "dispatch_keys", "tier", NULL};
    PyObject *torch_module, *samples, *dispatch_keys, *type;
    const char *tier = NULL;
    (void)unused;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O|z:calibrate", names, &torch_module, &PyList_Type, &samples,
                                     &dispatch_keys, &tier))
        return NULL;
    core_abi.tier = 0;
    core_abi.raw_grad = 0;
    if (resolve() < 0 || (type = PyObject_GetAttrString(torch_module, "Tensor")) == NULL)
        return NULL;
    if (tier != NULL && strchr(tier, 'k') != NULL)
        core_abi.layout = NULL;
    Py_XSETREF(core_abi.tensor_type, (PyTypeObject *)type);
    Py_XSETREF(core_abi.dispatch_keys, Py_NewRef(dispatch_keys));
    Py_XSETREF(core_abi.dtypes, PyDict_New());
    if (core_abi.dtypes == NULL || !PyType_Check(type))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "%R is not a class", type);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
        PyObject *sample = PyList_GET_ITEM(samples, i);
        if (!PyTuple_Check(sample) || PyTuple_GET_SIZE(sample) != 2 ||
            !PyObject_TypeCheck(PyTuple_GET_ITEM(sample, 0), core_abi.tensor_type))
            return PyErr_Format(PyExc_TypeError, "a sample is (tensor, key bits), not %R", sample);
    }
    if ((core_abi.cdata = find_cdata(samples)) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
        PyObject *sample = PyList_GET_ITEM(samples, i);
        PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(sample, 1));
        if (PyErr_Occurred() || learn_dtype(PyTuple_GET_ITEM(sample, 0)) < 0)
            return NULL;
    }
    if (learn_unstrided(torch_module, samples) < 0)
        return NULL;
    int raw = (tier == NULL || tier[0] != 'B') && PyList_GET_SIZE(samples) > 0 && find_offsets(samples);
    if (raw)
        learn_raw_grad(samples);
    core_abi.tier = raw ? 'A' : 'B';
    return PyUnicode_FromFormat("%c", core_abi.tier);
}

/* ---- measuring ---- */

/* The part of DLPack's exchange table (version 1.x) that is read here. */
typedef struct DLTensorView {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensorView;

typedef struct ExchangeTable {
    uint32_t major, minor;
    void *previous, *allocate, *to_managed, *from_managed;
    int (*view)(void *object, DLTensorView *out);
} ExchangeTable;

static int
dlpack_matches(const ExchangeTable *table, PyObject *tensor, const TensorSpec *spec)
{
    DLTensorView view;
    if (Py_TYPE(tensor) != spec->type || table->view(tensor, &view) != 0)
        return 0;
    if (view.ndim != (int32_t)spec->ndim)
        return 0;
    for (uint32_t i = 0; i < spec->ndim; i++) {
        if (view.shape[i] != spec->dims[i] || view.strides[i] != spec->dims[spec->ndim + i])
            return 0;
    }
    return 1;
}

PyDoc_STRVAR(repeat_doc,
"_repeat(way, tensor, spec, times)\n--\n\n"
"Compare a tensor with a spec many times and count the matches, for measuring. way: 'A', 'B' or 'dlpack' (sizes and\n"
"strides only).");

static PyObject *
repeat(PyObject *unused, PyObject *args)
{
    const char *way;
    PyObject *tensor, *tuple;
    Py_ssize_t times, matches = 0;
    const ExchangeTable *table = NULL;
    (void)unused;
    if (!PyArg_ParseTuple(args, "sOOn:_repeat", &way, &tensor, &tuple, &times))
        return NULL;
    TensorSpec *spec = core_tensor_spec_new(tuple);
    if (spec == NULL)
        return NULL;
    if (strcmp(way, "dlpack") == 0) {
        PyObject *capsule = PyObject_GetAttrString((PyObject *)core_abi.tensor_type, "__dlpack_c_exchange_api__");
        table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        Py_XDECREF(capsule);
    }
    for (Py_ssize_t i = 0; i < times && !PyErr_Occurred(); i++)
        matches += table != NULL     ? dlpack_matches(table, tensor, spec)
                   : way[0] == 'A' ? Py_TYPE(tensor) == spec->type && core_tensor_matches_raw(tensor, spec)
                                   : Py_TYPE(tensor) == spec->type && core_tensor_matches_asked(tensor, spec);
    core_tensor_spec_free(spec);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(matches);
}

static PyObject *
tier(PyObject *unused, PyObject *unused_too)
{
    (void)unused;
    (void)unused_too;
    if (core_abi.tier == 0)
        Py_RETURN_NONE;
    return PyUnicode_FromFormat("%c", core_abi.tier);
}

static PyMethodDef functions[] = {
    {"calibrate", (PyCFunction)(void (*)(void))calibrate, METH_VARARGS | METH_KEYWORDS, calibrate_doc},
    {"tier", tier, METH_NOARGS, "tier()\n--\n\n'A', 'B', or None before calibrate()."},
    {"_repeat", repeat, METH_VARARGS, repeat_doc},
    {NULL, NULL, 0, NULL},
};

int
core_tensor_abi_add_to_module(PyObject *module)
{
    PyObject *names = PyModule_New("core._C.tensor_abi");
    if (names == NULL || PyModule_AddFunctions(names, functions) < 0 ||
        PyModule_AddObjectRef(module, "tensor_abi", names) < 0) {
        Py_XDECREF(names);
        return -1;
    }
    Py_DECREF(names);
    return 0;
}
