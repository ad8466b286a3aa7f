// The faults that tests switch on in the stand-ins, and the violations that these have found.
#include <execinfo.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "cuda/fake_cuda.h"

namespace {

// Never destroyed, as streams' threads may outlive main.
std::mutex& mutex() {
    static auto* made = new std::mutex;
    return *made;
}
std::string& recorded() {
    static auto* made = new std::string;
    return *made;
}

std::atomic<int> told[fake_told_count] = {-1, -1, -1, -1, -1, -1, -1, -1};

thread_local int questions = 0;

}  // namespace

extern "C" {

void fake_cuda_count_question() {
    ++questions;
}
int fake_cuda_asked() {
    return questions;
}

void fake_cuda_tell(int what, int rank) {
    told[what] = rank;
}
int fake_cuda_told(int what) {
    return told[what];
}

extern __attribute__((weak)) int tutti_test_locks_held(void);
void fake_cuda_may_wait(const char* what) {
    if (tutti_test_locks_held && tutti_test_locks_held() > 0)
        fake_cuda_violation((std::string(what) + " under a lock").c_str());
}
void fake_cuda_violation(const char* what) {
    const std::lock_guard lock(mutex());
    recorded() += std::string(what) + "\n";
    std::fprintf(stderr, "stand-in: violation: %s\n", what);
    void* frames[32];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 32), STDERR_FILENO);
}
const char* fake_cuda_violations(void) {
    const std::lock_guard lock(mutex());
    thread_local std::string kept;
    kept = recorded();
    return kept.c_str();
}
}
