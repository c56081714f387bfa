/* How a tensor lies in memory and whom to ask instead: shared by tensor_abi.c and tensor_calibrate.c. */
#ifndef CORE_TENSOR_LAYOUT_H
#define CORE_TENSOR_LAYOUT_H

#include "tensor_abi.h"

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

/* Byte offsets in c10::TensorImpl. policy: the byte of the bit fields that says who answers for sizes and device.
 * grad: requires_grad_ in the autograd metadata. block, meta: bytes that the two objects have at least. */
typedef struct TensorOffsets {
    size_t autograd, ndim, dims, offset, dtype, device, policy, keys, grad, block, meta;
} TensorOffsets;

/* The offsets in use: the first of the known ones under which every sample reads right (see tensor_calibrate.c). */
extern TensorOffsets core_offsets;

/* Bits 2-3 of the policy byte: 2 and above, sizes come from elsewhere; bit 4: symbolic sizes; bit 7: the device does. */
#define POLICY_MASK 0x98

struct TensorAbi {
    char tier; /* 'A', 'B', or 0 before calibrate() */
    Py_ssize_t cdata; /* offset in the Python object */
    int raw_grad; /* core_offsets.grad is right */
    PyTypeObject *tensor_type;
    PyObject *dtypes;        /* dict: torch.dtype -> (code, bytes an element) */
    PyObject *dispatch_keys; /* torch._C._dispatch_keys */
    int32_t itemsize[256];
    _Bool (*requires_grad)(const void *);
    ShimInts sizes, strides;
    ShimInt dim, offset;
    ShimCode dtype, device_type, device_index;
    ShimCode layout;         /* NULL where torch does not export it: the key set tells then */
    uint64_t unstrided;      /* keys that only tensors without strides have; 0: not learned */
    ShimPointer data;
};

extern struct TensorAbi core_abi; /* written by calibrate() under the GIL, read by everyone after */

static inline const char *
impl_of(PyObject *tensor)
{
    return *(const char *const *)((const char *)tensor + core_abi.cdata);
}

#define FIELD(impl, type, name) (*(const type *)((impl) + core_offsets.name))

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

/* core_tensor_matches() by one of the tiers, for an object of the spec's exact type. */
int core_tensor_matches_raw(PyObject *tensor, const TensorSpec *spec);
int core_tensor_matches_asked(PyObject *tensor, const TensorSpec *spec);

#endif
