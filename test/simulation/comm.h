// One rank's communicator: the real parts that decide and run, on simulated channels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/agreement/consensus.h"
#include "control/failure_protocol.h"
#include "control/group.h"
#include "engine/bind.h"
#include "job/endpoint_client.h"
#include "plan/plan.h"
#include "record/recorder.h"
#include "run/streams.h"
#include "simulation/channels.h"
#include "simulation/scenario.h"
#include "transport/transport.h"

namespace simulation {

class SimRank;

/// It does for its parts what Core, Communicator, Admission and ProgressEngine (lib/comm) do, which
/// need an Endpoint and so sockets and threads: it carries messages and losses in, applies the
/// verdicts, and drives the streams. One thread of the program calls it, never two.
class SimComm final : public EndpointClient, public FailureProtocolHost, public ChannelProvider {
public:
    SimComm(SimRank& rank, Group group);
    ~SimComm() override;

    uint32_t id() const { return group_.id(); }
    const Group& group() const { return group_; }
    /// The job's ranks.
    const std::vector<Rank>& members() const { return members_; }
    FailureProtocol& failures() { return failures_; }
    Consensus& consensus() { return consensus_; }
    Streams& streams() { return streams_; }

    /// A collective on 32-bit integers; algorithm: an index among the algorithms that can serve it.
    Plan& plan(const Step& step, Rank root);
    enum class Entered : uint8_t { running, waits, refused };
    /// waits: call again later. refused: with the error.
    Entered submit(Request& request, Plan& plan, Error& error);
    void drive();
    void check_clocks();
    /// The same for a call that waits for other ranks after a mismatch; the error ends the call.
    std::optional<Error> check_entering(int64_t began_ns, int64_t& ask_ns);
    /// The program waits in a call of this communicator.
    void set_waiting(bool on) { waiting_ = on; }

    void revoke();
    void abort();
    /// True if it was the rank's last communicator.
    bool destroy();
    bool is_destroyed() const { return destroyed_; }
    /// The data connection to a rank of the job has ended.
    void close_channels(Rank peer);

    // EndpointClient
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override;
    bool still_wanted(const ChannelId&) override { return false; }
    void connected(const ChannelId&, Result<Opened>) override {}
    void handle_message(Rank from, const ControlMessage& message) override;
    void peer_lost(Rank peer, const std::string& cause, Rank accuser) override;
    void unreachable(Rank peer) override;
    bool drive(bool&) override { return false; }
    bool arm(bool) override { return true; }
    // FailureProtocolHost
    void send_control(Rank to, const ControlMessage& message) override;
    const Recorder& recorder() const override { return recorder_; }
    std::optional<Rank> blocked_on() override;
    void apply_verdicts() override;
    void resume(uint64_t sequence) override { sequence_ = sequence; }
    // ChannelProvider
    Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline deadline) override;
    ReceiverSlot* receiver(Rank peer, uint16_t lane) override;

private:
    struct Incoming {
        ReceiverSlot slot;
        std::unique_ptr<Receiver> receiver;
    };
    using Lane = std::pair<Rank, uint16_t>;
    void note_agreement();
    void apply_verdicts_here();
    void overruled(Code code);

    SimRank& rank_;
    Group group_;
    std::vector<Rank> members_;
    Capabilities capabilities_;
    Recorder recorder_;
    FailureProtocol failures_;
    Consensus consensus_;
    Streams streams_;
    std::map<Lane, std::unique_ptr<Sender>> senders_;
    std::map<Lane, Incoming> receivers_;
    std::vector<std::shared_ptr<Pipe>> pipes_;  // both directions
    std::map<std::pair<uint64_t, uint64_t>, std::unique_ptr<Plan>> plans_;
    uint64_t sequence_ = 0;
    bool waiting_ = false, destroyed_ = false;
    std::optional<Code> overruled_;  // this rank has revoked or aborted it
};

}  // namespace simulation
