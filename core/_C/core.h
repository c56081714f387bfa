/* What the files of the extension share: the process-wide table of types, the thread's state, and one noun a section.
 *
 * The frame hook and the code-extra slot belong to the process, and the module refuses sub-interpreters, so its state
 * is one process-wide struct: a second import of the module shares the types of the first.
 */
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include "pyver.h"

#include <stdint.h>

#include "guards.h"

/* ---- types, filled once by module.c ---- */

typedef struct CoreTypes {
    PyTypeObject *entry, *callable, *code, *graph, *weak_link, *tail_call;
} CoreTypes;

extern CoreTypes core_types;

PyTypeObject *core_weak_link_type(PyObject *module);
PyTypeObject *core_entry_type(PyObject *module);
PyTypeObject *core_graph_type(PyObject *module);
PyTypeObject *core_callable_type(PyObject *module);
PyTypeObject *core_code_type(PyObject *module);
PyTypeObject *core_tail_call_type(PyObject *module);

/* ---- the thread's frame callback (hook.c) ---- */

/* callback: owned; NULL means off. run_only: entries run, nothing is compiled.
 * stack_low, stack_high: the bounds of the thread's C stack, 0 until depth.c asks; nothing starts below stack_floor. */
typedef struct CoreThread {
    PyObject *callback;
    uintptr_t stack_low, stack_floor, stack_high;
    int run_only;
} CoreThread;

/* Initial-exec: one instruction to reach, which matters because the hook reads it for every Python call. */
extern __thread CoreThread core_thread __attribute__((tls_model("initial-exec")));

/* What core_callback_switch() took away and core_callback_restore() puts back. */
typedef struct CoreCallback {
    PyObject *callback;
    int run_only;
} CoreCallback;

/* Makes `callback` (a new reference is taken; NULL is off) the thread's callback; the former moves into the result. */
static inline CoreCallback
core_callback_switch(PyObject *callback)
{
    CoreThread *thread = &core_thread;
    CoreCallback former = {thread->callback, thread->run_only};
    thread->callback = Py_XNewRef(callback);
    thread->run_only = 0;
    return former;
}

static inline void
core_callback_restore(CoreCallback former)
{
    CoreThread *thread = &core_thread;
    PyObject *current = thread->callback;
    thread->callback = former.callback;
    thread->run_only = former.run_only;
    Py_XDECREF(current);
}

/* Counts a user of the frame hook in or out; the first installs it, the last takes it away. Never fail. */
void core_hook_enter(void);
void core_hook_leave(void);
extern PyMethodDef core_hook_methods[];

/* ---- recursion depth (depth.c) ---- */

#if !CORE_PY311
/* What one unit of CPython's C recursion budget is taken to need, and the units that one evaluation takes. */
#define CORE_BYTES_PER_C_UNIT ((uintptr_t)512)
#define CORE_C_UNITS_PER_EVALUATION 2
#endif

/* What core_depth_enter() changed, for core_depth_leave(). */
typedef struct CoreDepth {
    PyThreadState *ts;
    int former; /* the C recursion budget */
} CoreDepth;

/* For an address outside [stack_floor, stack_high): 0 when that is no reason to stop, or -1 with RecursionError. */
int core_depth_check(uintptr_t here);

/* Before a Python function is entered from here. -1 with RecursionError when the C stack is used up. */
static inline int
core_depth_enter(CoreDepth *depth)
{
    CoreThread *thread = &core_thread;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (here - thread->stack_floor >= thread->stack_high - thread->stack_floor && core_depth_check(here) < 0)
        return -1;
#if CORE_PY311
    (void)depth;
#else
    /* Without us the call takes none of the C recursion budget. Give back what it takes, as long as the stack has room
     * for the whole budget that would then be left. */
    depth->ts = PyThreadState_Get();
    depth->former = depth->ts->c_recursion_remaining;
    int given = depth->former + CORE_C_UNITS_PER_EVALUATION;
    uintptr_t room = here - thread->stack_low;
    if (given > 0 && room < thread->stack_high - thread->stack_low && (uintptr_t)given * CORE_BYTES_PER_C_UNIT <= room)
        depth->ts->c_recursion_remaining = given;
#endif
    return 0;
}

