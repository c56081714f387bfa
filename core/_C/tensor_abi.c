/* Reading a torch.Tensor without linking to torch, in one of two ways that calibrate() chooses between.
 *
 * Tier A reads the fields of c10::TensorImpl at `core_offsets`. They are used only after every sample
 * tensor reads right, and the samples are read only inside the memory block that the allocator reports for the object;
 * no pointer is followed before it is known what it points at. Tier B asks torch: the exported C shim of AOTInductor
 * for sizes, strides, dtype and device, and torch._C._dispatch_keys for the key set. In both, `requires_grad` of a tensor
 * with autograd metadata is c10::TensorImpl::requires_grad(), which knows non-leaf tensors.
 *
 * The key set holds what the other fields do not: conj and neg views, inference tensors, sparse and quantized layouts,
 * subclasses with __torch_dispatch__, functorch wrappers. It tells the layout too where torch (before 2.9) does not
 * export a function for that: calibrate() learns which keys no strided sample has.
 *
 * State: `core_abi`, written by calibrate() (tensor_calibrate.c) under the GIL, read by everyone after.
 */
#include "tensor_layout.h"

#include <stdlib.h>
#include <string.h>

struct TensorAbi core_abi;

/* ---- tier A ---- */

static inline int
raw_requires_grad(const char *impl)
{
    const char *meta = FIELD(impl, const char *, autograd);
    if (meta == NULL)
        return 0;
    if (core_abi.raw_grad && meta[core_offsets.grad])
        return 1;
    return core_abi.requires_grad(impl);
}

int
core_tensor_matches_raw(PyObject *tensor, const TensorSpec *spec)
{
    const char *impl = impl_of(tensor);
    uint32_t ndim = spec->ndim;
    if (impl == NULL || FIELD(impl, uint64_t, ndim) != ndim || FIELD(impl, uint16_t, dtype) != spec->dtype ||
        FIELD(impl, int8_t, device) != spec->device_type ||
        (spec->device_index >= 0 && (&FIELD(impl, int8_t, device))[1] != spec->device_index) ||
        (FIELD(impl, uint8_t, policy) & POLICY_MASK) != 0)
        return 0;
    if (spec->has_keys && FIELD(impl, uint64_t, keys) != spec->keys)
        return 0;
    const int64_t *sizes = raw_dims(impl, ndim), *strides = sizes + strides_start(ndim), *want = spec->dims;
    for (uint32_t i = 0; i < ndim; i++) {
        if ((want[i] != sizes[i] && want[i] != FREE) || (want[ndim + i] != strides[i] && want[ndim + i] != FREE))
            return 0;
    }
    return raw_requires_grad(impl) == spec->requires_grad;
}

/* ---- tier B ---- */

