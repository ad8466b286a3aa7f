// The state that the parts of one communicator share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/estimate.h"
#include "control/agreement/consensus.h"
#include "control/failure_protocol.h"
#include "job/endpoint.h"
#include "os/forks.h"
#include "p2p/transfers.h"
#include "plan/channel_table.h"
#include "plan/plan_cache.h"
#include "plan/planner.h"
#include "record/recorder.h"
#include "run/streams.h"
#include "run/user_memory.h"
#include "wait/waiting.h"

namespace tutti {

class Offload;

/// Each member uses the members declared before it.
struct Core {
    Core(std::shared_ptr<Endpoint> joined, Group members, bool one_host, FailureProtocolHost& host);

    Rank rank() const { return group.rank(); }
    Rank size() const { return group.size(); }
    const Config& config() const { return endpoint->config(); }
    bool manual() const { return endpoint->manual(); }
    /// wanted_ms < 0: the communicator's own limit.
    int64_t limit_ms(int64_t wanted_ms) const {
        return wanted_ms < 0 ? config().timeout_ms : wanted_ms;
    }
    /// Returns `unsupported` in a child process forked after the communicator was made.
    Result<> forked() const;
    /// The same check for calls that start or wait for an operation; it also returns `invalid`
    /// inside a completion callback.
    Result<> may_call() const {
        return !home.here() || Completion::calling_back() ? refuse_call() : Result<>{};
    }
    Result<> refuse_call() const;
    /// Returns `aborted` after destroy(), and `invalid` after leave().
    Result<> may_start() const;
    void set_hosts(Hosts hosts);
    /// Looks up the neighbours in the group's own tree, and joins the group's intrinsics: none if
    /// this rank cannot.
    Endpoint::Intrinsics join_intrinsics(Deadline deadline) const;
    /// Uses these intrinsics from now on; takes all streams, since the service thread may call
    /// resume() meanwhile.
    void use_intrinsics(Endpoint::Intrinsics intrinsics);
    /// Ends the operations and transfers that the failure protocol has decided to end.
    void apply_verdicts();
    /// From now on, if this communicator ends, `part` ends with its error. For a part that is being
    /// made: a member that failed earlier has no part, and the others would wait for it there.
    /// nullptr: for none.
    void tie(std::shared_ptr<Core> part);
    void end_tied();
    /// Begins a new epoch after operation `last`, with all streams held.
    void resume(uint64_t last);

    const std::shared_ptr<Endpoint> endpoint;
    Group group;
    const bool strict;
    const bool oversubscribed;
    const HomeProcess home;
    ChannelTable channels;
    Recorder recorder;
    FailureProtocol failure_protocol;
    Consensus consensus;
    Waiting waiting;
    Planner planner;
    std::vector<PlanCache> plans;  // by stream
    Streams streams;
    Transfers transfers;
    UserMemory memory;
    Estimate estimate;      // only the issuing thread uses it
    std::mutex tied_mutex;  // guards the next member
    std::shared_ptr<Core> tied;
    std::weak_ptr<Communicator> self;     // requests lock it to keep the communicator
    Offload* offload = nullptr;           // set before the communicator's first call
    std::atomic<uint64_t> generation{1};  // of groups on accelerators; resume() advances it
    std::atomic<bool> destroyed{false};
    std::atomic<bool> left{false};  // set before `destroyed` if the program still has the handle
    // The last operation's number. The issuing thread advances it while it owns the operation's
    // stream; resume() sets it with all streams held.
    std::atomic<uint64_t> sequence{0};
};

}  // namespace tutti
