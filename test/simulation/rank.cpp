#include "simulation/rank.h"

#include <algorithm>
#include <utility>

#include "control/tree.h"
#include "simulation/channels.h"
#include "simulation/comm.h"
#include "simulation/program.h"
#include "simulation/world.h"

namespace simulation {
namespace {

using LinkKind = ControlLinks::LinkKind;

constexpr int64_t tick_ns = 10 * ms;               // between a waiting thread's looks at its clocks
constexpr int64_t detour_patience_ns = 1000 * ms;  // as DetourDialer
constexpr int64_t join_again_ns = 1 * ms;
// As Departure.
constexpr int64_t last_detours_ns = 1000 * ms, failed_news_ns = 30 * ms;
constexpr int64_t farewell_ns = 200 * ms, failed_farewell_ns = 30 * ms;

}  // namespace

SimRank::SimRank(World& world, Rank rank)
    : world_(world),
      rank_(rank),
      config_([&] {
          Config config;
          config.rank = rank;
          config.size = world.scenario().size;
          config.nrings = 1;
          config.timeout_ms = world.scenario().timeout_ms;
          return config;
      }()),
      links_(world, rank),
      assembly_(links_),
      detours_([this] {
          if (std::exchange(detours_due_, true)) return;
          world_.after(world_.random().spread(1 * us, 20 * us), [this] {
              serve([this] {
                  detours_due_ = false;
                  open_detours();
              });
          });
      }),
      heartbeat_(world.scenario().manual ? 0 : world.scenario().heartbeat_ms),
      router_(rank, world.scenario().size,
              {links_, assembly_, detours_, clients_, [](Rank) {}, leaving_, heartbeat_,
               [this](int64_t due_ns) { arm_heartbeat(due_ns); }}) {}

SimRank::~SimRank() = default;

// ---- threads ---------------------------------------------------------------------------------

void SimRank::serve(Action action) {
    if (!is_alive()) return;
    if (stopped_ || (config_.progress == ProgressMode::manual && !in_call_)) {
        held_.push_back({true, std::move(action)});
        return;
    }
    action();
    if (is_alive()) turn_soon();
}

void SimRank::run(Action action) {
    if (!is_alive()) return;
    if (stopped_)
        held_.push_back({false, std::move(action)});
    else
        action();
}

void SimRank::run_held() {
    for (Held& held : std::exchange(held_, {}))
        held.service ? serve(std::move(held.action)) : run(std::move(held.action));
}

void SimRank::enter_call() {
    if (std::exchange(in_call_, true) || config_.progress != ProgressMode::manual) return;
    run_held();
}

void SimRank::stop(int64_t for_ns) {
    if (!is_alive() || stopped_) return;
    world_.note("rank {} stops for {} us", rank_, for_ns / us);
    world_.checks().stopped(rank_, for_ns);
    stopped_ = true;
    world_.after(for_ns, [this] {
        stopped_ = false;
        if (!is_alive()) return;
        world_.note("rank {} goes on", rank_);
        run_held();
        turn_soon();
    });
}

void SimRank::turn_soon() {
    if (std::exchange(turn_due_, true)) return;
    world_.after(world_.random().spread(100, 20 * us), [this] {
        run([this] {
            turn_due_ = false;
            turn();
        });
    });
}

void SimRank::turn() {
    switch (state_) {
        case State::joining:
            return join_turn();
        case State::running:
            return program_->turn();
        case State::leaving:
            return leave_turn();
        default:
            return;
    }
}

void SimRank::tick() {
    if (!is_alive()) return;
    world_.after(tick_ns, [this] { run([this] { tick(); }); });
    if (state_ == State::running) program_->check_clocks();
    turn();
}

// As ReactorTimer.
void SimRank::arm_heartbeat(int64_t due_ns) {
    heartbeat_due_ns_ = due_ns;
    world_.at(due_ns, [this, due_ns] {
        serve([this, due_ns] {
            if (due_ns == heartbeat_due_ns_) pulse();
        });
    });
}

void SimRank::pulse() {
    router_.pulse(rank_ == 0 && assembly_.complete());
}

// ---- joining ---------------------------------------------------------------------------------

void SimRank::start() {
    if (!is_alive()) return;
    const Scenario& s = world_.scenario();
    state_ = State::joining;
    listens_ = true;
    began_ns_ = world_.now();
    Bootstrap::Self self;
    self.rank = rank_;
    self.size = s.size;
    self.host_id = self.machine_id = fmt::format("host {}", world_.host_of(rank_));
    self.transports.push_back({.max_message_bytes = Pipe::max_message_bytes});
    self.record = fmt::format("the record of rank {}", rank_);
    assembly_.begin(std::move(self));
    pulse();
    if (rank_ != 0) connect_parent();
    world_.after(world_.random().between<int64_t>(0, tick_ns), [this] { run([this] { tick(); }); });
    turn_soon();
}

void SimRank::connect_parent() {
    const Rank parent = tree_parent(rank_);
    world_.network().dial(
        rank_, parent, LinkKind::branch, config_.timeout_ms * ms, [this, parent](Dialled how) {
            if (how == Dialled::connected) return assembly_.parent_connected(true);
            if (!world_.rank(parent).is_alive())
                return join_failed(
                    fail_rank(Code::peer_lost, parent, "rank {} has ended", parent).value());
            world_.after(join_again_ns, [this] {
                run([this] {
                    if (state_ == State::joining) connect_parent();
                });
            });
        });
}

void SimRank::join_turn() {
    switch (assembly_.state()) {
        case Bootstrap::State::link:
            if (std::exchange(linking_, true)) return;
            world_.after(world_.random().spread(1 * us, 1 * ms),
                         [this] { run([this] { assembly_.linked(true); }); });
            return;
        case Bootstrap::State::done: {
            state_ = State::running;
            if (world_.scenario().manual) config_.progress = ProgressMode::manual;
            world_.note("rank {} has joined", rank_);
            SimComm& whole = make_comm(Group(rank_, world_.scenario().size));
            program_ = std::make_unique<Program>(*this, whole);
            if (rank_ == 0) pulse();
            return turn_soon();
        }
        case Bootstrap::State::failed:
            return join_failed(assembly_.error());
        default:
            if (world_.now() - began_ns_ > config_.timeout_ms * ms)
                join_failed(fail(Code::timeout, "rank {} could not join in time", rank_).value());
    }
}

void SimRank::join_failed(const Error& error) {
    if (state_ != State::joining) return;
    world_.note("rank {} could not join: {}", rank_, error.message);
    world_.checks().verdicts().killed(rank_);
    assembly_.fail(error);
    leave();
}

// ---- control plane ---------------------------------------------------------------------------

void SimRank::link_closed(Rank peer, LinkKind kind) {
    world_.note("rank {} sees the end of a link to rank {}", rank_, peer);
    router_.link_closed(peer, kind, "the connection was closed");
}

void SimRank::data_peer_lost(Rank peer) {
    for (const auto& comm : comms_) comm->close_channels(peer);
    if (!leaving_) router_.mark_lost(peer, "its data connection was closed");
}

void SimRank::open_detours() {
    while (!dialling_ && !leaving_) {
        const Rank to = detours_.next();
        if (to == nobody) return;
        if (router_.is_gone(to)) {
            router_.cut_off(to, fail_rank(Code::peer_lost, to, "rank {} is gone", to).value());
            continue;
        }
        const int64_t patience_ns =
            heartbeat_.is_beating() ? heartbeat_.period_ms() * ms : detour_patience_ns;
        dialling_ = world_.network().dial(rank_, to, LinkKind::detour, patience_ns,
                                          [this, to](Dialled how) { dialled(to, how); });
    }
}

void SimRank::dialled(Rank to, Dialled how) {
    dialling_ = nullptr;
    world_.note("rank {} has dialled rank {}: {}", rank_, to, static_cast<int>(how));
    if (how == Dialled::connected) {
        router_.link_dialled(to);
        detours_.opened(to, links_);
    } else {
        const Code code = how == Dialled::refused ? Code::peer_lost : Code::timeout;
        router_.cut_off(to, fail_rank(code, to, "rank {} could not be reached", to).value());
    }
    open_detours();
}

void SimRank::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    clients_.opened(id, std::move(receiver));
}