static int
asked_keys(PyObject *tensor, uint64_t *out)
{
    PyObject *keys = PyObject_CallOneArg(core_abi.dispatch_keys, tensor), *bits = NULL;
    if (keys != NULL)
        bits = PyObject_CallMethod(keys, "raw_repr", NULL);
    Py_XDECREF(keys);
    if (bits != NULL)
        *out = PyLong_AsUnsignedLongLongMask(bits);
    Py_XDECREF(bits);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

static int
asked_dims_match(void *handle, const TensorSpec *spec)
{
    int64_t *sizes, *strides;
    for (uint32_t i = 0; i < spec->ndim; i++) {
        if (i == 0 && core_abi.sizes(handle, &sizes) != 0)
            return 0;
        if (spec->dims[i] != FREE && spec->dims[i] != sizes[i])
            return 0;
    }
    int asked = 0;
    for (uint32_t i = 0; i < spec->ndim; i++) {
        int64_t want = spec->dims[spec->ndim + i];
        if (want == FREE)
            continue;
        if (!asked && core_abi.strides(handle, &strides) != 0)
            return 0;
        asked = 1;
        if (want != strides[i])
            return 0;
    }
    return 1;
}

int
core_tensor_matches_asked(PyObject *tensor, const TensorSpec *spec)
{
    /* An AtenTensorHandle is the address of a c10::intrusive_ptr to the tensor, which is what the object holds. */
    void *handle = (char *)tensor + core_abi.cdata;
    int64_t ndim;
    int32_t code;
    uint64_t keys = 0;
    if (impl_of(tensor) == NULL || core_abi.dim(handle, &ndim) != 0 || ndim != spec->ndim ||
        core_abi.dtype(handle, &code) != 0 || code != spec->dtype || core_abi.device_type(handle, &code) != 0 ||
        code != spec->device_type)
        return 0;
    if (spec->device_index >= 0 && (core_abi.device_index(handle, &code) != 0 || code != spec->device_index))
        return 0;
    /* Keys come before strides: asking a sparse tensor for its strides is an error that torch prints. */
    if (spec->has_keys && (!asked_keys(tensor, &keys) || keys != spec->keys))
        return 0;
    return asked_dims_match(handle, spec) && core_abi.requires_grad(impl_of(tensor)) == spec->requires_grad;
}

int
core_tensor_matches(PyObject *tensor, const TensorSpec *spec)
{
    if (Py_TYPE(tensor) != spec->type)
        return 0;
    return core_abi.tier == 'A' ? core_tensor_matches_raw(tensor, spec) : core_tensor_matches_asked(tensor, spec);
}

int
core_tensor_checks_run_python(void)
{
    return core_abi.tier != 'A';
}

void *
core_tensor_handle(PyObject *tensor)
{
    if (core_abi.tier == 0 || !PyObject_TypeCheck(tensor, core_abi.tensor_type) || impl_of(tensor) == NULL)
        return NULL;
    return (char *)tensor + core_abi.cdata;
}

int
core_tensor_is_strided(void *handle)
{
    int32_t layout;
    uint64_t keys;
    if (core_abi.layout != NULL)
        return core_abi.layout(handle, &layout) == 0 && layout == 0;
    PyObject *tensor = (PyObject *)((char *)handle - core_abi.cdata);
    if (core_abi.tier == 'A')
        keys = FIELD(impl_of(tensor), uint64_t, keys);
    else if (!asked_keys(tensor, &keys))
        return 0;
    return core_abi.unstrided != 0 && (keys & core_abi.unstrided) == 0;
}

int
core_tensor_data(void *handle, void **out)
{
    return core_abi.data(handle, out) == 0;
}

int
core_tensor_number(PyObject *tensor, int what, int64_t dim, int64_t *out)
{
    if (core_abi.tier == 0 || !PyObject_TypeCheck(tensor, core_abi.tensor_type) || impl_of(tensor) == NULL)
        return 0;
    if (core_abi.tier == 'A') {
        const char *impl = impl_of(tensor);
        uint64_t ndim = FIELD(impl, uint64_t, ndim);
        if ((FIELD(impl, uint8_t, policy) & POLICY_MASK) != 0)
            return 0;
        if (what == 'o') {
            *out = FIELD(impl, int64_t, offset);
            return 1;
        }
        if (dim < 0 || (uint64_t)dim >= ndim)
            return 0;
        *out = raw_dims(impl, (uint32_t)ndim)[dim + (what == 't' ? strides_start((uint32_t)ndim) : 0)];
        return 1;
    }
    void *handle = (char *)tensor + core_abi.cdata;
    int64_t ndim, *values;
    if (what == 'o')
        return core_abi.offset(handle, out) == 0;
    if (core_abi.dim(handle, &ndim) != 0 || dim < 0 || dim >= ndim)
        return 0;
    if ((what == 't' ? core_abi.strides : core_abi.sizes)(handle, &values) != 0)
        return 0;
    *out = values[dim];
    return 1;
}

/* ---- overlap ---- */

typedef struct Extent { const char *first, *end; } Extent;

/* First byte and end of the memory that a tensor's elements lie in. -1: not known. */
static int
extent(PyObject *tensor, Extent *out)
{
    int64_t ndim, *sizes, *strides, low = 0, high = 0;
    int32_t code, device;
    void *data, *handle = (char *)tensor + core_abi.cdata;
    out->first = out->end = NULL;
    if (core_abi.tier == 0 || tensor == NULL || !PyObject_TypeCheck(tensor, core_abi.tensor_type) || impl_of(tensor) == NULL)
        return -1;
    if (!core_tensor_is_strided(handle) || core_abi.dim(handle, &ndim) != 0 ||
        core_abi.sizes(handle, &sizes) != 0 || core_abi.dtype(handle, &code) != 0 || code < 0 || code > 255 ||
        core_abi.device_type(handle, &device) != 0)
        return -1;
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0)
            return 0;
    }
    if (core_abi.strides(handle, &strides) != 0 || core_abi.data(handle, &data) != 0)
        return -1;
    if (data == NULL)
        return device == 14 ? 0 : -1; /* meta tensors have no memory */
    for (int64_t i = 0; i < ndim; i++) {
        int64_t reach = strides[i] * (sizes[i] - 1);
        *(reach < 0 ? &low : &high) += reach;
    }
    out->first = (const char *)data + low * core_abi.itemsize[code];
    out->end = (const char *)data + (high + 1) * core_abi.itemsize[code];
    return 0;
}

int
core_tensors_overlap(PyObject *const *regs, const uint32_t *which, uint32_t count)
{
    Extent small[64], *extents = small;
    int overlap = 1;
    if (count > 64 && (extents = PyMem_Malloc(count * sizeof(Extent))) == NULL)
        return 1;
    for (uint32_t i = 0; i < count; i++) {
        if (extent(regs[which[i]], &extents[i]) < 0)
            goto done;
        for (uint32_t j = 0; j < i; j++) {
            if (extents[i].first < extents[j].end && extents[j].first < extents[i].end)
                goto done;
        }
    }
    overlap = 0;
done:
    if (extents != small)
        PyMem_Free(extents);
    return overlap;
}

