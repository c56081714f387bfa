/* torch's global and thread-local state as one comparable snapshot; see global_state.c. */
#ifndef CORE_GLOBAL_STATE_H
#define CORE_GLOBAL_STATE_H

#include "pyver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1 when `object` is a snapshot. */
int core_global_state_check(PyObject *object);

/* 1 when the state of this thread and process is as in the snapshot. Never raises, runs no user code. */
int core_global_state_matches(PyObject *snapshot);

/* 1 when this thread saves tensors for the backward through hooks; 0 also where this torch does not let one see. */
int core_saves_through_hooks(void);

int core_global_state_add_to_module(PyObject *module);

#ifdef __cplusplus
}
#endif

#endif
