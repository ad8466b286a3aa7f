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
#include "job/records/claim_watch.h"
#include "job/records/peer_record.h"
#include "net/acceptor.h"
#include "os/thread.h"
#include "rendezvous/store.h"
#include "select/tuning.h"
#include "transport/transport.h"
#include "wait/wakeups.h"

namespace tutti {

class Endpoint final : private ChannelSink {
public:
    /// What tells apart the jobs that a process joins one after the other in the same store. Taken
    /// before anything can fail: an attempt counts on every rank, however far it comes, so that the
    /// next one is the same everywhere.
    static std::string next_generation(const Config& config, const Store* own_store);
    /// Joins the job: returns when all ranks are there. A store of the host program's own replaces
    /// config.store.
    static Result<std::shared_ptr<Endpoint>> join(const Config& config, std::string generation,
                                                  std::shared_ptr<Store> own_store);
    ~Endpoint() override;

    const Config& config() const { return config_; }
    bool one_host() const { return bootstrap_->one_host(); }
    /// Whether this machine has more ranks than cores that they may use.
    bool oversubscribed() const;
    /// Ranks per core on the fullest machine, at least 1: the same on all ranks.
    double crowding() const { return std::max(1.0, bootstrap_->crowding()); }
    /// A transport's, as the worst of all ranks' has them: what choices depend on is the same
    /// everywhere.
    Capabilities capabilities(std::size_t transport) const;
    bool takes_devices() const;
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
    /// A communicator's whole collectives, and what they are called.
    struct Intrinsics {
        std::unique_ptr<IntrinsicGroup> group;
        std::string_view name;
    };
    /// The job's, if every rank could join them. Only once.
    Intrinsics take_intrinsics() { return std::move(intrinsics_); }
    /// A smaller communicator's, of one host or several: nothing if this rank cannot join. Then
    /// none may use them.
    Intrinsics join_intrinsics(const Group& group, bool one_host, Deadline deadline);
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
    std::span<const std::unique_ptr<Transport>> transports() const { return transports_; }

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

    /// Moves data of all transports. Cheap when there is none.
    void progress();
    /// As Transport's.
    void before_sleep();
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
    /// Ends what was kept for later communicators of this process, with its threads.
    static void close_stores();

private:
    Endpoint(const Config& config, std::string generation);
    Result<> set_up(std::shared_ptr<Store> own_store);
    Result<> check_settings() const;
    Result<> enter_store(std::shared_ptr<Store> own_store, Deadline deadline);
    Result<> prepare();
    Result<std::string> own_address() const;
    void close_listeners();
    Result<> claim_number();
    void be_watched(Deadline patience);
    std::optional<Error> trouble();
    Bootstrap::Self introduction(bool tuned) const;
    Result<> open_transports();
    Result<> listen_control();
    Result<> publish();
    tl::unexpected<Error> taken_error(const RankOwner& self, const RankOwner& owner) const;
    Result<PeerRecord> parent_record(const std::optional<Error>& earlier);
    bool hides(const PeerRecord& record, Deadline deadline) const;
    Result<> connect_parent();
    void leave_word(const Error& error);
    std::optional<Error> word_left();
    std::optional<Error> read_word(std::string_view text) const;
    std::string word_key() const { return generation_ + "/failed"; }
    Result<> assemble();
    bool join_job_intrinsics();
    bool reaches_any(std::size_t transports, const Group& group, Deadline deadline);
    Result<Opened> connect(const ChannelId& id, Deadline deadline);
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
    Result<PeerAddress> find(const Transport& transport, Rank rank, Deadline deadline);
    Error missing_error(int64_t waited_ms);
    template <typename Done>
    bool wait_until(Done done);
    const PeerRecord* known_peer(Rank rank);
    Result<const PeerRecord*> peer(Rank rank, Deadline deadline);
    Result<const PeerRecord*> peer_if_there(Rank rank, Deadline deadline);
    Result<const PeerRecord*> keep_peer(Rank rank, std::string_view text);
    std::string key(Rank rank) const;

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
    void remove_records(Deadline deadline);
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
    const int64_t started_s_;  // by the wall clock
    std::string host_id_, machine_id_;
    std::string usual_address_;  // of this machine, where the settings name none; may be empty
    Tuning tuning_;
    std::string fitted_wire_;
    Constants fitted_{};
    const std::string generation_;
    const uint64_t job_hash_;
    std::shared_ptr<Store> store_;
    Deadline deadline_;                         // of joining
    bool claimed_ = false, published_ = false;  // this rank's number; its record
    bool may_tell_ = false;                     // the others of what goes wrong
    bool host_programs_store_ = false;
    std::unique_ptr<Will> will_;       // while it joins, where the store notices the process's end
    std::optional<ClaimWatch> watch_;  // else
    int64_t look_ns_ = 0, look_pause_ns_ = 0;  // when trouble() looks again

    Wakeups wakeups_;
    ControlTree control_;
    std::unique_ptr<net::Acceptor> acceptor_;
    std::string control_address_;
    std::vector<std::unique_ptr<Transport>> transports_;
    std::vector<LinkAttributes> common_;  // of each: what all ranks can go by
    Intrinsics intrinsics_;
    std::atomic<uint32_t> next_id_{1};

    std::mutex mutex_;  // of what follows, to peers_
    std::condition_variable changed_;
    std::unique_ptr<Bootstrap> bootstrap_;
    std::atomic<bool> start_failed_{false};  // as bootstrap_ says: for waits without the mutex
    bool parent_there_ = false;              // connected; children may be earlier
    std::deque<ChannelId> wanted_;           // to be opened by whoever serves the reactor
    /// Messages that wait for a connection past a rank that is gone, by whom they are for.
    std::map<Rank, std::vector<Bytes>> detours_;
    std::set<Rank> cut_off_;  // there was no way to them
    Deadline detours_end_;    // of all together, once this rank leaves
    bool opening_ = false;    // one of those that were wanted
    bool serving_ = false;    // the service thread has not ended
    std::map<Rank, PeerRecord> peers_;
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
