#include "transport/registration/memory_monitor.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "wait/backoff.h"
#include "wait/event_fd.h"

namespace tutti {
namespace {

// Faults of the program's own code only: that needs no privilege.
#ifdef UFFD_USER_MODE_ONLY
constexpr int user_mode_only = UFFD_USER_MODE_ONLY;
#else
constexpr int user_mode_only = 1;
#endif

constexpr uint64_t wanted_features = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                                     UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP;

}  // namespace

Result<std::unique_ptr<MemoryMonitor>> MemoryMonitor::start() {
    UniqueFd faults(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | user_mode_only)));
    if (!faults)
        return fail(Code::unsupported, "userfaultfd: {}", std::strerror(errno))
            .advice("allow userfaultfd, or register buffers with tutti_mem_register");
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = wanted_features;
    if (::ioctl(faults.get(), UFFDIO_API, &api) != 0 ||
        (api.features & wanted_features) != wanted_features)
        return fail(Code::unsupported, "userfaultfd: this kernel does not report unmapping")
            .advice("use a newer kernel, or register buffers with tutti_mem_register");
    TUTTI_ASSIGN(UniqueFd stop, make_event_fd());
    std::unique_ptr<MemoryMonitor> monitor(new MemoryMonitor(std::move(faults), std::move(stop)));
    TUTTI_ASSIGN(monitor->thread_, Thread::start("the thread that sees memory being unmapped",
                                                 [&own = *monitor] { own.run(); }));
    return monitor;
}

MemoryMonitor::MemoryMonitor(UniqueFd faults, UniqueFd stop)
    : faults_(std::move(faults)), stop_(std::move(stop)) {}

MemoryMonitor::~MemoryMonitor() {
    ring_event_fd(stop_.get());
    thread_.join();
}

// The monitor registers for write protection and never uses it, so no page fault is ever delivered.
// Registering for missing pages would make a thread fill them in.
bool MemoryMonitor::watch(const MemoryRange& range) {
    uffdio_register request{};
    request.range = {.start = range.begin, .len = range.bytes()};
    request.mode = UFFDIO_REGISTER_MODE_WP;
    return ::ioctl(faults_.get(), UFFDIO_REGISTER, &request) == 0;
}

void MemoryMonitor::unwatch(const MemoryRange& range) {
    uffdio_range request{.start = range.begin, .len = range.bytes()};
    // The ioctl fails if the whole range is unmapped; then there is nothing to do.
    ::ioctl(faults_.get(), UFFDIO_UNREGISTER, &request);
}

bool MemoryMonitor::gone(MemoryRange& range) {
    for (int turn = 0; turns_.load(std::memory_order_seq_cst) % 2 != 0; ++turn) spin_turn(turn);
    if (noted_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock(mutex_);
    std::size_t left = noted_.load(std::memory_order_relaxed);
    if (overflowed_) {
        overflowed_ = false;
        left = 0;
        range = {0, std::numeric_limits<std::uintptr_t>::max()};
    } else {
        range = ranges_[--left];
    }
    noted_.store(left, std::memory_order_release);
    return true;
}

void MemoryMonitor::run() {
    pollfd fds[] = {{.fd = faults_.get(), .events = POLLIN, .revents = 0},
                    {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    for (;;) {
        if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
        if (fds[1].revents != 0) return;
        if (fds[0].revents != 0) read_one();
    }
}

void MemoryMonitor::read_one() {
    turns_.fetch_add(1, std::memory_order_seq_cst);
    uffd_msg event{};
    MemoryRange range;
    if (::read(faults_.get(), &event, sizeof event) == sizeof event) {
        if (event.event == UFFD_EVENT_UNMAP || event.event == UFFD_EVENT_REMOVE)
            range = {event.arg.remove.start, event.arg.remove.end};
        if (event.event == UFFD_EVENT_REMAP)
            range = {event.arg.remap.from, event.arg.remap.from + event.arg.remap.len};
    }
    if (range.bytes() > 0) {
        const std::lock_guard lock(mutex_);
        const std::size_t count = noted_.load(std::memory_order_relaxed);
        if (count == most_ranges)
            overflowed_ = true;
        else
            ranges_[count] = range;
        noted_.store(count == most_ranges ? count : count + 1, std::memory_order_release);
    }
    turns_.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace tutti
