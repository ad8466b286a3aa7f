// An endpoint at work: channels and losses to communicators, sleeping and waking.
#include "job/endpoint.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/log.h"
#include "net/serving.h"
#include "transport/posted/flow.h"
#include "wait/backoff.h"

namespace tutti {
namespace {

constexpr int service_tick_ms = 1000;
constexpr int64_t contact_ms = 1000;    // for a channel to a peer that is known to be there
constexpr int64_t failed_news_ms = 30;  // for the last ones, where everyone hears of a failure
}  // namespace

Endpoint::~Endpoint() {
    leave(Deadline::after_ms(1000));
}

// With too many machines to have counted, each is expected to be as full as it has cores.
bool Endpoint::oversubscribed() const {
    return bootstrap_->machine_ranks() > bootstrap_->machine_cores();
}

void Endpoint::leave(Deadline deadline) {
    if (!say_goodbye(deadline)) return;
    stop_ = true;
    kick();
    thread_.join();
    acceptor_.reset();
    control_.close();
    directory_.withdraw_will();
    directory_.withdraw_records(deadline);
    directory_.close();
}

void Endpoint::leave_at_exit(Deadline deadline) {
    if (!say_goodbye(deadline) || !stop_serving(deadline)) return;
    control_.close();
    directory_.withdraw_will();
    if (!host_programs_store_) directory_.withdraw_records(deadline);
}

/// False: that has been done.
bool Endpoint::say_goodbye(Deadline deadline) {
    if (leaving_) return false;  // what wants a detour since then gets none
    const bool failed = drop_given_up();
    finish_detours(failed ? Deadline::after_ms(failed_news_ms) : deadline);
    if (leaving_.exchange(true)) return false;
    const bool joined = [&] {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(2 * contact_ms)),
                          [this] { return !opening_; });
        return bootstrap_ && bootstrap_->state() == Bootstrap::State::done;
    }();
    if (joined) take_leave(deadline, failed);
    while (!control_.flushed() && !deadline.passed()) {
        pump();
        ::usleep(100);
    }
    transports_.close(deadline);
    return true;
}

void Endpoint::give_up_on(Rank rank) {
    const auto lock = clients_.hold();
    given_up_.insert(rank);
}

/// True if there are any. What this rank still owes them has a moment to go.
bool Endpoint::drop_given_up() {
    const auto lock = clients_.hold();
    for (const auto& [rank, cause] : lost_) given_up_.insert(rank);
    for (const Rank rank : given_up_) {
        control_.finish(rank);
        transports_.peer_gone(rank);
    }
    return !given_up_.empty();
}

/// False: the program's completion callback keeps the service thread.
bool Endpoint::stop_serving(Deadline deadline) {
    stop_ = true;
    kick();
    // exit() was called from within a callback: that thread does nothing else any more.
    if (thread_.is_this()) return true;
    {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(contact_ms)),
                               [this] { return !serving_; }))
            return false;
    }
    thread_.join();
    return true;
}

void Endpoint::add(uint32_t comm, EndpointClient* client) {
    const auto lock = clients_.hold();
    if (clients_.add(comm, client)) ring();
    for (auto& [peer, cause] : lost_) client->peer_lost(peer, cause);
    for (const Rank peer : unreachable_) client->unreachable(peer);
    tell_next(nobody);
}

bool Endpoint::claim_ids(uint32_t first, uint32_t count) {
    uint32_t free = next_id_.load();
    while (free <= first)
        if (next_id_.compare_exchange_weak(free, first + count)) return true;
    return false;
}

bool Endpoint::remove(uint32_t comm, Deadline deadline) {
    const auto lock = clients_.hold(deadline);
    if (!lock.owns_lock()) return false;
    const bool last = clients_.remove(comm);
    transports_.retire(comm);
    return last;
}

Result<Opened> Endpoint::open(const ChannelId& id, Deadline deadline) {
    const net::ServeWhileWaiting serving(manual() ? &wakeups_.reactor() : nullptr);
    return connector_.open(id, deadline);
}

void Endpoint::open_later(const ChannelId& id) {
    {
        const std::lock_guard lock(mutex_);
        wanted_.push_back(id);
    }
    kick();
}

