#include "run/request.h"

#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "wait/backoff.h"
#include "wait/event_fd.h"

namespace tutti {

Completion::Callback Completion::closed_hook;

void Completion::call(const Callback& callback, Code code) {
    ++callbacks_here_;
    callback(code);
    --callbacks_here_;
}

Completion::~Completion() {
    if (Callback* hook = hook_.load(); hook != &closed_hook) delete hook;
    if (const int fd = fd_.load(); fd != no_fd) ::close(fd);
}

bool Completion::set_callback(Callback callback) {
    auto hook = std::make_unique<Callback>(std::move(callback));
    Callback* expected = nullptr;
    if (hook_.compare_exchange_strong(expected, hook.get())) {
        hook.release();
        return true;
    }
    if (expected != &closed_hook) return false;
    call(*hook, code_.load());
    return true;
}

Result<int> Completion::event_fd() {
    if (const int fd = fd_.load(); fd != no_fd) return fd;
    TUTTI_ASSIGN(UniqueFd made, make_event_fd());
    // Threads that ask at the same time get one descriptor: the losers close their own.
    int fd = no_fd;
    if (!fd_.compare_exchange_strong(fd, made.get())) return fd;
    fd = made.release();
    // Pairs with fire(), which stores fired_ and then loads fd_. This thread has stored fd_ and now
    // loads fired_, all sequentially consistent: at least one of the two threads rings.
    if (fired_.load()) ring_event_fd(fd);
    return fd;
}

void Completion::fire(Code code) {
    code_.store(code);
    Callback* hook = hook_.exchange(&closed_hook);
    if (hook && hook != &closed_hook) {
        call(*hook, code);
        delete hook;
    }
    // Only after the callback: a thread that reads fired_ spins for this thread's code
    // (Request::wait_published), and the callback may need a lock that such a thread holds.
    fired_.store(true);
    if (const int fd = fd_.load(); fd != no_fd) ring_event_fd(fd);
}

bool Request::wait_published() const {
    if (done()) return true;
    if (!completion.fired()) return false;
    for (int turn = 0; !done(); ++turn) spin_turn(turn);
    return true;
}

}  // namespace tutti
