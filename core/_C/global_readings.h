// What of torch's state is read and how, shared by the snapshots (global_state.cpp) and by what finds out which readings
// this torch offers (global_state_calibrate.cpp).
//
// State: everything below is written by calibrate() under the GIL and read by every thread after; `tls_cache` is each
// thread's own (thread-local objects of torch never move).
#ifndef CORE_GLOBAL_READINGS_H
#define CORE_GLOBAL_READINGS_H

#include "global_state.h"
#include "guard_program.h"
#include "tensor_abi.h"

#include <cstring>

namespace core_state {

enum Kind {
    TLS_WORD,      // 8 bytes at an offset of a thread-local object
    TLS_BYTE,
    TLS_DEQUE,     // std::deque: whether it is empty
    CALL_BOOL,     // bool f()
    CALL_INT,      // int64_t f()
    CALL_BYTE,     // int8_t f()
    CALL_ENUM,     // int32_t f()
    DEVICE_BYTE,   // int8_t f(device type), a dtype
    CONTEXT_BOOL,  // bool f(const at::Context *)
    CONTEXT_ENUM,  // int32_t f(const at::Context *)
    CONTEXT_PAIR,  // an enum of one byte or more, f(const at::Context *, int, int)
    PYTHON_INT,    // an int in a module's dict
    LAYER_STACK,   // const std::vector<...> &f(): its bytes
    TLS_VECTOR,    // the same, of a std::vector at an offset of a thread-local object
};

// IF_SET: compared on a call only where the snapshot's value is not 0, as the key sets tell otherwise. DETAIL: covered
// by a cheaper comparison; made for descriptions only.
enum { ALWAYS, IF_SET, DETAIL };
enum { TLS_KEYS, TLS_AUTOGRAD, TLS_FUNCTION, TLS_HOOKS, TLS_COUNT };

struct Reading {
    const char *name;
    Kind kind;
    uint8_t tls;          // TLS_*
    uint8_t when;         // ALWAYS, IF_SET, DETAIL
    int16_t a, b;         // offset, or arguments
    void *function;
};

constexpr size_t MAX_READINGS = 64;
extern Reading readings[MAX_READINGS];
extern size_t reading_count;
extern uint8_t hot[MAX_READINGS];           // indices of the readings that a comparison makes one by one
extern size_t hot_count;

// The flags of at::Context as they lie in memory, so that twenty getters become one comparison. Offsets checked with
// torch 2.13; used only when learn_flags() finds every flag that has a getter in its place.
enum {
    FLAGS_START = 1008,     // enabled_cudnn
    FLAGS_END = 1080,       // before flags that torch sets by itself
    FLAG_CUDNN = 1008,
    FLAG_DETERMINISTIC = 1011,
    FLAG_FLASH = 1036,
    FLAG_BENCHMARK = 1043,
    FLAG_MATMUL_PRECISION = 1048,
    FLAG_BENCHMARK_LIMIT = 1052,
    FLAG_MKLDNN = 1068,
    PRECISION_MAP = 1088,   // std::unordered_map<pair of two enums, enum>
    PRECISIONS = 9,
};
struct Flags {
    char bytes[FLAGS_END - FLAGS_START];
    int32_t precisions[PRECISIONS];
};
extern bool hooks_seen;                          // whether a reading tells if there are saved-tensor hooks
extern const char *flags_at;                     // nullptr: not readable, the getters are called
extern const int32_t *precision_at[PRECISIONS];  // the map's nodes neither move nor die
extern void *context;                            // at::Context
extern void *(*tls_getters[TLS_COUNT])();        // reference to the thread's object
extern PyObject *forward_level_dict, *forward_level_name, *device_name;
extern Py_hash_t forward_level_hash;
extern PyTypeObject *device_mode_type;
extern int64_t (*function_stack_length)();
extern void **(*function_stack_at)(int64_t);
extern __thread void *tls_cache[TLS_COUNT] __attribute__((tls_model("initial-exec")));

inline char *
tls_object(int which)
{
    if (tls_cache[which] == nullptr)
        tls_cache[which] = tls_getters[which]();
    return static_cast<char *>(tls_cache[which]);
}

template <class T> inline T
as(void *function)
{
    T typed;
    std::memcpy(&typed, &function, sizeof(typed));
    return typed;
}

// The readings that are more than a load, out of line.
int64_t read_called(const Reading &reading);

inline int64_t
read(const Reading &r)
{
    switch (r.kind) {
    case TLS_WORD: return *reinterpret_cast<int64_t *>(tls_object(r.tls) + r.a);
    case TLS_BYTE: return *reinterpret_cast<uint8_t *>(tls_object(r.tls) + r.a);
    case TLS_DEQUE: {
        // libstdc++: map, map size, then two iterators of four words, each starting with its position.
        void **words = reinterpret_cast<void **>(tls_object(r.tls));
        return words[2] != words[6];
    }
    case TLS_VECTOR: {
        char **vector = reinterpret_cast<char **>(tls_object(r.tls) + r.a);
        return vector[1] - vector[0];
    }
    default: return read_called(r);
    }
}

// A borrowed reference to a mode of the thread's stack: std::shared_ptr<SafePyObject>, whose first word is the object.
PyObject *mode_at(int64_t i);

// global_state_calibrate.cpp
extern const char calibrate_doc[];
PyObject *calibrate(PyObject *module, PyObject *args);

} // namespace core_state

#endif
