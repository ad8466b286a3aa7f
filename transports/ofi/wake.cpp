#include "transports/ofi/wake.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "wait/event_fd.h"

namespace tutti::ofi {
namespace {

// If the provider cannot wake a sleeping thread, the thread polls again after this time.
constexpr long look_again_ns = 500'000;
// An edge-triggered watch misses completions that arrived before the last edge and were not read,
// so a sleeping thread polls again after this time.
constexpr long missed_edge_ns = 5'000'000;
// The predecessor, in libfabric 1.17, of today's tcp provider: once its descriptor was readable it
// stays readable, whatever fi_trywait returns. New completions still make an edge.
constexpr std::string_view stays_readable = "net";

}  // namespace

Result<> WakeDescriptor::open() {
    const bool edges = objects_.wake_fd >= 0 && objects_.provider() == stays_readable;
    if (objects_.wake_fd < 0 || edges) {
        timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
        if (!timer_) return fail_errno(errno, "creating a timer (timerfd_create)");
    }
    return edges ? watch_edges() : Result<>{};
}

Result<> WakeDescriptor::watch_edges() {
    edges_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!edges_) return fail_errno(errno, "creating an epoll descriptor");
    epoll_event edge{.events = EPOLLIN | EPOLLET, .data = {}}, level{.events = EPOLLIN, .data = {}};
    if (::epoll_ctl(edges_.get(), EPOLL_CTL_ADD, objects_.wake_fd, &edge) != 0 ||
        ::epoll_ctl(edges_.get(), EPOLL_CTL_ADD, timer_.get(), &level) != 0)
        return fail_errno(errno, "watching libfabric's descriptor (epoll_ctl)");
    return {};
}

bool WakeDescriptor::arm() {
    if (!objects_.endpoint) return true;
    if (timer_) {
        const long nanoseconds = edges_ ? missed_edge_ns : look_again_ns;
        const itimerspec soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = nanoseconds}};
        const bool set = ::timerfd_settime(timer_.get(), 0, &soon, nullptr) == 0;
        if (!edges_ || !set) return set;
    }
    fid* queue = &objects_.completions->fid;
    return fi_trywait(objects_.fabric.get(), &queue, 1) == 0;
}

// Reading the completions does not empty the descriptor; without this, the next sleeping thread
// would wake at once, over and over.
void WakeDescriptor::drain() {
    if (!timer_ && !objects_.endpoint) return;
    if (!timer_) {
        fid* queue = &objects_.completions->fid;
        (void)fi_trywait(objects_.fabric.get(), &queue, 1);
        return;
    }
    epoll_event events[2];
    if (edges_ && ::epoll_wait(edges_.get(), events, 2, 0) < 0)
        log::debug("libfabric ({}): epoll_wait: errno {}", objects_.provider(), errno);
    uint64_t expirations = 0;
    if (::read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        log::debug("libfabric ({}): reading the timer: errno {}", objects_.provider(), errno);
}

// A sleeping thread polls the completion queue's descriptor, and nothing can empty it any more:
// fi_trywait() accesses the closed endpoint (ofi_rxm crashes). So the descriptor's number becomes
// that of an eventfd that is never readable, until the queue is closed.
void WakeDescriptor::silence() const {
    if (objects_.wake_fd < 0) return;
    const auto quiet = make_event_fd();
    if (!quiet || ::dup3(quiet->get(), objects_.wake_fd, O_CLOEXEC) < 0)
        log::debug("libfabric ({}): cannot silence the closed queue's descriptor: errno {}",
                   objects_.provider(), errno);
}

}  // namespace tutti::ofi