static inline void
core_depth_leave(CoreDepth depth)
{
#if CORE_PY311
    (void)depth;
#else
    depth.ts->c_recursion_remaining = depth.former;
#endif
}

/* ---- WeakLink (weak_link.c): a weakref callback that points back at its owner without keeping it alive ---- */

/* Calls `notify(target)` when the weakref's referent dies; the target sets link->target to NULL when it dies first. */
typedef struct WeakLink {
    PyObject_HEAD
    void *target;
    void (*notify)(void *target);
    vectorcallfunc vectorcall;
} WeakLink;

/* New reference, or NULL with an exception. */
WeakLink *core_weak_link_new(void *target, void (*notify)(void *));

/* ---- Entry (entry.c): one compiled variant of a code object ---- */

typedef struct Entry {
    PyObject_HEAD
    PyObject *program;   /* GuardProgram, or None: always holds; NULL once invalid */
    PyObject *code;      /* replacement code; NULL once invalid */
    PyObject *user;      /* NULL once invalid */
    PyObject *keepalive; /* NULL once invalid */
    PyObject *owners;    /* tuple of weakrefs whose death invalidates, or NULL */
    WeakLink *link;      /* called when one of them, or an object that the program holds weakly, dies */
    PyObject *function;  /* replacement code as a function, with the parts of function_for; or NULL */
    PyObject *function_for, *defaults, *kwdefaults;
    PyObject *weakrefs;
    uint64_t hits;
    char closed, valid;
} Entry;

#define Entry_Check(object) Py_IS_TYPE(object, core_types.entry)

/* The first entry of the tuple `entries` (kept alive by the caller) whose guards hold, or NULL; a new reference.
 * The entry at *recent is tried first, under saved-tensor hooks the oldest; *recent follows the hit. Switches the
 * thread's callback off meanwhile. */
Entry *core_entry_find(PyObject *entries, Py_ssize_t *recent, const FrameView *view);

/* A new tuple: the valid entries of `entries` and `added` (may be NULL). */
PyObject *core_entries_with(PyObject *entries, PyObject *added);

/* 0 when the entry's code can stand in for `code`, else -1 with TypeError. */
int core_entry_fits(Entry *entry, PyCodeObject *code);

/* The entry's function for calls of `fn`, built once and again when fn's defaults change; a new reference. */
PyObject *core_entry_function(Entry *entry, PyFunctionObject *fn);

/* A function of `code` with globals, builtins, closure, defaults and names of `fn`; a new reference. */
PyObject *core_function_like(PyFunctionObject *fn, PyObject *code);

/* Drops what the entry owns; later lookups pass it over. */
void core_entry_invalidate(Entry *entry);

/* ---- dispatch (dispatch.c): what CompiledCallable and CompiledCode have in common ---- */

typedef struct Dispatch {
    PyObject *callback, *user;
    PyObject *entries; /* a tuple, replaced as a whole, so that a lookup under way keeps its own */
    Py_ssize_t recent;
    uint64_t hits;
    char skipped;   /* always run as written */
    char frozen;    /* no more compiling; entries still serve */
    char compiling; /* a call on this or another thread is in the callback: misses run as written */
} Dispatch;

int core_dispatch_init(Dispatch *dispatch, PyObject *callback, PyObject *user);
int core_dispatch_traverse(Dispatch *dispatch, visitproc visit, void *arg);
void core_dispatch_clear(Dispatch *dispatch);

/* The entry to run for this call (new reference); NULL without an exception: run as written; NULL with one: fail. */
Entry *core_dispatch_choose(Dispatch *dispatch, PyObject *owner, PyCodeObject *code, const FrameView *view);

