#include "fabric/watch.h"

#include "wait/reactor.h"

namespace tutti::fabric {
namespace {

// After so many polls it is worth two system calls not to be watched: each message costs its sender
// 0.2 µs while we are.
constexpr uint64_t polls_watched = 1000;

}  // namespace

void PortWatch::stay_watched() {
    ignored_from_ = sleepers_ == 0 ? port_.polls() + polls_watched : 0;
    if (!watched_) watch(true);
}

// If the reactor cannot watch it, no thread sleeps.
void PortWatch::watch(bool on) {
    if (fd() < 0) return;
    watched_ = reactor_->watch(fd(), on) && on;
    if (on && !watched_) waker_.ring();
}

void PortWatch::drain() {
    armed_ = false;
    if (PortDoorbell* const bell = port_.port().doorbell()) bell->drain();
}

// A thread that sleeps beside a port without a doorbell looks now and then.
bool PortWatch::arm() {
    PortDoorbell* const bell = port_.port().doorbell();
    armed_ = !bell || bell->arm();
    return armed_;
}

}  // namespace tutti::fabric
