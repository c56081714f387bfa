/* Reading a torch.Tensor without linking to torch, in one of two ways that calibrate() chooses between.
 *
 * Tier A reads the fields of c10::TensorImpl at the offsets of `known_layout`. They are used only after every sample
 * tensor reads right, and the samples are read only inside the memory block that the allocator reports for the object;
 * no pointer is followed before it is known what it points at. Tier B asks torch: the exported C shim of AOTInductor
 * for sizes, strides, dtype and device, and torch._C._dispatch_keys for the key set. In both, `requires_grad` of a tensor
 * with autograd metadata is c10::TensorImpl::requires_grad(), which knows non-leaf tensors.
 *
 * The key set holds what the other fields do not: conj and neg views, inference tensors, sparse and quantized layouts,
 * subclasses with __torch_dispatch__, functorch wrappers.
 *
 * State: `abi`, written by calibrate() under the GIL, read by everyone after.
 */
#define _GNU_SOURCE
#include "tensor_abi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <link.h>
#include <malloc.h>
#endif

#define FREE INT64_MIN /* a size or stride that may be anything */
#define INLINE_DIMS 5  /* c10::impl::SizesAndStrides keeps up to five dimensions inside */

struct TensorSpec {
    PyTypeObject *type; /* strong */
    uint64_t keys;
    int32_t dtype, device_type, device_index; /* device_index -1: any */
    uint32_t ndim;
    uint8_t has_keys, requires_grad;
    int64_t dims[]; /* ndim sizes, then ndim strides */
};

typedef int32_t (*ShimInts)(void *tensor, int64_t **out);
typedef int32_t (*ShimInt)(void *tensor, int64_t *out);
typedef int32_t (*ShimCode)(void *tensor, int32_t *out);
typedef int32_t (*ShimPointer)(void *tensor, void **out);

/* Byte offsets in c10::TensorImpl; checked with torch 2.13 and 2.14. policy: the byte of the bit fields that says who
 * answers for sizes and device. grad: requires_grad_ in the autograd metadata. */
enum { BLOCK_BYTES = 176, META_BYTES = 136 };
static const struct {
    size_t autograd, ndim, dims, offset, dtype, device, policy, keys, grad;
} known_layout = {24, 56, 64, 144, 160, 162, 166, 168, 128};

/* Bits 2-3 of the policy byte: 2 and above, sizes come from elsewhere; bit 4: symbolic sizes; bit 7: the device does. */
#define POLICY_MASK 0x98

static struct {
    char tier; /* 'A', 'B', or 0 before calibrate() */
    Py_ssize_t cdata; /* offset in the Python object */
    int raw_grad; /* known_layout.grad is right */
    PyTypeObject *tensor_type;
    PyObject *dtypes;        /* dict: torch.dtype -> (code, bytes an element) */
    PyObject *dispatch_keys; /* torch._C._dispatch_keys */
    int32_t itemsize[256];
    _Bool (*requires_grad)(const void *);
    ShimInts sizes, strides;
    ShimInt dim, offset;
    ShimCode dtype, device_type, device_index, layout;
    ShimPointer data;
} abi;

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

/* ---- tier A ---- */

static inline const char *
impl_of(PyObject *tensor)
{
    return *(const char *const *)((const char *)tensor + abi.cdata);
}

#define FIELD(impl, type, name) (*(const type *)((impl) + known_layout.name))

static inline const int64_t *
raw_dims(const char *impl, uint32_t ndim)
{
    return ndim <= INLINE_DIMS ? &FIELD(impl, int64_t, dims) : FIELD(impl, const int64_t *, dims);
}

static inline uint32_t
strides_start(uint32_t ndim)
{
    return ndim <= INLINE_DIMS ? INLINE_DIMS : ndim;
}

static inline int
raw_requires_grad(const char *impl)
{
    const char *meta = FIELD(impl, const char *, autograd);
    if (meta == NULL)
        return 0;
    if (abi.raw_grad && meta[known_layout.grad])
        return 1;
    return abi.requires_grad(impl);
}

static inline int
raw_matches(PyObject *tensor, const TensorSpec *spec)
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
    PyObject *keys = PyObject_CallOneArg(abi.dispatch_keys, tensor), *bits = NULL;
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
        if (i == 0 && abi.sizes(handle, &sizes) != 0)
            return 0;
        if (spec->dims[i] != FREE && spec->dims[i] != sizes[i])
            return 0;
    }
    int asked = 0;
    for (uint32_t i = 0; i < spec->ndim; i++) {
        int64_t want = spec->dims[spec->ndim + i];
        if (want == FREE)
            continue;
        if (!asked && abi.strides(handle, &strides) != 0)
            return 0;
        asked = 1;
        if (want != strides[i])
            return 0;
    }
    return 1;
}

