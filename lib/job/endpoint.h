// This process's presence in a job as one rank: store, control tree, transports and the thread that
// serves them. Communicators share it.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "config/config.h"
#include "control/control_message.h"
#include "control/control_tree.h"
#include "control/group.h"
#include "job/assembly.h"
#include "job/channel_opener.h"
#include "job/client_table.h"
#include "job/connecting/connector.h"
#include "job/connecting/detour_dialer.h"
#include "job/connecting/detours.h"
#include "job/connecting/transport_set.h"
#include "job/control_listener.h"
#include "job/control_router.h"
#include "job/departure.h"
#include "job/endpoint_client.h"
#include "job/heartbeat.h"
#include "job/job_stores.h"
#include "job/joiner.h"
#include "job/records/peer_directory.h"
#include "job/service_thread.h"
#include "rendezvous/store.h"
#include "select/tuning.h"
#include "wait/reactor_timer.h"
#include "wait/wakeups.h"

namespace tutti {

/// Owns the parts that its communicators share, and puts them together. Lock order: the client
/// table's lock, then any one lock of another part; of these, the channel opener's before the
/// detours'.
class Endpoint final : private ChannelSink {
public:
    /// Joins the job: returns when all ranks are there. A store of the host program's own replaces
    /// config.store. generation: job_stores::next_generation().
    static Result<std::shared_ptr<Endpoint>> join(const Config& config,
                                                  const std::string& generation,
                                                  std::shared_ptr<Store> own_store);
    ~Endpoint() override;

    const Config& config() const { return config_; }
    bool manual() const { return wakeups_.manual(); }

    // The ranks have agreed on this, or know it of each other.
    bool one_host() const { return assembly_.one_host(); }
    /// True if this machine has more ranks than cores that they may use.
    bool oversubscribed() const { return assembly_.oversubscribed(); }
    /// Ranks per core on the fullest machine, at least 1: the same on all ranks.
    double crowding() const { return std::max(1.0, assembly_.crowding()); }
    /// The cost model's constants that were measured at start-up, for the wire that they were
    /// measured on; nullptr for others.
    const Constants* fitted(std::string_view wire) const {
        return wire == fitted_wire_ ? &fitted_ : nullptr;
    }
    void keep_fitted(std::string wire, const Constants& constants) {
        fitted_wire_ = std::move(wire);
        fitted_ = constants;
    }
    /// The tuning file's, the same on all ranks.
    const Tuning& tuning() const { return joined_.tuning; }
    /// Numbers of this rank's host, of its machine, whatever host id the settings give it, and of
    /// the job among the jobs in which this process has ranks.
    struct Hashes {
        uint64_t host, machine, job;
    };
    Hashes hashes() const {
        return {hash_of(identity_.host), hash_of(identity_.machine), job_hash_};
    }
    /// The first communicator id that is free as far as this rank knows.
    uint32_t first_free_id() const { return next_id_; }
    /// Communicator ids from here on are hashes; those below are counted.
    static constexpr uint32_t first_hashed_id = 0x8000'0000;
    /// Takes `count` ids from `first` on, or one hashed id. False: another thread has taken some of
    /// them meanwhile.
    bool claim_ids(uint32_t first, uint32_t count);

    using Intrinsics = JoinedIntrinsics;
    /// The job's intrinsics, if every rank could join them. Called once.
    Intrinsics take_intrinsics() { return std::move(joined_.intrinsics); }
    /// The intrinsics of a smaller communicator, of one host or several
    /// (Connector::join_intrinsics).
    Intrinsics join_intrinsics(const Group& group, bool one_host, Deadline deadline) const {
        return connector_.join_intrinsics(group, one_host, deadline);
    }
    /// Looks up the records of the neighbours in the group's own tree that have not come from the
    /// control tree.
    void look_up_neighbours(const Group& group, Deadline deadline);

    void add(uint32_t comm, EndpointClient* client);
    /// Afterwards the client is not called any more; last_words answers for it. True if it was the
    /// last one. False, too, if a client is still being called at the deadline.
    bool remove(uint32_t comm, LastWords last_words, Deadline deadline);

    /// The sending half towards a peer over the first transport that reaches it.
    Result<Opened> open(const ChannelId& id, Deadline deadline);
    /// For a caller that cannot wait: tells the communicator when the channel is open. Any thread
    /// may call this.
    void open_later(const ChannelId& id) { opener_.add(id); }
    /// Sends to any rank of the job, along the control tree or around a gone rank of it.
    void send_control(Rank to, const ControlMessage& message) { router_.send(to, message); }

    /// nullptr in a job of one rank that was given none.
    std::shared_ptr<Store> store() const { return directory_.shared_store(); }
    /// It is the host program's own.
    bool has_program_store() const { return host_programs_store_; }
    const TransportSet& transports() const { return transports_; }
    Wakeups& wakeups() { return wakeups_; }
    /// Calls of the parts: serve the control plane, drive the communicators, announce a sleep.
    void pump() { service_.pump(); }
    bool serve_clients(bool& moved) { return clients_.drive(moved); }
    bool arm_clients(bool on) { return clients_.arm(on); }

    /// Leaving will not wait for that rank: it is lost, or does not answer.
    void stop_waiting_for(Rank rank) { router_.stop_waiting_for(rank); }
    /// Leaves in order; bounded by the deadline.
    void leave(Deadline deadline);
    /// The same when the process ends: threads of the program may be inside, so nothing is freed,
    /// and a host program's store is not called any more.
    void leave_at_exit(Deadline deadline);

private:
    Endpoint(const Config& config, const std::string& generation, bool host_programs_store);

    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override;
    void peer_lost(Rank peer, const std::string& cause) override;

    const Config config_;
    const HostIdentity identity_;
    const uint64_t job_hash_;
    const bool host_programs_store_;
    std::string fitted_wire_;
    Constants fitted_{};
    std::atomic<uint32_t> next_id_{1};
    std::atomic<bool> leaving_{false};

    // Each part uses the parts declared before it.
    PeerDirectory directory_;
    Wakeups wakeups_;
    ControlTree control_;
    Assembly assembly_;
    TransportSet transports_;
    Joiner::Joined joined_;
    const Connector connector_;
    ClientTable clients_;
    Detours detours_;
    DetourDialer dialer_;
    Heartbeat heartbeat_;
    ReactorTimer heartbeat_timer_;
    ControlRouter router_;
    ControlListener listener_;
    ChannelOpener opener_;
    ServiceThread service_;
    BeatThread beats_;
    Departure departure_;
};

}  // namespace tutti
