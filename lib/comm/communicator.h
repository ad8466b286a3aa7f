// A communicator: the parts that serve its calls, its place in the job, and how it begins and ends.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/core.h"
#include "comm/issuer.h"
#include "comm/messenger.h"
#include "comm/offload.h"
#include "comm/progress.h"
#include "comm/recovery.h"

namespace tutti {

/// A communicator's memory, in bytes.
struct MemoryUse {
    UserMemory::Bytes user;
    std::size_t work = 0;  // of plans
    std::size_t recorder = 0;
    std::size_t mapped = 0, cells = 0;  // for messages of all communicators of the process
};

class Communicator final : private EndpointClient, private FailureProtocolHost {
public:
    static Result<std::shared_ptr<Communicator>> create(const Config& config,
                                                        std::shared_ptr<Store> own_store);
    /// The ranks with the same store, job name and generation meet; config has this one's number.
    static Result<std::shared_ptr<Communicator>> join(Config config, std::string generation,
                                                      std::shared_ptr<Store> own_store);
    ~Communicator() override;

    /// Collective. Ranks that give the same colour get a communicator of their own, in the order of
    /// their keys, then of their ranks here; a negative colour gets none.
    Result<std::shared_ptr<Communicator>> split(int color, int key);
    Result<std::shared_ptr<Communicator>> dup();
    /// By host instead of by colour.
    Result<std::shared_ptr<Communicator>> split_host(int key);

    Rank rank() const { return core_.rank(); }
    Rank size() const { return core_.size(); }
    /// Set before create() or split() returns.
    const Hosts& hosts() const { return *core_.group.hosts(); }
    /// Returns `unsupported` in a child process forked after the communicator was made: it belongs
    /// to the parent.
    Result<> forked() const { return core_.forked(); }
    /// The same check for calls that start or wait for an operation; it also returns `invalid`
    /// inside a completion callback.
    Result<> may_call() const { return core_.may_call(); }
    int rings() const { return core_.config().nrings; }
    bool manual() const { return core_.manual(); }

    /// Plans calls, and makes operators that belong to this communicator only.
    Planner& planner() { return core_.planner; }
    const Planner& planner() const { return core_.planner; }
    /// Collectives.
    Issuer& calls() { return issuer_; }
    /// Sends and receives on host memory.
    Messenger& messages() { return messenger_; }
    ProgressEngine& progress() { return progress_; }
    /// Calls on an accelerator's memory.
    Offload& offload() { return *offload_; }
    /// The calls that are planned and not made.
    Estimate& estimate() { return core_.estimate; }
    /// Memory registered with the transports in advance; destroy() deregisters the rest.
    UserMemory& memory() { return core_.memory; }

    /// Calls that go on after a failure.
    Recovery& recovery() { return recovery_; }

    /// For the issuing thread.
    MemoryUse used_memory() const;

    void abort();
    /// Ends every pending and later operation on all ranks with `revoked`; recovery() still works.
    void revoke();
    /// kept: the program has left and still has the handle; later calls get `invalid`.
    enum class UserHandle : uint8_t { gone, kept };
    void destroy(UserHandle handle = UserHandle::gone);
    /// For the end of the process: delivers the unsent output of finished calls, and tells the
    /// other ranks that this rank leaves. Threads inside calls stay there; nothing is freed, and no
    /// callback runs.
    void leave_at_exit(Deadline deadline);
    Result<> dump(int fd) const { return core_.recorder.dump(fd, rank()); }

private:
    friend class Splitter;
    friend class Recovery;

    Communicator(std::shared_ptr<Endpoint> endpoint, Group group, bool one_host);
    /// Makes a communicator that the endpoint and the exit handler know. hosts: its ranks' hosts,
    /// if known.
    static std::shared_ptr<Communicator> make(std::shared_ptr<Endpoint> endpoint, Group group,
                                              bool one_host, std::optional<Hosts> hosts);
    /// A communicator of some members of `whole`, in that order, among them this rank. Sends
    /// nothing.
    static std::shared_ptr<Communicator> make_part(const Core& whole,
                                                   const std::vector<Rank>& members, uint32_t id);
    Result<> learn_hosts();

    // EndpointClient
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override;
    bool still_wanted(const ChannelId& id) override;
    void connected(const ChannelId& id, Result<Opened> opened) override;
    void handle_message(Rank from, const ControlMessage& message) override;
    void peer_lost(Rank peer, const std::string& cause, Rank accuser) override;
    void unreachable(Rank peer) override;
    bool drive(bool& moved) override { return progress_.drive(moved); }
    bool arm(bool on) override { return progress_.arm(on); }
    // FailureProtocolHost
    void send_control(Rank to, const ControlMessage& message) override {
        core_.endpoint->send_control(core_.group.in_job(to), message);
    }
    const Recorder& recorder() const override { return core_.recorder; }
    std::optional<Rank> blocked_on() override;
    int64_t grace_ns(Rank lost) const override;
    void apply_verdicts() override { core_.apply_verdicts(); }
    void resume(uint64_t sequence) override { core_.resume(sequence); }

    // Each member uses the members declared before it.
    Core core_;
    ProgressEngine progress_;
    Issuer issuer_;
    Messenger messenger_;
    Recovery recovery_;
    const std::unique_ptr<Offload> offload_;
};

}  // namespace tutti