static int
asked_matches(PyObject *tensor, const TensorSpec *spec)
{
    /* An AtenTensorHandle is the address of a c10::intrusive_ptr to the tensor, which is what the object holds. */
    void *handle = (char *)tensor + abi.cdata;
    int64_t ndim;
    int32_t code;
    uint64_t keys = 0;
    if (impl_of(tensor) == NULL || abi.dim(handle, &ndim) != 0 || ndim != spec->ndim ||
        abi.dtype(handle, &code) != 0 || code != spec->dtype || abi.device_type(handle, &code) != 0 ||
        code != spec->device_type)
        return 0;
    if (spec->device_index >= 0 && (abi.device_index(handle, &code) != 0 || code != spec->device_index))
        return 0;
    /* Keys come before strides: asking a sparse tensor for its strides is an error that torch prints. */
    if (spec->has_keys && (!asked_keys(tensor, &keys) || keys != spec->keys))
        return 0;
    return asked_dims_match(handle, spec) && abi.requires_grad(impl_of(tensor)) == spec->requires_grad;
}

int
core_tensor_matches(PyObject *tensor, const TensorSpec *spec)
{
    if (Py_TYPE(tensor) != spec->type)
        return 0;
    return abi.tier == 'A' ? raw_matches(tensor, spec) : asked_matches(tensor, spec);
}

int
core_tensor_checks_run_python(void)
{
    return abi.tier != 'A';
}

int
core_tensor_number(PyObject *tensor, int what, int64_t dim, int64_t *out)
{
    if (abi.tier == 0 || !PyObject_TypeCheck(tensor, abi.tensor_type) || impl_of(tensor) == NULL)
        return 0;
    if (abi.tier == 'A') {
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
    void *handle = (char *)tensor + abi.cdata;
    int64_t ndim, *values;
    if (what == 'o')
        return abi.offset(handle, out) == 0;
    if (abi.dim(handle, &ndim) != 0 || dim < 0 || dim >= ndim)
        return 0;
    if ((what == 't' ? abi.strides : abi.sizes)(handle, &values) != 0)
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
    int32_t code, device, layout;
    void *data, *handle = (char *)tensor + abi.cdata;
    out->first = out->end = NULL;
    if (abi.tier == 0 || tensor == NULL || !PyObject_TypeCheck(tensor, abi.tensor_type) || impl_of(tensor) == NULL)
        return -1;
    if (abi.layout(handle, &layout) != 0 || layout != 0 || abi.dim(handle, &ndim) != 0 ||
        abi.sizes(handle, &sizes) != 0 || abi.dtype(handle, &code) != 0 || code < 0 || code > 255 ||
        abi.device_type(handle, &device) != 0)
        return -1;
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0)
            return 0;
    }
    if (abi.strides(handle, &strides) != 0 || abi.data(handle, &data) != 0)
        return -1;
    if (data == NULL)
        return device == 14 ? 0 : -1; /* meta tensors have no memory */
    for (int64_t i = 0; i < ndim; i++) {
        int64_t reach = strides[i] * (sizes[i] - 1);
        *(reach < 0 ? &low : &high) += reach;
    }
    out->first = (const char *)data + low * abi.itemsize[code];
    out->end = (const char *)data + (high + 1) * abi.itemsize[code];
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
    if (abi.tier == 0)
        return PyErr_Format(PyExc_RuntimeError, "tensor_abi.calibrate() comes before the first tensor guard"), NULL;
    if (!PyTuple_Check(tuple))
        return PyErr_Format(PyExc_TypeError, "a tensor spec is a tuple, not %R", tuple), NULL;
    if (!PyArg_ParseTuple(tuple, "O!OsipOOO;a tensor spec is (exact_type, dtype, device, ndim, requires_grad, sizes, "
                                 "strides, flags)",
                          &PyType_Type, &type, &dtype, &device, &ndim, &requires_grad, &sizes, &strides, &flags))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, abi.tensor_type))
        return PyErr_Format(PyExc_TypeError, "%R is no class of tensors", type), NULL;
    if ((entry = PyDict_GetItemWithError(abi.dtypes, dtype)) == NULL)
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
    struct { const char *library, *name; void *target; } wanted[] = {
        {"libc10", "_ZNK3c1010TensorImpl13requires_gradEv", &abi.requires_grad},
        {"libtorch_cpu", "aoti_torch_get_sizes", &abi.sizes},
        {"libtorch_cpu", "aoti_torch_get_strides", &abi.strides},
        {"libtorch_cpu", "aoti_torch_get_dim", &abi.dim},
        {"libtorch_cpu", "aoti_torch_get_storage_offset", &abi.offset},
        {"libtorch_cpu", "aoti_torch_get_dtype", &abi.dtype},
        {"libtorch_cpu", "aoti_torch_get_device_type", &abi.device_type},
        {"libtorch_cpu", "aoti_torch_get_device_index", &abi.device_index},
        {"libtorch_cpu", "aoti_torch_get_layout", &abi.layout},
        {"libtorch_cpu", "aoti_torch_get_data_ptr", &abi.data},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = core_torch_symbol(wanted[i].library, wanted[i].name);
        if (symbol == NULL)
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
    if (abi.dtype((char *)tensor + abi.cdata, &code) != 0 || code < 0 || code > 255) {
        PyErr_Format(PyExc_RuntimeError, "torch's C interface does not tell the dtype %R", dtype);
        goto done;
    }
    abi.itemsize[code] = (int32_t)bytes;
    number = PyLong_FromLong(code);
    result = number == NULL ? -1 : PyDict_SetItem(abi.dtypes, dtype, number);
done:
    Py_XDECREF(dtype);
    Py_XDECREF(number);
    return result;
}

