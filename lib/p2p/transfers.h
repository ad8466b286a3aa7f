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

/// Any thread may call a function unless its comment says otherwise.
class Transfers final : private TransferHost {
public:
    /// message_bytes: the largest message that every transport in use can carry.
    Transfers(const Config& config, const Group& group, std::size_t message_bytes,
              ChannelTable& channels, FailureProtocol& failure_protocol, Waiting& waiting);

    Result<> check(const Transfer& transfer) const;
    static Error left_error(Rank partner);
    /// Blocks until the transfer's channels are open. For the issuing thread only. timeout_ms < 0:
    /// the communicator's.
    Result<> connect(const Transfer& transfer, int64_t timeout_ms);
    /// True if the connected transfer may go from a GPU's memory or into it. For the issuing thread
    /// only.
    bool takes_device(const Transfer& transfer) const { return engine_.takes_device(transfer); }
    std::size_t message_bytes() const { return message_bytes_; }
    /// Starts a connected transfer. timeout_ms < 0: the communicator's.
    void post(Transfer& transfer, int64_t timeout_ms);
    /// Starts the bundle's connected messages. The bundle can end once it is released and they have
    /// ended.
    void post(Bundle& bundle);

    /// True while a transfer or bundle is pending.
    bool drive(bool& moved);
    void check_deadlines();
    bool arm(bool on);
    /// Ends every transfer and bundle: the communicator was destroyed.
    void end_all();

private:
    void finished(Transfer& transfer, const Error& error) override;
    void purge();
    void wait_for_arrivals(bool on);
    void progress_bundles(bool& moved);
    bool progress(Bundle& bundle, bool& moved);
    bool end(Bundle& bundle, const Error& error);
    std::optional<Error> late(Bundle& bundle, int64_t now) const;
    Error timed_out(int64_t after_ms, Rank partner, std::string_view what) const;

    const Config& config_;
    const Rank rank_, size_;
    const std::size_t message_bytes_;
    FailureProtocol& failure_protocol_;
    const std::function<bool()> ended_ = [this] { return failure_protocol_.check_unreachable(); };
    Waiting& waiting_;
    OwnerFlag owner_;
    std::atomic<int> posted_{0};
    PointToPoint engine_;
    std::vector<Bundle*> bundles_;  // owner_ guards it
    int64_t moved_ns_ = 0;          // last time a message moved during an alarm; owner_ guards it
    bool may_arrive_ = false;       // a receive waits for a lost rank's messages; owner_ guards it
};

}  // namespace tutti
