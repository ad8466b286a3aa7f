#include "wait/wakeups.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr int watch_ms = 1;  // between polls of devices, which ring no doorbell

}  // namespace

Result<> Wakeups::open() {
    TUTTI_ASSIGN(UniqueFd doorbell, make_event_fd());
    TUTTI_ASSIGN(UniqueFd wake_service, make_event_fd());
    doorbell_ = Doorbell(std::move(doorbell));
    service_doorbell_ = Doorbell(std::move(wake_service));
    TUTTI_TRY(
        reactor_.add(data_reactor_.fd(), EPOLLIN, [this](uint32_t) { data_reactor_.poll(0); }));
    if (!manual_) reactor_.watch(data_reactor_.fd(), false);
    TUTTI_TRY(data_reactor_.add(doorbell_.fd(), EPOLLIN, [this](uint32_t) { doorbell_.drain(); }));
    return reactor_.add(service_doorbell_.fd(), EPOLLIN,
                        [this](uint32_t) { service_doorbell_.drain(); });
}

void Wakeups::poll_program(int timeout_ms, uint64_t since) {
    if (watched_ > 0) timeout_ms = std::min(timeout_ms, watch_ms);
    const int called = (manual_ ? reactor_ : data_reactor_).poll(timeout_ms, since);
    // The drained wake-up may have been meant for the dozing service thread, which drives the
    // operations for which no thread waits.
    if (called > 0 && dozing_) wake_service();
}

void Wakeups::wake_for_unsent() {
    if (!sends_unsent_ && !manual_) wake_service();
}

void Wakeups::wake_service() {
    if (!service_woken_.exchange(true)) service_doorbell_.ring();
}

// If a call has returned with unsent output, the service thread sends it while the program
// computes. While a thread of the program waits, that thread sends it, and the service thread does
// not watch the data reactor. A returning thread wakes the service thread unless it reads
// sends_unsent_ as true. The service thread clears the flag before it reads unsent_ again, so it
// sees that thread's output.
void Wakeups::sleep_idle(int timeout_ms) {
    const bool sends = unsent_ > 0 && waiters_ == 0;
    sends_unsent_ = sends;
    if (sends) reactor_.watch(data_reactor_.fd(), true);
    reactor_.poll(timeout_ms);
    if (sends) reactor_.watch(data_reactor_.fd(), false);
    sends_unsent_ = false;
}

void Wakeups::poll_dozing() {
    reactor_.watch(data_reactor_.fd(), true);
    reactor_.poll(watched_ > 0 ? watch_ms : longest_sleep_ms_);
    reactor_.watch(data_reactor_.fd(), false);
}

}  // namespace tutti
