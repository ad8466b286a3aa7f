// A stand-in for a UCX that was built with CUDA: the UCX of this machine, which says so. If a call
// passes device memory, it moves the host memory that stands in for it; the caller must tell it
// which memory is a device's.
#pragma once

#include <atomic>

namespace gpu_test {

struct KnowingUcx {
    std::atomic<bool> knows{true};  // of contexts from now on
    // Messages that were sent from, or fetched to, a device's memory.
    std::atomic<int> sent{0}, fetched{0};
    // The process is killed in the middle of a message: at so many large ones from now on. 0:
    // never.
    std::atomic<int> dies_after{0};
};
extern KnowingUcx knowing_ucx;

}  // namespace gpu_test
