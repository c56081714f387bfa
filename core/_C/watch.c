/* The table of watched dicts. State shared between threads: `table` and its counters, under the GIL.
 *
 * An event comes before the change is made and inside it, so a callback only sets flags. CPython 3.13.0 tells nothing
 * when an attribute is stored in an instance whose dict is a window on inline values (cpython#125608); a probe at
 * import finds out. A new dict assigned to `obj.__dict__` tells nothing on any version: whoever relies on a dict also
 * compares the pointer to it on each call.
 */
#define CORE_DICT_INTERNALS
#include "watch.h"

#if !CORE_HAVE_WATCHERS

int core_watch_init(void) { return 0; }
int core_watch_can(PyObject *dict) { (void)dict; return 0; }
int core_watch_add(Watch *watch, PyObject *dict) { (void)watch; (void)dict; return -1; }
void core_watch_remove(Watch *watch) { (void)watch; }

#else

static int watcher_id = -1;
static int tells_windows;   /* stores through an instance reach the watchers of its dict */
static int probe_events;

/* Open addressing over the dict's address; `first` NULL with a non-NULL dict is a grave. */
typedef struct Slot { PyObject *dict; Watch *first; } Slot;
static Slot *table;
static size_t capacity, used; /* used counts graves too */

static size_t
home(PyObject *dict)
{
    return (size_t)(((uintptr_t)dict >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (capacity - 1);
}

static Slot *
find(PyObject *dict)
{
    if (capacity == 0)
        return NULL;
    for (size_t i = home(dict); table[i].dict != NULL; i = (i + 1) & (capacity - 1)) {
        if (table[i].dict == dict)
            return &table[i];
    }
    return NULL;
}

static Slot *
place(PyObject *dict)
{
    size_t i = home(dict);
    while (table[i].dict != NULL && table[i].dict != dict)
        i = (i + 1) & (capacity - 1);
    if (table[i].dict == NULL) {
        table[i].dict = dict;
        used++;
    }
    return &table[i];
}

static int
grow(void)
{
    Slot *old = table;
    size_t old_capacity = capacity, live = 0;
    for (size_t i = 0; i < old_capacity; i++)
        live += old[i].first != NULL;
    size_t wanted = 64;
    while (wanted < live * 4)
        wanted *= 2;
    Slot *fresh = PyMem_RawCalloc(wanted, sizeof(Slot));
    if (fresh == NULL)
        return -1;
    table = fresh;
    capacity = wanted;
    used = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].first != NULL)
            place(old[i].dict)->first = old[i].first;
    }
    PyMem_RawFree(old);
    return 0;
}

static int
on_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)value;
    probe_events++;
    Slot *slot = find(dict);
    if (slot == NULL || slot->first == NULL)
        return 0;
    int dead = event == PyDict_EVENT_DEALLOCATED;
    if (event != PyDict_EVENT_ADDED && event != PyDict_EVENT_MODIFIED && event != PyDict_EVENT_DELETED)
        key = NULL;
    Watch *watch = slot->first, *next;
    if (dead)
        slot->first = NULL;
    for (; watch != NULL; watch = next) {
        next = watch->next;
        if (dead)
            watch->dict = NULL;
        watch->changed(watch, key, dead);
    }
    return 0;
}

int
core_watch_can(PyObject *dict)
{
    return watcher_id >= 0 && (tells_windows || !core_dict_is_window(dict));
}

int
core_watch_add(Watch *watch, PyObject *dict)
{
    if (!core_watch_can(dict) || ((used + 1) * 2 > capacity && grow() < 0))
        return -1;
    Slot *slot = place(dict);
    if (slot->first == NULL && PyDict_Watch(watcher_id, dict) < 0) {
        PyErr_Clear();
        return -1;
    }
    watch->dict = dict;
    watch->next = slot->first;
    slot->first = watch;
    return 0;
}

void
core_watch_remove(Watch *watch)
{
    if (watch->dict == NULL)
        return;
    Slot *slot = find(watch->dict);
    for (Watch **link = &slot->first; *link != NULL; link = &(*link)->next) {
        if (*link == watch) {
            *link = watch->next;
            break;
        }
    }
    if (slot->first == NULL && PyDict_Unwatch(watcher_id, watch->dict) < 0)
        PyErr_Clear();
    watch->dict = NULL;
}

/* Stores an attribute of an instance whose dict is watched, and looks whether the watcher heard of it. */
static int
probe(void)
{
    static const char source[] =
        "class Probe:\n"
        "    def __init__(self):\n"
        "        self.x = 1\n"
        "probe = Probe()\n"
        "watched = probe.__dict__\n";
    PyObject *names = PyDict_New(), *result = NULL, *watched, *instance, *two = NULL;
    int status = -1;
    if (names == NULL || PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) < 0)
        goto done;
    if ((result = PyRun_String(source, Py_file_input, names, names)) == NULL)
        goto done;
    watched = PyDict_GetItemString(names, "watched");
    instance = PyDict_GetItemString(names, "probe");
    if (watched == NULL || instance == NULL || (two = PyLong_FromLong(2)) == NULL)
        goto done;
    if (PyDict_Watch(watcher_id, watched) < 0)
        goto done;
    probe_events = 0;
    if (PyObject_SetAttrString(instance, "x", two) < 0)
        goto done;
    tells_windows = probe_events > 0;
    status = PyDict_Unwatch(watcher_id, watched);
done:
    Py_XDECREF(two);
    Py_XDECREF(result);
    Py_XDECREF(names);
    return status;
}

int
core_watch_init(void)
{
    if (watcher_id >= 0)
        return 0;
    watcher_id = PyDict_AddWatcher(on_event);
    if (watcher_id < 0) {
        PyErr_Clear(); /* every slot is taken: guards compare version tags or look up */
        return 0;
    }
    return probe();
}

#endif