/* ---- specs ---- */

static const char *const device_names[] = {"cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
                                           "fpga", "maia", "xla", "vulkan", "metal", "xpu", "mps",
                                           "meta", "hpu", "ve", "lazy", "ipu", "mtia"};
enum { DEVICE_CPU = 0, DEVICE_META = 14, DEVICE_PRIVATE = 20 };

static void
parse_device(const char *text, int32_t *type, int32_t *index)
{
    const char *colon = strchr(text, ':');
    size_t length = colon == NULL ? strlen(text) : (size_t)(colon - text);
    *type = DEVICE_PRIVATE; /* the one device type that may be renamed */
    for (size_t i = 0; i < sizeof(device_names) / sizeof(device_names[0]); i++) {
        if (strlen(device_names[i]) == length && strncmp(device_names[i], text, length) == 0)
            *type = (int32_t)i;
    }
    *index = colon == NULL || *type == DEVICE_CPU || *type == DEVICE_META ? -1 : (int32_t)atoi(colon + 1);
}

static int
fill_dims(int64_t *dims, PyObject *values, uint32_t ndim, const char *what)
{
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) != (Py_ssize_t)ndim)
        return PyErr_Format(PyExc_ValueError, "%s are a tuple of %u ints or None, not %R", what, ndim, values), -1;
    for (uint32_t i = 0; i < ndim; i++) {
        PyObject *item = PyTuple_GET_ITEM(values, i);
        dims[i] = item == Py_None ? FREE : PyLong_AsLongLong(item);
        if (dims[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

TensorSpec *
core_tensor_spec_new(PyObject *tuple)
{
    PyObject *type, *dtype, *sizes, *strides, *flags, *entry, *keys;
    const char *device;
    int ndim, requires_grad;
    if (core_abi.tier == 0)
        return PyErr_Format(PyExc_RuntimeError, "tensor_core_abi.calibrate() comes before the first tensor guard"), NULL;
    if (!PyTuple_Check(tuple))
        return PyErr_Format(PyExc_TypeError, "a tensor spec is a tuple, not %R", tuple), NULL;
    if (!PyArg_ParseTuple(tuple, "O!OsipOOO;a tensor spec is (exact_type, dtype, device, ndim, requires_grad, sizes, "
                                 "strides, flags)",
                          &PyType_Type, &type, &dtype, &device, &ndim, &requires_grad, &sizes, &strides, &flags))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, core_abi.tensor_type))
        return PyErr_Format(PyExc_TypeError, "%R is no class of tensors", type), NULL;
    if ((entry = PyDict_GetItemWithError(core_abi.dtypes, dtype)) == NULL)
        return PyErr_Occurred() ? NULL : (PyErr_Format(PyExc_ValueError, "no sample had the dtype %R", dtype), NULL);
    if (ndim < 0 || ndim > 1 << 16)
        return PyErr_Format(PyExc_ValueError, "a tensor has no %d dimensions", ndim), NULL;
    TensorSpec *spec = PyMem_Calloc(1, sizeof(TensorSpec) + 2 * (size_t)ndim * sizeof(int64_t));
    if (spec == NULL)
        return (TensorSpec *)PyErr_NoMemory();
    spec->type = (PyTypeObject *)Py_NewRef(type);
    spec->dtype = (int32_t)PyLong_AsLong(entry);
    spec->ndim = (uint32_t)ndim;
    spec->requires_grad = (uint8_t)requires_grad;
    parse_device(device, &spec->device_type, &spec->device_index);
    keys = PyDict_Check(flags) ? PyDict_GetItemString(flags, "keys") : flags;
    if (keys == NULL)
        PyErr_Format(PyExc_ValueError, "the flags %R lack 'keys'", flags);
    else if (keys != Py_None) {
        spec->has_keys = 1;
        spec->keys = PyLong_AsUnsignedLongLongMask(keys);
    }
    if (PyErr_Occurred() || fill_dims(spec->dims, sizes, spec->ndim, "sizes") < 0 ||
        fill_dims(spec->dims + ndim, strides, spec->ndim, "strides") < 0) {
        core_tensor_spec_free(spec);
        return NULL;
    }
    return spec;
}

void
core_tensor_spec_free(TensorSpec *spec)
{
    if (spec != NULL) {
        Py_DECREF(spec->type);
        PyMem_Free(spec);
    }
}

int
core_tensor_spec_visit(TensorSpec *spec, visitproc visit, void *arg)
{
    Py_VISIT(spec->type);
    return 0;
}
