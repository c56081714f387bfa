// How many threads a kernel may use.
//
// A forked child inherits libgomp's record of worker threads but not the threads: its next parallel region of more than
// one thread waits for them forever. So once a kernel has run on several threads, kernels in a child of this process
// run on one. State shared between threads: the two flags; `lost_workers` is written in the fork handler only.

#include "runtime.h"

#include <algorithm>
#include <atomic>
#include <pthread.h>

namespace runtime {

namespace {

std::atomic<bool> ran_in_parallel{false};
std::atomic<bool> lost_workers{false};

void in_child() { lost_workers.store(ran_in_parallel.load(std::memory_order_relaxed), std::memory_order_relaxed); }

}  // namespace

void watch_forks() {
    static std::atomic<bool> watching{false};
    if (!watching.exchange(true)) {
        pthread_atfork(nullptr, nullptr, in_child);
    }
}

int available_threads(const TorchSymbols &torch) {
    return lost_workers.load(std::memory_order_relaxed) ? 1 : std::max(1, torch.get_num_threads());
}

int claim_threads(const TorchSymbols &torch) {
    const int count = available_threads(torch);
    if (count > 1) {
        ran_in_parallel.store(true, std::memory_order_relaxed);
    }
    return count;
}

}  // namespace runtime
