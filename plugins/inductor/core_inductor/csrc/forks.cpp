// How many threads a kernel may use.
//
// A forked child inherits libgomp's record of worker threads but not the threads: its next parallel region of more
// than one thread waits for them forever. So where the process had other threads at the moment of the fork, kernels in
// the child run on one thread. State shared between threads: `lost_workers`, written only in the fork handlers.

#include "runtime.h"

#include <atomic>
#include <dirent.h>
#include <pthread.h>

namespace runtime {

namespace {

std::atomic<bool> lost_workers{false};
bool had_workers = false;  // written by the forking thread, read by its copy in the child

// True when this process has more than one thread, or when that can't be found out.
bool has_other_threads() {
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == nullptr) {
        return true;
    }
    int entries = 0;
    while (entries <= 3 && readdir(tasks) != nullptr) {
        entries++;  // "." and ".." are among them
    }
    closedir(tasks);
    return entries > 3;
}

void before_fork() { had_workers = has_other_threads(); }

void in_child() {
    if (had_workers) {
        lost_workers.store(true, std::memory_order_relaxed);
    }
}

}  // namespace

void watch_forks() {
    static std::atomic<bool> watching{false};
    if (!watching.exchange(true)) {
        pthread_atfork(before_fork, nullptr, in_child);
    }
}

int thread_count(const TorchSymbols &torch) {
    if (lost_workers.load(std::memory_order_relaxed)) {
        return 1;
    }
    const int count = torch.get_num_threads();
    return count < 1 ? 1 : count;
}

}  // namespace runtime
