// One simulated process: the parts of the endpoint that do no I/O, its communicators, and its
// program.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "config/config.h"
#include "control/group.h"
#include "job/assembly.h"
#include "job/client_table.h"
#include "job/connecting/detours.h"
#include "job/control_router.h"
#include "simulation/network.h"
#include "simulation/scenario.h"

namespace simulation {

class Program;
class SimComm;
class World;

/// It has two "threads": the service thread handles events of the network, and the program's runs
/// its turns. Both stand still while the process is stopped. With manual progress the service
/// events wait for the program's next call.
class SimRank {
public:
    using Action = std::function<void()>;

    SimRank(World& world, Rank rank);
    ~SimRank();
    SimRank(const SimRank&) = delete;

    // The world's.
    void start();
    void kill(int64_t teardown_ns);
    void stop(int64_t for_ns);
    bool is_dead() const { return state_ == State::dead; }
    /// Neither dead nor ended in order.
    bool is_alive() const { return state_ != State::dead && state_ != State::ended; }
    bool is_leaving() const { return state_ == State::leaving; }
    Rank number() const { return rank_; }
    /// When it has begun to leave.
    int64_t left_ns() const { return left_ns_; }
    /// The number of communicators that the program has not destroyed.
    std::size_t open_comms() const;

    // The network's.
    bool listens() const { return listens_; }
    /// When the sockets of a process that ends are closed.
    int64_t closes_at() const { return closes_at_; }
    void when_closed(Action action) { when_closed_.push_back(std::move(action)); }
    /// Runs an action on the service thread: now, or once the process runs again.
    void serve(Action action);
    /// The same on the program's thread.
    void run(Action action);
    SimLinks& links() { return links_; }
    void accepted(Rank peer, ControlLinks::LinkKind kind) { router_.link_accepted(peer, kind); }
    void received(Rank from, const Bytes& message) { router_.handle_message(from, message); }
    void link_closed(Rank peer, ControlLinks::LinkKind kind);
    void data_peer_lost(Rank peer);
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver);
    /// The program's thread looks again, a little later.
    void turn_soon();

    // The communicators' and the program's.
    World& world() { return world_; }
    ClientTable& clients() { return clients_; }
    ControlRouter& router() { return router_; }
    const Config& config() const { return config_; }
    SimComm& make_comm(Group group);
    /// The program ends.
    void destroy_all();
    /// The program is about to end although it has not made all its calls.
    void leave_early();
    /// With manual progress service events run only inside a call.
    void enter_call();
    void leave_call() { in_call_ = false; }
    void leave();
    Program& program() { return *program_; }

private:
    enum class State : uint8_t { new_, joining, running, leaving, ended, dead };
    enum class Leaving : uint8_t { detours, farewells };
    void connect_parent();
    void join_turn();
    void join_failed(const Error& error);
    void open_detours();
    void dialled(Rank to, Dialled how);
    void leave_turn();
    void close(int64_t delay_ns);
    void turn();
    void tick();
    void arm_heartbeat(int64_t due_ns);
    void pulse();
    void run_held();

    World& world_;
    const Rank rank_;
    State state_ = State::new_;
    Config config_;
    std::atomic<bool> leaving_{false};
    SimLinks links_;
    Assembly assembly_;
    ClientTable clients_;
    Detours detours_;
    Heartbeat heartbeat_;
    ControlRouter router_;
    std::vector<std::unique_ptr<SimComm>> comms_;
    std::unique_ptr<Program> program_;

    bool listens_ = false, stopped_ = false, in_call_ = true;
    bool linking_ = false, turn_due_ = false, detours_due_ = false;
    int64_t heartbeat_due_ns_ = 0;
    int64_t closes_at_ = 0, left_ns_ = 0, began_ns_ = 0, phase_until_ns_ = 0;
    bool failed_ = false;
    Leaving phase_ = Leaving::detours;
    struct Held {
        bool service;
        Action action;
    };
    std::vector<Held> held_;
    std::vector<Action> when_closed_;
    std::shared_ptr<Attempt> dialling_;
};

}  // namespace simulation