/* Calls callback(owner, code, args, globals, builtins, closure), unseen by tracing, the thread's callback off. */
PyObject *core_call_compiler(PyObject *callback, PyObject *owner, PyCodeObject *code, const FrameView *view);

/* Calls the entry's function with no hook for a closed entry, else with the hook on and `callback` set. */
PyObject *core_run_entry(Entry *entry, PyObject *callback, PyObject *function, PyObject *const *args, size_t nargsf,
                         PyObject *kwnames);

/* Calls `function` with the thread's callback off. */
PyObject *core_run_plain(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* How the process wants compiled callables to run: bits, 0 for as ever. Guarded by the GIL, read on each call. */
enum {
    CORE_STANCE_EAGER = 1,       /* what compile() returned runs as written */
    CORE_STANCE_SKIP_GUARDS = 2, /* the one entry there is runs unasked */
    CORE_STANCE_REDIRECT = 4,    /* core_stance_redirect(callable) names the callable to run in its place */
    CORE_STANCE_ASK = 8,         /* a miss asks the callback of frozen callables too: it may want to raise */
};
extern int core_stance;
extern PyObject *core_stance_redirect;
extern PyMethodDef core_stance_methods[];

PyObject *core_dispatch_entries(Dispatch *dispatch);
PyObject *core_dispatch_last(Dispatch *dispatch);
int core_dispatch_reset(Dispatch *dispatch);

/* ---- TailCall (tail_call.c): the resume function that is to run when replacement code has returned ---- */

#define TailCall_Check(object) ((object) != NULL && Py_IS_TYPE(object, core_types.tail_call))

/* args: the closure, then the arguments. A new reference. */
PyObject *core_tail_call_new(PyObject *target, PyObject *const *args, Py_ssize_t nargs);

/* Takes over what replacement code returned, NULL included; runs the resume functions it asks for and gives the result. */
PyObject *core_tail_call_run(PyObject *result);

/* One call of a CompiledCode (compiled_code.c); the result may be a TailCall. */
PyObject *core_code_run_once(PyObject *code, PyObject *const *args, size_t nargsf);

/* ---- argument binding (bind.c) ---- */

enum { CORE_BIND_INLINE = 24 };

/* The argument slots of one call, each an owned reference. */
typedef struct Bound {
    PyObject **slots;
    Py_ssize_t count;
    PyObject *room[CORE_BIND_INLINE];
} Bound;

/* 1 when the arguments fit the function's parameters, 0 when they don't (calling it raises), -1 with an exception. */
int core_bind(Bound *bound, PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
void core_bind_release(Bound *bound);

/* ---- code extra (state.c): what the hook knows of a code object ---- */

/* Entries that one callback made for a code object. The callback is held weakly where it can be. */
typedef struct Group {
    PyObject *identity; /* the callback, compared only; NULL once it died */
    PyObject *hold;     /* weakref to it, or itself where it can't be weakly referenced */
    WeakLink *link;
    PyObject *entries; /* a tuple, replaced as a whole */
    Py_ssize_t recent;
    char skipped, compiling;
    struct Group *next;
} Group;

typedef struct CodeState {
    char skipped;     /* never captured */
    char quiet;       /* nor is anything that its frames call */
    char replacement; /* made by us: never captured, and stays so after a reset */
    Group *groups;
} CodeState;

int core_state_init(void);
/* NULL when nothing is known of the code; no exception. */
CodeState *core_state_of(PyCodeObject *code);
/* NULL with an exception. */
CodeState *core_state_make(PyCodeObject *code);
Group *core_group_find(CodeState *state, PyObject *callback);
Group *core_group_make(CodeState *state, PyObject *callback);
/* Marks replacement code, so that the hook runs it as it is; -1 with an exception. */
int core_state_mark_replacement(PyObject *code);
extern PyMethodDef core_state_methods[];

#endif
