// This process's presence in a job as one rank: store, control tree, transports and the thread that
// serves them. Communicators share it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "config/config.h"
#include "control/bootstrap.h"
#include "control/control_tree.h"
#include "control/group.h"
#include "control/news.h"
#include "control/tree_message.h"
#include "job/client_table.h"
#include "job/connector.h"
#include "job/job_stores.h"
#include "job/records/failure_notice.h"
#include "job/records/join_watch.h"
#include "job/records/peer_directory.h"
#include "job/transport_set.h"
#include "net/acceptor.h"
#include "os/thread.h"
#include "rendezvous/store.h"
#include "select/tuning.h"
#include "transport/transport.h"
#include "wait/wakeups.h"

namespace tutti {

class Endpoint final : private ChannelSink {
public:
    static std::string next_generation(const Config& config, const Store* own_store) {
        return job_stores::next_generation(config, own_store);
    }
    /// Joins the job: returns when all ranks are there. A store of the host program's own replaces
    /// config.store.
    static Result<std::shared_ptr<Endpoint>> join(const Config& config,
                                                  const std::string& generation,
                                                  std::shared_ptr<Store> own_store);
    ~Endpoint() override;

    const Config& config() const { return config_; }
    bool one_host() const { return bootstrap_->one_host(); }
    /// Whether this machine has more ranks than cores that they may use.
    bool oversubscribed() const;
    /// Ranks per core on the fullest machine, at least 1: the same on all ranks.
    double crowding() const { return std::max(1.0, bootstrap_->crowding()); }
    Capabilities capabilities(std::size_t transport) const {
        return transports_.capabilities(transport);
    }
    bool takes_devices() const { return transports_.takes_devices(); }
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
    const Tuning& tuning() const { return tuning_; }
    bool manual() const { return config_.progress == Progress::manual; }
    using Intrinsics = JoinedIntrinsics;
    /// The job's, if every rank could join them. Only once.
    Intrinsics take_intrinsics() { return std::move(intrinsics_); }
    /// A smaller communicator's, of one host or several: nothing if this rank cannot join. Then
    /// none may use them.
    Intrinsics join_intrinsics(const Group& group, bool one_host, Deadline deadline) const {
        return connector_.join_intrinsics(group, one_host, deadline);
    }
    /// What counts as this rank's host, as a number.
    uint64_t host_hash() const { return hash_of(host_id_); }
    /// The machine, whatever host it acts as.
    uint64_t machine_hash() const { return hash_of(machine_id_); }
    /// The job, among those that this process has ranks of.
    uint64_t job_hash() const { return job_hash_; }
    /// Ids of communicators from here on are free, as far as this rank knows.
    uint32_t first_free_id() const { return next_id_; }
    /// Takes so many from `first` on, unless another thread has taken some of these meanwhile.
    bool claim_ids(uint32_t first, uint32_t count);
    std::span<const std::unique_ptr<Transport>> transports() const { return transports_.all(); }

    void add(uint32_t comm, EndpointClient* client);
    /// Afterwards the client is not called any more. True if it was the last one. False, too, if a
    /// client is still being called at the deadline.
    bool remove(uint32_t comm, Deadline deadline);

    /// The sending half towards a peer over the first transport that reaches it.
    Result<Opened> open(const ChannelId& id, Deadline deadline);
    /// For who cannot wait: the communicator is told when it is open. From any thread.
    void open_later(const ChannelId& id);
    /// To any rank of the job, along the control tree, or past a rank of it that is gone. Its
    /// record must have been looked up for that, if the store may be gone, too.
    void send_control(Rank to, const News& news);
    /// Looks up where the neighbours in the group's own tree are.
    void meet_neighbours(const Group& group, Deadline deadline);

    void progress() const { transports_.progress(); }
    void before_sleep() const { transports_.before_sleep(); }
    /// Serves the control plane if no thread does. For loops that wait.
    void pump();
    Wakeups& wakeups() { return wakeups_; }
    void sleep(int timeout_ms, uint64_t since) { wakeups_.sleep(timeout_ms, since); }
    int look_ms() const { return wakeups_.look_ms(); }
    uint64_t rounds() const { return wakeups_.rounds(); }
    void watch(int change) { wakeups_.watch(change); }
    void ring() { wakeups_.ring(); }
    void kick() { wakeups_.kick(); }
    void issued() { wakeups_.issued(); }
    void claimed() { wakeups_.claimed(); }
    void count_waiters(int change) { wakeups_.count_waiters(change); }
    void returns() { wakeups_.returns(); }
    int wait_fd() const { return wakeups_.wait_fd(); }
    /// Drives what no thread waits for, on all communicators. False: nothing is under way there.
    bool serve_clients(bool& moved) { return clients_.drive(moved); }
    /// Before and after a sleep. False: look once more.
    bool arm_clients(bool on) { return clients_.arm(on); }