// ---- communicators ---------------------------------------------------------------------------

SimComm& SimRank::make_comm(Group group) {
    SimComm& comm = *comms_.emplace_back(std::make_unique<SimComm>(*this, std::move(group)));
    const auto lock = clients_.hold();
    clients_.add(comm.id(), &comm);
    router_.replay_losses(comm);
    return comm;
}

void SimRank::destroy_all() {
    bool last = false;
    for (const auto& comm : comms_) last |= comm->destroy();
    if (last) leave();
}

void SimRank::leave_early() {
    for (const auto& comm : comms_)
        if (!comm->is_destroyed() && !comm->failures().fatal_error())
            world_.checks().verdicts().left_early(rank_, comm->id());
}

std::size_t SimRank::open_comms() const {
    return static_cast<std::size_t>(std::count_if(
        comms_.begin(), comms_.end(), [](const auto& comm) { return !comm->is_destroyed(); }));
}

// ---- the end ---------------------------------------------------------------------------------

void SimRank::leave() {
    if (state_ == State::leaving || !is_alive()) return;
    world_.note("rank {} leaves", rank_);
    state_ = State::leaving;
    left_ns_ = world_.now();
    phase_ = Leaving::detours;
    enter_call();
    failed_ = router_.drop_links_not_waited_for();
    phase_until_ns_ = world_.now() + (failed_ ? failed_news_ns : last_detours_ns);
    turn_soon();
}

void SimRank::leave_turn() {
    const bool late = world_.now() >= phase_until_ns_;
    if (phase_ == Leaving::detours) {
        if (detours_.next() != nobody && !late) return;
        leaving_ = true;
        if (dialling_) world_.network().abandon(dialling_);
        if (!assembly_.complete()) return close(0);
        links_.flood_last(TreeMessage{.topic = TreeMessage::Topic::leaving}.encode());
        phase_ = Leaving::farewells;
        phase_until_ns_ = world_.now() + (failed_ ? failed_farewell_ns : farewell_ns);
        return turn_soon();
    }
    if (links_.finished() || late) close(0);
}

void SimRank::close(int64_t delay_ns) {
    if (state_ != State::dead) state_ = State::ended;
    listens_ = false;
    closes_at_ = world_.now() + delay_ns;
    held_.clear();
    links_.close_all(delay_ns, state_ == State::dead);
    world_.after(delay_ns, [this] {
        for (const Action& action : std::exchange(when_closed_, {})) action();
    });
}

// A killed process's sockets close some time later, once its memory has been freed.
void SimRank::kill(int64_t teardown_ns) {
    if (!is_alive()) return;
    world_.note("rank {} is killed; its sockets close in {} us", rank_, teardown_ns / us);
    state_ = State::dead;
    world_.network().lose_channels_of(rank_);
    for (const Rank peer : world_.network().data_peers(rank_)) {
        Direction alone;
        const int64_t at = world_.network().arrival(rank_, peer, alone) + teardown_ns;
        world_.at(at, [this, peer] {
            world_.rank(peer).serve([this, peer] { world_.rank(peer).data_peer_lost(rank_); });
        });
    }
    close(teardown_ns);
}

}  // namespace simulation
