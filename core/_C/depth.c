/* Recursion depth: Python calls that go through the extension recurse in C, and the C stack is finite.
 *
 * Without us a call from Python to Python takes no C stack, and only the recursion limit ends it. So a call through us
 * must not end earlier than it has to, and must end in RecursionError, not in a crash, when the stack is used up.
 */
#include "core.h"

#include <pthread.h>

/* The part of the stack that is left to C code called at the bottom: an eighth, within these bounds. */
#define LEAST_RESERVE_BYTES ((uintptr_t)64 * 1024)
#define LARGEST_RESERVE_BYTES ((uintptr_t)1024 * 1024)

static void
find_stack(CoreThread *thread)
{
    uintptr_t low = 0, high = 0;
#if defined(__linux__)
    pthread_attr_t attributes;
    void *base;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &base, &size) == 0) {
            low = (uintptr_t)base;
            high = low + size;
        }
        pthread_attr_destroy(&attributes);
    }
#elif defined(__APPLE__)
    high = (uintptr_t)pthread_get_stackaddr_np(pthread_self());
    low = high - pthread_get_stacksize_np(pthread_self());
#endif
    uintptr_t reserve = (high - low) / 8;
    if (reserve < LEAST_RESERVE_BYTES)
        reserve = LEAST_RESERVE_BYTES;
    if (reserve > LARGEST_RESERVE_BYTES)
        reserve = LARGEST_RESERVE_BYTES;
    /* Unknown bounds are stored as an empty range at 1: no address lies inside, so nothing is checked. */
    int known = high > low + reserve;
    thread->stack_low = known ? low : 1;
    thread->stack_floor = known ? low + reserve : 1;
    thread->stack_high = known ? high : 1;
}

int
core_depth_check(uintptr_t here)
{
    CoreThread *thread = &core_thread;
    if (thread->stack_high == 0)
        find_stack(thread);
    /* Outside the thread's stack altogether: a coroutine library's own stack, of which nothing is known. */
    if (here - thread->stack_low >= thread->stack_floor - thread->stack_low)
        return 0;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is used up");
    return -1;
}