/* 1 when every field of the tensor reads as torch itself says. */
static int
reads_right(PyObject *tensor, uint64_t keys)
{
    void *handle = (char *)tensor + abi.cdata;
    const char *impl = impl_of(tensor);
    int64_t ndim, offset, *sizes, *strides;
    int32_t dtype, device, index, layout;
    if (!block_holds(impl, BLOCK_BYTES) || FIELD(impl, uint64_t, keys) != keys)
        return 0;
    if (abi.layout(handle, &layout) != 0 || abi.dim(handle, &ndim) != 0 || abi.dtype(handle, &dtype) != 0 ||
        abi.device_type(handle, &device) != 0 || abi.device_index(handle, &index) != 0)
        return 0;
    if (FIELD(impl, uint64_t, ndim) != (uint64_t)ndim || FIELD(impl, uint16_t, dtype) != dtype ||
        FIELD(impl, int8_t, device) != device || (&FIELD(impl, int8_t, device))[1] != index)
        return 0;
    if (abi.requires_grad(impl) && FIELD(impl, void *, autograd) == NULL)
        return 0;
    if (layout != 0)
        return 1;
    if (abi.sizes(handle, &sizes) != 0 || abi.strides(handle, &strides) != 0 || abi.offset(handle, &offset) != 0)
        return 0;
    return raw_dims(impl, (uint32_t)ndim) == sizes && sizes + strides_start((uint32_t)ndim) == strides &&
           FIELD(impl, int64_t, offset) == offset && (FIELD(impl, uint8_t, policy) & POLICY_MASK) == 0;
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
        if (!block_holds(meta, META_BYTES) || (unsigned char)meta[known_layout.grad] > 1 ||
            (meta[known_layout.grad] && !abi.requires_grad(impl)))
            return;
        set += meta[known_layout.grad] == 1;
        clear += meta[known_layout.grad] == 0;
    }
    abi.raw_grad = set > 0 && clear > 0;
}

PyDoc_STRVAR(calibrate_doc,
"calibrate(torch_module, samples, dispatch_keys, tier=None)\n--\n\n"
"Choose how tensors are read, from samples of known contents; returns 'A' (offsets) or 'B' (torch's exported functions).\n"
"samples: a list of (tensor, key bits), one a dtype at least; dispatch_keys: a callable tensor -> key set.\n"
"tier='B' passes over the offsets. Raises RuntimeError when this torch can be read in neither way.");

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
    abi.tier = 0;
    abi.raw_grad = 0;
    if (resolve() < 0 || (type = PyObject_GetAttrString(torch_module, "Tensor")) == NULL)
        return NULL;
    Py_XSETREF(abi.tensor_type, (PyTypeObject *)type);
    Py_XSETREF(abi.dispatch_keys, Py_NewRef(dispatch_keys));
    Py_XSETREF(abi.dtypes, PyDict_New());
    if (abi.dtypes == NULL || !PyType_Check(type))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "%R is not a class", type);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
        PyObject *sample = PyList_GET_ITEM(samples, i);
        if (!PyTuple_Check(sample) || PyTuple_GET_SIZE(sample) != 2 ||
            !PyObject_TypeCheck(PyTuple_GET_ITEM(sample, 0), abi.tensor_type))
            return PyErr_Format(PyExc_TypeError, "a sample is (tensor, key bits), not %R", sample);
    }
    if ((abi.cdata = find_cdata(samples)) < 0)
        return NULL;
    int raw = (tier == NULL || tier[0] != 'B') && PyList_GET_SIZE(samples) > 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(samples); i++) {
        PyObject *sample = PyList_GET_ITEM(samples, i);
        uint64_t keys = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(sample, 1));
        if (PyErr_Occurred() || learn_dtype(PyTuple_GET_ITEM(sample, 0)) < 0)
            return NULL;
        raw = raw && reads_right(PyTuple_GET_ITEM(sample, 0), keys);
    }
    if (raw)
        learn_raw_grad(samples);
    abi.tier = raw ? 'A' : 'B';
    return PyUnicode_FromFormat("%c", abi.tier);
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
        PyObject *capsule = PyObject_GetAttrString((PyObject *)abi.tensor_type, "__dlpack_c_exchange_api__");
        table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        Py_XDECREF(capsule);
    }
    for (Py_ssize_t i = 0; i < times && !PyErr_Occurred(); i++)
        matches += table != NULL     ? dlpack_matches(table, tensor, spec)
                   : way[0] == 'A' ? Py_TYPE(tensor) == spec->type && raw_matches(tensor, spec)
                                   : Py_TYPE(tensor) == spec->type && asked_matches(tensor, spec);
    core_tensor_spec_free(spec);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(matches);
}

static PyObject *
tier(PyObject *unused, PyObject *unused_too)
{
    (void)unused;
    (void)unused_too;
    if (abi.tier == 0)
        Py_RETURN_NONE;
    return PyUnicode_FromFormat("%c", abi.tier);
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
