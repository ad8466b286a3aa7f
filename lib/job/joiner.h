// Joining a job: store, listeners, the control tree, and the agreement that every rank is there.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "job/assembly.h"
#include "job/connecting/connector.h"
#include "job/connecting/parent_search.h"
#include "job/connecting/transport_set.h"
#include "job/control_listener.h"
#include "job/records/failure_notice.h"
#include "job/records/join_watch.h"
#include "job/records/peer_directory.h"
#include "job/service_thread.h"
#include "net/acceptor.h"
#include "rendezvous/store.h"
#include "select/tuning.h"
#include "wait/wakeups.h"

namespace tutti {

/// The ids that tell machines and hosts apart.
struct HostIdentity {
    std::string machine;  // its boot id: ranks with equal ids share cores
    std::string host;     // the host id: the machine's, unless the settings give another
};

/// Sets up the parts of an endpoint. At the end all ranks are there, or the other ranks know why
/// this one cannot join. For one thread.
class Joiner {
public:
    /// The parts of the endpoint that joining fills or starts. They outlive the Joiner.
    struct EndpointParts {
        const Config& config;
        const HostIdentity& identity;
        PeerDirectory& directory;
        Wakeups& wakeups;
        ControlTree& control;
        Assembly& assembly;
        TransportSet& transports;
        const Connector& connector;
        ControlListener& listener;
        ServiceThread& service;
        ChannelSink& sink;  // of the transports
    };
    struct Joined {
        Tuning tuning;                // the same on all ranks
        JoinedIntrinsics intrinsics;  // of the whole job, if every rank could join them
    };

    Joiner(const EndpointParts& parts, const std::string& generation);

    /// own_store, the host program's, replaces the store of the settings.
    Result<Joined> join(std::shared_ptr<Store> own_store);
    /// Called after join() has failed: tells the other ranks, and returns the best known cause.
    Error report_failure(Error error);

private:
    Result<> enter_store(std::shared_ptr<Store> own_store, Deadline deadline);
    TransportContext transport_context() const;
    Bootstrap::Self introduction(std::string_view tuning) const;
    PeerRecord own_record(const std::string& control_address) const;
    Result<> begin_assembly(std::string_view tuning);
    std::optional<Error> published_failure() const;
    Result<> connect_parent();
    void call_parent(ParentSearch& search, net::Redial& redial);
    void state_distance(int parent_fd) const;
    Result<> assemble(JoinedIntrinsics& intrinsics);
    Result<bool> take_records();
    JoinedIntrinsics join_intrinsics() const;
    void look_up_next();
    template <typename Done>
    bool wait_until(Done done);
    Deadline store_patience() const;

    const EndpointParts parts_;
    const Config& config_;
    const TimeLimit limit_;
    const FailureNotice notice_;
    JoinWatch watch_;
    std::string usual_address_;  // this machine's, if the settings name none; may be empty
    bool has_parent_ = false;    // connected
    bool may_publish_ = false;   // its failure: this process has claimed the rank's number
};

}  // namespace tutti
