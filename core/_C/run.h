/* Running an intercepted frame: as it is, in place with other code, or through a function. For hook.c only. */
#ifndef CORE_RUN_H
#define CORE_RUN_H

#include "core.h"

typedef struct _PyInterpreterFrame Frame;

/* Evaluates the frame with `evaluate`, keeping recursion within the real C stack; NULL with RecursionError past it. */
PyObject *core_run_frame(PyThreadState *ts, Frame *frame, int throwflag, _PyFrameEvalFunction evaluate);

/* Runs a fresh frame with `code` in place of its own; always disposes of the frame. */
PyObject *core_run_replaced(PyThreadState *ts, Frame *frame, PyCodeObject *code);

/* Ends a fresh frame that will not run; an exception that is set stays set. */
void core_dispose_frame(PyThreadState *ts, Frame *frame);

/* Prepares the code that disposes of frames; -1 with an exception. */
int core_run_init(void);

#endif