    /// Leaving will not wait for that rank: it is lost, or does not answer.
    void give_up_on(Rank rank);
    /// Leaves in order; bounded by the deadline.
    void leave(Deadline deadline);
    /// The same when the process ends: threads of the program may be inside, so nothing is freed,
    /// and a host program's store is not called any more.
    void leave_at_exit(Deadline deadline);
    static void close_stores() { job_stores::close_kept(); }

private:
    Endpoint(const Config& config, const std::string& generation);
    Result<> set_up(std::shared_ptr<Store> own_store);
    Result<> check_settings() const;
    Result<> enter_store(std::shared_ptr<Store> own_store, Deadline deadline);
    Result<> prepare();
    Result<std::string> own_address() const;
    void close_listeners();
    std::optional<Error> trouble() { return watch_.trouble(parent_there_, now_ns()); }
    Bootstrap::Self introduction(bool tuned) const;
    TransportContext transport_context();
    Result<> listen_control();
    Result<> publish();
    Result<PeerRecord> parent_record(const std::optional<Error>& earlier);
    Result<> connect_parent();
    std::optional<Error> published_failure() const;
    Result<> assemble();
    bool join_job_intrinsics();
    /// What is to be opened next: a channel, or else a way to a rank.
    struct Wanted {
        std::optional<ChannelId> channel;
        Rank detour = nobody;
    };
    std::optional<Wanted> next_wanted();
    void open_wanted();
    void open_channel(const ChannelId& id);
    void open_detour(Rank to);
    Result<UniqueFd> connect_control(Rank to, Deadline deadline);
    void meet_ring();
    template <typename Done>
    bool wait_until(Done done);

    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override;
    void peer_lost(Rank peer, const std::string& cause) override;
    void take_connection(UniqueFd fd, ByteView hello);
    Error version_error(const ControlTree::Hello& hello) const;
    void control_message(Rank from, ByteView bytes);
    void take_news(const TreeMessage& message);
    void take_returned(const TreeMessage& message);
    bool pass_on(Rank to, ByteView message);
    void send_via_detour(Rank to, Bytes message);
    bool say_goodbye(Deadline deadline);
    void finish_detours(Deadline deadline);
    bool stop_serving(Deadline deadline);
    void take_leave(Deadline deadline, bool failed);
    bool drop_given_up();
    void announce_loss(Rank peer, const std::string& cause, Rank except);
    bool in_job(Rank rank) const { return rank >= 0 && rank < config_.size; }
    Rank next_hop(Rank to) const;
    void lose(Rank peer, const std::string& cause, Rank except);
    void control_closed(Rank peer, ControlTree::LinkKind kind, const std::string& cause);
    bool is_gone(Rank peer) const;
    void cut_off(Rank peer, const Error& why);
    void tell_next(Rank lost);
    void bootstrap_step(const std::function<void()>& step);
    void serve();

    const Config config_;
    std::string host_id_, machine_id_;
    std::string usual_address_;  // of this machine, where the settings name none; may be empty
    Tuning tuning_;
    std::string fitted_wire_;
    Constants fitted_{};
    const uint64_t job_hash_;
    PeerDirectory directory_;
    const FailureNotice notice_;
    JoinWatch watch_;
    Deadline deadline_;      // of joining
    bool may_tell_ = false;  // the others of what goes wrong
    bool host_programs_store_ = false;

    Wakeups wakeups_;
    ControlTree control_;
    std::unique_ptr<net::Acceptor> acceptor_;
    std::string control_address_;
    TransportSet transports_;
    const Connector connector_;
    Intrinsics intrinsics_;
    std::atomic<uint32_t> next_id_{1};

    std::mutex mutex_;  // of what follows, to serving_
    std::condition_variable changed_;
    std::unique_ptr<Bootstrap> bootstrap_;
    std::atomic<bool> start_failed_{false};  // as bootstrap_ says: for waits without the mutex
    bool parent_there_ = false;              // connected; children may be earlier
    std::deque<ChannelId> wanted_;           // to be opened by whoever serves the reactor
    /// Messages that wait for a connection past a rank that is gone, by whom they are for.
    std::map<Rank, std::vector<Bytes>> detours_;
    std::set<Rank> cut_off_;            // there was no way to them
    Deadline detours_end_;              // of all together, once this rank leaves
    bool opening_ = false;              // one of those that were wanted
    bool serving_ = false;              // the service thread has not ended
    ClientTable clients_;               // its lock is taken before mutex_, and guards what follows
    std::map<Rank, std::string> lost_;  // gone, and why
    std::set<Rank> left_;               // said that they would go
    std::set<Rank> unreachable_;        // nothing listens at their address any more
    std::map<Rank, int> ended_detours_;
    Rank ring_next_ = nobody;  // has been told of all that are lost
    std::set<Rank> given_up_;

    std::atomic<bool> stop_{false}, leaving_{false};
    Thread thread_;
};

}  // namespace tutti
