// A communicator's sends and receives: checking, driving and ending them.
#pragma once

#include <atomic>
#include <string_view>

#include "config/config.h"
#include "control/failure_protocol.h"
#include "p2p/bundle.h"
#include "p2p/point_to_point.h"
#include "wait/owner.h"
#include "wait/waiting.h"

namespace tutti {

/// Any thread may call what does not say otherwise.
class Transfers final : private TransferHost {
public:
    /// message_bytes: the most that a message of any transport in use holds.
    Transfers(const Config& config, const Group& group, std::size_t message_bytes,
              ChannelTable& channels, FailureProtocol& failure_protocol, Waiting& waiting);

    Result<> check(const Transfer& transfer) const;
    static Error left_error(Rank partner);
    /// Blocks until the channels it needs are open. The issuing thread only. timeout_ms < 0: the
    /// communicator's.
    Result<> connect(const Transfer& transfer, int64_t timeout_ms);
    /// Whether it may go from a GPU's memory, or into it; connected. The issuing thread only.
    bool takes_device(const Transfer& transfer) const { return engine_.takes_device(transfer); }
    std::size_t message_bytes() const { return message_bytes_; }
    /// Starts it, connected. timeout_ms < 0: the communicator's.
    void post(Transfer& transfer, int64_t timeout_ms);
    /// Starts its messages, connected; they end with it, and it once it is released.
    void post(Bundle& bundle);

    /// True while there is any.
    bool drive(bool& moved);
    void check_deadlines();
    bool arm(bool on);
    /// Ends everything: the communicator was destroyed.
    void end_all();

private:
    void finished(Transfer& transfer, const Error& error) override;
    void purge();
    void progress_bundles(bool& moved);
    bool progress(Bundle& bundle, bool& moved);
    bool end(Bundle& bundle, const Error& error);
    std::optional<Error> late(Bundle& bundle, int64_t now) const;
    Error timed_out(int64_t after_ms, Rank partner, std::string_view what) const;

    const Config& config_;
    const Rank rank_, size_;
    const std::size_t message_bytes_;
    FailureProtocol& failure_protocol_;
    Waiting& waiting_;
    OwnerFlag owner_;
    std::atomic<int> posted_{0};
    PointToPoint engine_;
    std::vector<Bundle*> bundles_;  // the owner's
    int64_t moved_ns_ = 0;          // when a message moved last during an alarm; the owner's
};

}  // namespace tutti
