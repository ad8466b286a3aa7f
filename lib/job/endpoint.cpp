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
constexpr const char* come_out =
    "It listens on its host's loopback only: there, set TUTTI_IFACE to an interface or address "
    "that other hosts reach (no name that means 127.…), and TUTTI_SECRET, without which ranks "
    "listen on loopback alone";

}  // namespace

Endpoint::~Endpoint() {
    leave(Deadline::after_ms(1000));
}

// With too many machines to have counted, each is expected to be as full as it has cores.
bool Endpoint::oversubscribed() const {
    return bootstrap_->machine_ranks() > bootstrap_->machine_cores();
}

Capabilities Endpoint::capabilities(std::size_t transport) const {
    Capabilities c = transports_[transport]->capabilities();
    static_cast<LinkAttributes&>(c) = common_[transport];
    return c;
}

bool Endpoint::takes_devices() const {
    return std::any_of(transports_.begin(), transports_.end(),
                       [](const auto& t) { return t->capabilities().takes_devices; });
}

void Endpoint::leave(Deadline deadline) {
    if (!say_goodbye(deadline)) return;
    stop_ = true;
    kick();
    thread_.join();
    acceptor_.reset();
    control_.close();
    will_.reset();
    remove_records(deadline);
    store_.reset();
}

void Endpoint::leave_at_exit(Deadline deadline) {
    if (!say_goodbye(deadline) || !stop_serving(deadline)) return;
    control_.close();
    will_.reset();
    if (!host_programs_store_) remove_records(deadline);
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
    for (const auto& transport : transports_) transport->close(deadline);
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
        for (const auto& transport : transports_) transport->peer_gone(rank);
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

void Endpoint::remove_records(Deadline deadline) {
    if (!store_ || !claimed_) return;
    for (const std::string& name : {key(config_.rank), key(config_.rank) + "/owner"})
        if (auto removed = store_->remove(name, deadline); !removed) {
            log::debug("rank {}: {}", config_.rank, removed.error().message);
            break;  // nor would it answer the second
        }
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
    for (const auto& transport : transports_) transport->retire(comm);
    return last;
}

const PeerRecord* Endpoint::known_peer(Rank rank) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : &found->second;
}

Result<const PeerRecord*> Endpoint::peer(Rank rank, Deadline deadline) {
    if (const PeerRecord* known = known_peer(rank)) return known;
    TUTTI_ASSIGN(const std::string text, store_->get(key(rank), deadline));
    return keep_peer(rank, text);
}

Result<const PeerRecord*> Endpoint::keep_peer(Rank rank, std::string_view text) {
    auto record = PeerRecord::decode(text);
    if (!record)
        return fail_rank(Code::system, rank, "rank {}'s record in the store is malformed", rank);
    // Another thread's may be there by now, and in use.
    const std::lock_guard lock(mutex_);
    return &peers_.try_emplace(rank, std::move(*record)).first->second;
}

Result<Opened> Endpoint::open(const ChannelId& id, Deadline deadline) {
    const net::ServeWhileWaiting serving(manual() ? &wakeups_.reactor() : nullptr);
    return connect(id, deadline);
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
        clients_.connected(id, connect(id, Deadline::after_ms(contact_ms)));
}

// All records were there when the job was complete: one that is not has gone with its rank.
Result<Opened> Endpoint::connect(const ChannelId& id, Deadline deadline) {
    TUTTI_ASSIGN(const PeerRecord* record, peer_if_there(id.peer, deadline));
    std::string tried;
    bool by_network = false;
    for (const auto& transport : transports_) {
        tried += fmt::format("{}{}", tried.empty() ? "" : ", ", transport->name());
        by_network |= !transport->capabilities().same_host_only;
        const auto to = find(*transport, id.peer, deadline);
        if (!to || !transport->may_reach(*to)) continue;
        auto sender = transport->open(id, *to, deadline);
        if (sender) return std::pair{std::move(*sender), transport.get()};
        if (sender.error().code != Code::unsupported)
            return wrap(sender.error(),
                        fmt::format("connecting to rank {} by {}", id.peer, transport->name()));
        tried += fmt::format(" ({})", sender.error().message);
    }
    return fail_rank(
        Code::unsupported, id.peer, "no transport reaches rank {} (host {}); tried: {}. {}",
        id.peer, record->host_id, tried,
        by_network && hides(*record, deadline) ? come_out : "Add one to TUTTI_TRANSPORT");
}

void Endpoint::progress() {
    for (const auto& transport : transports_) transport->progress();
}

void Endpoint::before_sleep() {
    for (const auto& transport : transports_) transport->before_sleep();
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
    for (const auto& transport : transports_) transport->peer_gone(peer);
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
