/* Reading a torch.Tensor without linking to torch; see tensor_abi.c for the two ways that this is done. */
#ifndef CORE_TENSOR_ABI_H
#define CORE_TENSOR_ABI_H

#include "pyver.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TensorSpec TensorSpec;

/* Spec of the `tensor` instruction: (exact_type, dtype, device_str, ndim, requires_grad, sizes, strides, flags).
 * Holds a strong reference to exact_type (a class). NULL with an exception set when the tuple is malformed or
 * calibrate() was not called. */
TensorSpec *core_tensor_spec_new(PyObject *tuple);
void core_tensor_spec_free(TensorSpec *spec);
int core_tensor_spec_visit(TensorSpec *spec, visitproc visit, void *arg);

/* 1 when the object is a tensor as the spec says, else 0. Never leaves an exception set. */
int core_tensor_matches(PyObject *tensor, const TensorSpec *spec);

/* 1 when core_tensor_matches() calls Python-level functions of torch: such checks come last, with owned registers. */
int core_tensor_checks_run_python(void);

/* what: 's' size, 't' stride, 'o' storage offset. 0 when it can't be read. */
int core_tensor_number(PyObject *tensor, int what, int64_t dim, int64_t *out);

/* 1 when the byte extents of two of the tensors regs[which[0..count)] meet, or when one has no plain memory. */
int core_tensors_overlap(PyObject *const *regs, const uint32_t *which, uint32_t count);

/* What torch's C interface takes for a tensor (borrowed), NULL for anything else and before calibrate(). */
void *core_tensor_handle(PyObject *tensor);

/* 1 when the tensor of a handle is known to have strides. Never leaves an exception set. */
int core_tensor_is_strided(void *handle);

/* 1 and the address of the first element of a strided tensor, 0 when it has none. */
int core_tensor_data(void *handle, void **out);

/* Address of a symbol of torch's libraries (`library`: a part of the file name, such as "libc10"), or NULL. */
void *core_torch_symbol(const char *library, const char *name);

int core_tensor_abi_add_to_module(PyObject *module);
int core_frozen_weights_add_to_module(PyObject *module); /* frozen_weights.cpp */
int core_backward_state_add_to_module(PyObject *module); /* backward_state.cpp */

#ifdef __cplusplus
}
#endif

#endif
