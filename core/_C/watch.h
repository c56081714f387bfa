/* Dict watchers (3.12 and later): who wants to know when a dict changes. On 3.11 nothing can be watched. */
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include "pyver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One interest in one dict; owned by the interested party, which must not move it while it is registered.
 *
 * changed(): called with the key (borrowed; NULL when the whole dict changed or is about to die). It must not run
 * Python code. After a death the watch is no longer registered.
 */
typedef struct Watch {
    struct Watch *next;
    PyObject *dict; /* borrowed; NULL while not registered */
    void (*changed)(struct Watch *watch, PyObject *key, int dead);
    void *owner;
} Watch;

/* Takes one of the interpreter's few watcher slots, if one is free. Never fails for lack of one. */
int core_watch_init(void);

/* 1 when changes of this dict will be told: a slot was free, and for a window on inline values the interpreter tells. */
int core_watch_can(PyObject *dict);

/* 0, or -1 (no exception set) when the dict can't be watched. */
int core_watch_add(Watch *watch, PyObject *dict);
void core_watch_remove(Watch *watch);

#ifdef __cplusplus
}
#endif

#endif
