#include "trainer/execution/checker.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>

#include "trainer/plan/layout.h"

namespace tutti::trainer {
namespace {

// The signal handler reads these. The thread that holds the mutex sets them before it protects
// pages.
std::mutex in_use;
std::atomic<const Checker::ProtectedRegion*> first{nullptr};
std::atomic<std::size_t> region_count{0};
std::atomic<int> violated{none};  // the region
struct sigaction previous;

// Records the first region that was touched and lets the operation continue: its result no longer
// matters.
void on_fault(int signal, siginfo_t* info, void*) {
    const auto* at = static_cast<const std::byte*>(info->si_addr);
    const Checker::ProtectedRegion* regions = first.load();
    for (std::size_t i = 0; i < region_count.load(); ++i) {
        if (at < regions[i].data || at >= regions[i].data + regions[i].bytes) continue;
        int nothing = none;
        violated.compare_exchange_strong(nothing, static_cast<int>(i));
        ::mprotect(regions[i].data, regions[i].bytes, PROT_READ | PROT_WRITE);
        return;
    }
    ::sigaction(signal, &previous,
                nullptr);  // not in a region: the access faults again, for the previous handler
}

tutti_access allowed(const ProgramNode& node, int buffer) {
    if (std::ranges::find(node.writes, buffer) != node.writes.end()) return TUTTI_ACCESS_WRITE;
    if (std::ranges::find(node.reads, buffer) != node.reads.end()) return TUTTI_ACCESS_READ;
    return TUTTI_ACCESS_NONE;
}

}  // namespace

std::size_t Checker::page_bytes() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Result<> Checker::protect(const ProtectedRegion& region, tutti_access access) {
    const int device = recorder_.buffer(region.buffer).device;
    return devices_[static_cast<std::size_t>(device)]->protect(region.data, region.bytes, access);
}

Result<> Checker::protect_all() {
    for (const ProtectedRegion& region : regions_)
        if (region.access != TUTTI_ACCESS_WRITE) TRAINER_TRY(protect(region, region.access));
    return {};
}

Result<> Checker::begin(const ProgramNode& node) {
    in_use.lock();
    regions_.clear();
    for (int b = 0; b < static_cast<int>(recorder_.buffers().size()); ++b) {
        const Buffer& buffer = recorder_.buffer(b);
        if (buffer.bytes == 0 || buffer.data == nullptr) continue;
        regions_.push_back({static_cast<std::byte*>(buffer.data),
                            round_up(buffer.bytes, page_bytes()), b, allowed(node, b)});
    }
    first = regions_.data();
    region_count = regions_.size();
    violated = none;
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &previous);
    Result<> done = protect_all();
    if (!done) TRAINER_TRY(end());
    return done;
}

Result<std::string> Checker::end() {
    Result<> opened;
    for (const ProtectedRegion& region : regions_)
        if (region.access != TUTTI_ACCESS_WRITE)
            if (auto one = protect(region, TUTTI_ACCESS_WRITE); !one) opened = std::move(one);
    ::sigaction(SIGSEGV, &previous, nullptr);
    std::string text;
    if (const int at = violated.load(); at != none) {
        const ProtectedRegion& region = regions_[static_cast<std::size_t>(at)];
        const std::string name = recorder_.buffer(region.buffer).full_name();
        text = region.access == TUTTI_ACCESS_READ
                   ? fmt::format("writes '{}', which it declares as read only", name)
                   : fmt::format("touches '{}', which it does not declare", name);
    }
    region_count = 0;
    in_use.unlock();
    TRAINER_TRY(opened);
    return text;
}

}  // namespace tutti::trainer
