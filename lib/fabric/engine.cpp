// Ownership, peers, life and death of an engine; send.cpp and receive.cpp are its two directions.
#include "fabric/engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/event_fd.h"
#include "base/log.h"
#include "base/patience.h"
#include "fabric/channel.h"
#include "net/reactor.h"

namespace tutti::fabric {
namespace {

// Turns in which arming finds that there is something to do.
constexpr int max_arm_turns = 100;
// Who waits for the library to let go of memory looks often at first, and then so often.
constexpr int quick_looks = 1000;
constexpr useconds_t look_again_us = 200;
// Who has slept may soon sleep again. Polls after which it is worth two system calls not to be
// watched: each message costs its sender 0.2 µs while we are.
constexpr uint64_t polls_watched = 1000;
// Libraries connect in their own time, and again when it suits them: they open sockets without
// close-on-exec, which are looked for in each tick for a second after a peer is new, then rarely.
constexpr int marks_a_peer = 10, ticks_a_mark = 100;
// What a peer had sent before its end comes in that time.
constexpr int64_t last_words_ns = 30'000'000;

uint64_t key_of(uint32_t comm, uint16_t lane) {
    return uint64_t{comm} << 16 | lane;
}

std::size_t place_of(Rank peer, uint32_t comm, uint16_t lane) {
    return static_cast<std::size_t>(peer) * 17 + comm * 5 + lane;
}

// Whoever sleeps beside a port without a doorbell looks now and then.
bool may_sleep(Port& port) {
    PortDoorbell* const bell = port.doorbell();
    return !bell || bell->arm();
}

}  // namespace

Result<> FabricEngine::open_port(PortFactory& factory) {
    fds_.emplace();
    TUTTI_ASSIGN(port_, factory.open(*this));
    fds_->take_new();
    second_path_ = port_->second_path();
    armed_ = may_sleep(*port_);
    hello_ = ByteWriter().put(options_.nonce).put_text(as_text(port_->address())).take();
    return {};
}

// Flows are gone before the port that their arrivals belong to.
FabricEngine::~FabricEngine() {
    if (!port_) return;
    closed_ = true;
    for (auto& [rank, flows] : flows_)
        for (auto& [key, flow] : flows)
            for (Slot& slot : flow->in.slots)
                if (slot.hold) port_->release(std::exchange(slot.hold, nullptr));
    port_.reset();
}

// ---- ownership -------------------------------------------------------------------------------

void FabricEngine::leave() {
    for (;;) {
        settle();
        if (!forgotten_.empty()) forget_flows();
        if (sleepers_ > 0 && !armed_ && !closing_) arm_port();
        const std::unique_ptr<News> told = std::move(news_);
        if (told) delivering_.fetch_add(1, std::memory_order_seq_cst);
        owner_.give();
        if (told) {
            deliver(*told);
            delivering_.fetch_sub(1, std::memory_order_seq_cst);
        }
        const bool added = ready_.added() || contributions_added_.load(std::memory_order_seq_cst);
        if (!added || !owner_.try_take()) return;
        flush();
    }
}

// Without the owner flag: the transport's client has locks of its own.
void FabricEngine::deliver(const News& told) {
    for (Flow* flow : told.opened)
        options_.events->opened({flow->peer.rank, flow->comm, flow->lane},
                                std::make_unique<FabricReceiver>(shared_from_this(), *flow));
    for (const auto& [rank, cause] : told.lost) options_.events->lost(rank, cause);
}

FabricEngine::News& FabricEngine::news() {
    if (!news_) news_ = std::make_unique<News>();
    return *news_;
}

// Mostly nobody else is in, and the list that threads share can be left alone.
void FabricEngine::kick(Flow& flow) {
    bool inside = owner_.try_take();
    if (inside) {
        // Alone: it need not line up.
        const bool alone =
            ready_.empty() && !ready_.added() && talking_.empty() && !busy(flow.peer);
        if (!alone || send_next(flow)) ready_.append(flow);
    } else {
        ready_.add(flow);
        inside = owner_.try_take();
    }
    if (!inside) return;
    flush();
    leave();
}

void FabricEngine::progress() {
    if (owner_.taken() || !owner_.try_take()) return;
    turn();
    leave();
}

void FabricEngine::tick() {
    progress();
    int due = marks_due_.load(std::memory_order_relaxed);
    if (due > 0) marks_due_.compare_exchange_strong(due, due - 1, std::memory_order_relaxed);
    if (due > 0 || ++ticks_ % ticks_a_mark == 0) fds_->mark();
}

void FabricEngine::woken() {
    if (!owner_.try_take()) return;  // asked again if the owner leaves anything
    armed_ = false;
    if (PortDoorbell* const bell = port_->doorbell()) bell->heard();
    turn();
    leave();
}

void FabricEngine::turn() {
    poll();
    tidy();
}

void FabricEngine::tidy() {
    if (any_condemned_.load(std::memory_order_relaxed)) [[unlikely]]
        drop_condemned();
    settle();
    flush();
}

/// What follows from the port's events.
void FabricEngine::settle_what_came() {
    // In their order, for the first says why; there may be more meanwhile.
    while (!losing_.empty())
        for (const Loss& loss : std::exchange(losing_, {}))
            lose(*loss.peer, loss.cause, true, loss.culprit);
    // What is on its way to them they do not want, and its memory is the caller's again.
    for (std::size_t i = 0; i < leaving_.size();) {
        Peer* peer = leaving_[i];
        if (peer->due != 0) {
            ++i;
            continue;
        }
        leaving_.erase(leaving_.begin() + static_cast<std::ptrdiff_t>(i));
        if (peer->state != Peer::State::gone) drop_peer(*peer);
    }
    std::size_t waiting = 0;
    // The list may grow meanwhile.
    for (std::size_t i = 0; i < to_fetch_.size(); ++i) {
        Slot* slot = to_fetch_[i];
        if (!fetch(*slot)) to_fetch_[waiting++] = slot;
    }
    to_fetch_.resize(waiting);
}

// The sleeper looks once more after this, and others are woken by what moves.
void FabricEngine::arm_port() {
    for (int turns = 0; turns < max_arm_turns; ++turns) {
        if (may_sleep(*port_)) {
            armed_ = true;
            return;
        }
        turn();
    }
    ring_event_fd(options_.doorbell_fd);
}

void FabricEngine::arm(bool on) {
    const Guard guard(*this);
    if (guard) count_sleepers(on ? 1 : -1);
}

void FabricEngine::count_sleepers(int change) {
    sleepers_ += change;
    stay_watched();
}

void FabricEngine::before_sleep() {
    const Guard guard(*this);
    if (guard) stay_watched();
}

void FabricEngine::stay_watched() {
    ignored_from_ = sleepers_ == 0 ? polls_ + polls_watched : 0;
    if (!watched_) watch(true);
}

// Where it cannot be watched nobody sleeps.
void FabricEngine::watch(bool on) {
    if (wake_fd() < 0) return;
    watched_ = options_.reactor->watch(wake_fd(), on) && on;
    if (on && !watched_) ring_event_fd(options_.doorbell_fd);
}

void FabricEngine::wake(Sleeper& sleeper) {
    if (sleeper.wants_waking()) ring_event_fd(options_.doorbell_fd);
}

/// Waits until nothing is pending, or the peer is lost for that, which it is in the end. Others
/// come in meanwhile. False: the engine was closed, and is not this thread's any more.
bool FabricEngine::wait_for(Peer& peer, const std::function<bool()>& pending, const char* failure) {
    const auto deadline = OnePatience::deadline(options_.patience_ms);
    for (int looks = 0; peer.state != Peer::State::gone && pending(); ++looks) {
        turn();
        if (deadline.passed()) {
            lose(peer, fmt::format("{} within {} ms", failure, options_.patience_ms), true);
            continue;
        }
        leave();
        if (looks < quick_looks)
            sched_yield();
        else
            ::usleep(look_again_us);
        if (!enter()) return false;
    }
    return true;
}

Result<> FabricEngine::add_memory(std::byte* data, std::size_t bytes) {
    const Guard guard(*this);
    PortMemory* const memory = port_->memory();
    return guard && memory ? memory->add_memory(data, bytes) : Result<>{};
}

void FabricEngine::remove_memory(std::byte* data, std::size_t bytes) {
    const Guard guard(*this);
    PortMemory* const memory = port_->memory();
    if (guard && memory) memory->remove_memory(data, bytes);
}

// ---- peers and flows ---------------------------------------------------------------------------

Peer& FabricEngine::peer_of(Rank rank) {
    if (peers_.empty()) count_sleepers(-1);
    auto& peer = peers_[rank];
    if (!peer) peer = std::make_unique<Peer>(rank);
    return *peer;
}

Result<> FabricEngine::connect(Peer& peer, ByteView port, uint64_t nonce) {
    if (peer.connected) return {};
    TUTTI_TRY(port_->connect(peer.rank, port));
    peer.connected = true;
    marks_due_.store(marks_a_peer, std::memory_order_relaxed);
    peer.takes_device = port_->devices() && port_->devices()->takes_device(peer.rank);
    peer.nonce = nonce;
    peer.nonce_known = true;
    return {};
}

/// A peer that knows how to answer, or soon will.
Result<Peer*> FabricEngine::reach(Rank rank, ByteView port, uint64_t nonce) {
    Peer& peer = peer_of(rank);
    if (peer.health.load(std::memory_order_relaxed) != Code::ok)
        return fail_rank(Code::peer_lost, rank, "rank {} is gone", rank);
    TUTTI_TRY(connect(peer, port, nonce));
    if (peer.state == Peer::State::unknown) {
        peer.state = Peer::State::hello;
        owe(peer, Peer::hello_due);
    }
    return &peer;
}

Flow* FabricEngine::find(Rank peer, uint32_t comm, uint16_t lane) {
    Flow*& recent = recent_[place_of(peer, comm, lane) % cached_flows];
    if (recent && recent->peer.rank == peer && recent->comm == comm && recent->lane == lane)
        return recent;
    const auto flows = flows_.find(peer);
    if (flows == flows_.end()) return nullptr;
    const auto found = flows->second.find(key_of(comm, lane));
    return found == flows->second.end() ? nullptr : recent = found->second.get();
}

Flow* FabricEngine::find_or_add(Peer& peer, uint32_t comm, uint16_t lane) {
    if (Flow* flow = find(peer.rank, comm, lane)) return flow;
    auto& flows = flows_[peer.rank];
    if (flows.size() >= max_channels_taken) return nullptr;
    Flow* const flow = (flows[key_of(comm, lane)] = std::make_unique<Flow>(peer, comm, lane)).get();
    flow->in.cells.count_in(peer.unread_bytes);
    if (FlatStream* const stream = find_stream(*flow)) add_flow(*stream, *flow);
    return flow;
}

Result<std::unique_ptr<Sender>> FabricEngine::open(const ChannelId& id, ByteView port,
                                                   uint64_t nonce) {
    const Guard guard(*this);
    if (!guard || closing_) return fail_rank(Code::aborted, id.peer, "the transport is closed");
    if (options_.retired->contains(id.comm))
        return fail_rank(Code::invalid, id.peer, "communicator {} is destroyed", id.comm);
    TUTTI_ASSIGN(Peer* const reached, reach(id.peer, port, nonce));
    Peer& peer = *reached;
    const Flow* const known = find(id.peer, id.comm, id.lane);
    const bool again = known && known->ours;
    Flow* flow =
        again || peer.opened < max_channels ? find_or_add(peer, id.comm, id.lane) : nullptr;
    if (!flow)
        return fail_rank(Code::invalid, id.peer,
                         "rank {} has {} channels on one port already: free communicators", id.peer,
                         max_channels);
    if (flow->out.open.load(std::memory_order_relaxed))
        return fail_rank(Code::invalid, id.peer, "lane {} of communicator {} to rank {} is open",
                         id.lane, id.comm, id.peer);
    flow->out.takes_device = peer.takes_device;
    flow->out.open.store(true, std::memory_order_relaxed);
    peer.opened += std::exchange(flow->ours, true) ? 0 : 1;
    flow->open_due = true;
    ready_.append(*flow);
    flush();
    return std::make_unique<FabricSender>(shared_from_this(), *flow);
}

// A channel may be opened again as long as its communicator lives.
void FabricEngine::half_closed(Flow& flow) {
    if (!flow.out.open.load(std::memory_order_relaxed) && !flow.in.live &&
        options_.retired->contains(flow.comm))
        forgotten_.push_back(&flow);
}

void FabricEngine::close_sender(Flow& flow) {
    const Guard guard(*this);
    if (!guard) return;
    flow.out.open.store(false, std::memory_order_relaxed);
    half_closed(flow);
}

// What is left unread is dropped, here and when more comes, so that the sender gets its credits.
void FabricEngine::close_receiver(Flow& flow) {
    const Guard guard(*this);
    if (!guard) return;
    flow.in.live = false;
    for (Slot& slot : flow.in.slots)
        if (slot.state.load(std::memory_order_relaxed) == SlotState::announced) finish(slot);
    drop(flow.in);
    if (flow.in.credits_due()) {
        ready_.append(flow);
        flush();
    }
    half_closed(flow);
}

/// Whether a flow without halves has something to send, or a message that is arriving.
bool FabricEngine::in_use(const Flow& flow) const {
    if (flow.ready.load(std::memory_order_relaxed)) return true;
    for (const Slot& slot : flow.in.slots) {
        const bool queued = std::find(to_fetch_.begin(), to_fetch_.end(), &slot) != to_fetch_.end();
        if (slot.begun || queued) return true;
    }
    // The library has nothing of a peer that is gone.
    return health(flow) == Code::ok && flow.out.sent.load(std::memory_order_relaxed) !=
                                           flow.out.pushed.load(std::memory_order_relaxed);
}

void FabricEngine::forget_flows() {
    std::erase_if(forgotten_, [this](Flow* flow) {
        if (in_use(*flow)) return false;
        forget(*flow);
        return true;
    });
}

void FabricEngine::forget(Flow& flow) {
    for (Slot& slot : flow.in.slots)
        if (slot.hold) port_->release(std::exchange(slot.hold, nullptr));
    if (FlatStream* const stream = flow.flat) std::erase(stream->flows, &flow);
    std::replace(recent_.begin(), recent_.end(), &flow, static_cast<Flow*>(nullptr));
    flow.peer.opened -= flow.ours ? 1 : 0;
    flows_[flow.peer.rank].erase(key_of(flow.comm, flow.lane));
}

// ---- the end ---------------------------------------------------------------------------------

void FabricEngine::break_rules(Peer& peer, const std::string& cause) {
    losing_.push_back({&peer, "protocol error: " + cause, Culprit::peer});
}

void FabricEngine::reject(Peer& peer, const std::string& cause) {
    const Guard guard(*this);
    if (guard) break_rules(peer, cause);
}

void FabricEngine::lose(Peer& peer, const std::string& cause, bool is_news, Culprit culprit) {
    if (peer.state == Peer::State::gone) return;
    const bool expected = peer.bye_received || closing_ || !is_news;
    drop_peer(peer);
    if (expected) return;
    if (culprit == Culprit::own)
        news().lost.emplace_back(options_.rank, fmt::format("rank {} cannot go on with rank {}: {}",
                                                            options_.rank, peer.rank, cause));
    else
        news().lost.emplace_back(peer.rank, fmt::format("rank {}: {}", peer.rank, cause));
}

void FabricEngine::mark_failed(Rank peer) {
    {
        const std::lock_guard lock(condemned_mutex_);
        condemned_.emplace_back(peer, now_ns() + last_words_ns);
        any_condemned_.store(true, std::memory_order_relaxed);
    }
    progress();
}

// No news: whoever said so has told everyone.
void FabricEngine::drop_condemned() {
    std::vector<Rank> condemned;
    {
        const std::lock_guard lock(condemned_mutex_);
        std::erase_if(condemned_, [&, now = now_ns()](const auto& one) {
            if (now < one.second) return false;
            condemned.push_back(one.first);
            return true;
        });
        any_condemned_.store(!condemned_.empty(), std::memory_order_relaxed);
    }
    for (const Rank rank : condemned)
        if (const auto peer = peers_.find(rank); peer != peers_.end())
            lose(*peer->second, "its process ended", false);
}

// What is pending gets its events first: once channels hear that the peer is lost, nothing touches
// their memory.
void FabricEngine::drop_peer(Peer& peer) {
    peer.state = Peer::State::gone;
    peer.due = 0;
    port_->disconnect(peer.rank);
    peer.health.store(Code::peer_lost, std::memory_order_seq_cst);
    ring_event_fd(options_.doorbell_fd);
}

/// A peer that said bye is gone when all it sent is here; then it may go.
void FabricEngine::leave_if_done(Peer& peer) {
    if (!peer.bye_received || peer.received != peer.last || peer.leaving) return;
    bool complete = true;
    for (auto& [key, flow] : flows_[peer.rank])
        for (const Slot& slot : flow->in.slots) {
            const SlotState state = slot.state.load(std::memory_order_relaxed);
            complete &= state != SlotState::fetching && state != SlotState::announced;
        }
    if (!complete) return;
    peer.leaving = true;
    owe(peer, Peer::farewell_due);
    leaving_.push_back(&peer);
}

void FabricEngine::begin_close(Deadline deadline) {
    if (!enter()) return;
    closing_ = true;
    while (delivering_.load(std::memory_order_seq_cst) > 0 && !deadline.passed()) sched_yield();
}

bool FabricEngine::close_step() {
    turn();
    news_.reset();
    bool done = true;
    for (auto& [rank, peer] : peers_) {
        const bool talks = peer->state == Peer::State::hello || peer->state == Peer::State::ready;
        if (!talks) continue;
        bool sent = true;
        for (auto& [key, flow] : flows_[rank])
            sent &= flow->out.sent.load(std::memory_order_relaxed) ==
                    flow->out.pushed.load(std::memory_order_relaxed);
        if (peer->state == Peer::State::hello) {
            done &= sent;
            continue;
        }
        if (!peer->bye_received && sent && !peer->bye_sent) {
            peer->bye_sent = true;
            owe(*peer, Peer::bye_due);
        }
        const bool heard = peer->bye_received || peer->farewell_received;
        done &= peer->due == 0 && (heard || (peer->bye_sent && peer->farewell_received));
    }
    flush();
    return done;
}

void FabricEngine::end_close(Deadline deadline) {
    port_->flush(deadline);
    // Letting go of one may bring the first word of another.
    std::vector<Peer*> peers;
    for (auto& [rank, peer] : peers_) peers.push_back(peer.get());
    for (Peer* peer : peers)
        if (peer->state != Peer::State::gone) drop_peer(*peer);
    settle();
    closed_.store(true, std::memory_order_seq_cst);
}

}  // namespace tutti::fabric