std::optional<Endpoint::Wanted> Endpoint::next_wanted() {
    // Before the look: whoever asks after it wakes this thread.
    wakeups_.answer_kick();
    const std::lock_guard lock(mutex_);
    if (opening_ || leaving_) return std::nullopt;
    Wanted next;
    if (!wanted_.empty()) {
        next.channel = wanted_.front();
        wanted_.pop_front();
    } else if (!detours_.empty()) {
        next.detour = detours_.begin()->first;
    } else {
        return std::nullopt;
    }
    opening_ = true;
    return next;
}

// The peer may be at the same, and only who serves its reactor goes on: so this thread does. And
// nothing is held meanwhile that a handler of this rank or of one in the same process needs.
void Endpoint::open_wanted() {
    if (!wakeups_.kicked()) return;  // nobody has asked since this was last looked at
    while (const auto next = next_wanted()) {
        const net::ServeWhileWaiting serving(&wakeups_.reactor());
        if (next->channel)
            open_channel(*next->channel);
        else
            open_detour(next->detour);
        {
            const std::lock_guard lock(mutex_);
            opening_ = false;
        }
        changed_.notify_all();
        ring();
    }
}

void Endpoint::open_channel(const ChannelId& id) {
    if (clients_.still_wanted(id))
        clients_.connected(id, connector_.open(id, Deadline::after_ms(contact_ms)));
}

void Endpoint::pump() {
    if (!manual()) return;
    wakeups_.reactor().poll(0);
    open_wanted();
}

// ---- from peers --------------------------------------------------------------------------------

void Endpoint::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    switch (clients_.opened(id, std::move(receiver))) {
        case ClientTable::Taken::given:
            return ring();
        case ClientTable::Taken::kept_or_dropped:
            return;
        case ClientTable::Taken::too_many:
            return lose(id.peer,
                        fmt::format("it opened more than {} channels of communicators that rank {} "
                                    "does not have",
                                    PeerLimits{}.early_channels, config_.rank),
                        nobody);
    }
}

void Endpoint::peer_lost(Rank peer, const std::string& cause) {
    // Peers that leave together with this rank are no loss.
    if (!leaving_) lose(peer, cause, nobody);
}

// Passed on to everyone, also by a rank that leaves: some communicators have it as a member whose
// other members have no connection to it.
void Endpoint::lose(Rank peer, const std::string& cause, Rank except) {
    const auto lock = clients_.hold();
    if (left_.count(peer) > 0 || !lost_.emplace(peer, cause).second) return;
    transports_.peer_gone(peer);
    announce_loss(peer, cause, except);
    tell_next(peer);
    if (clients_.empty()) {
        bootstrap_step([&] {
            if (bootstrap_->state() != Bootstrap::State::done)
                bootstrap_->fail_with(
                    {Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)});
        });
        return;
    }
    clients_.peer_lost(peer, cause);
}

void Endpoint::serve() {
    Backoff backoff;
    while (!stop_) {
        open_wanted();
        bool moved = false;
        if (!serve_clients(moved)) {
            wakeups_.sleep_idle(wakeups_.handover().sleep_ms(service_tick_ms));
            backoff.reset();
            continue;
        }
        backoff.set_oversubscribed(oversubscribed());
        const Backoff::Turn turn = backoff.next(moved);
        if (moved || turn != Backoff::Turn::spin) wakeups_.handover().needed();
        if (turn == Backoff::Turn::look) wakeups_.reactor().poll(0);
        if (turn != Backoff::Turn::sleep) continue;

        // Announced first, then looked once more: whatever comes after that look rings.
        Sleeper::take_moved();
        wakeups_.set_dozing(true);
        moved = !arm_clients(true);
        if (serve_clients(moved) && !Sleeper::take_moved() && !moved && !wakeups_.kicked())
            wakeups_.doze();
        wakeups_.set_dozing(false);
        arm_clients(false);
        backoff.woke();
    }
    const std::lock_guard lock(mutex_);
    serving_ = false;
    changed_.notify_all();
}

}  // namespace tutti
