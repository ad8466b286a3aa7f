// Connects detours: connections around gone ranks of the control tree.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_tree.h"
#include "job/connecting/detours.h"
#include "job/records/peer_directory.h"

namespace tutti {

/// Any thread may call any function; one at a time calls open(), which blocks.
class DetourDialer {
public:
    DetourDialer(const Config& config, PeerDirectory& directory, ControlTree& control,
                 Detours& detours, const std::atomic<bool>& leaving,
                 std::function<void(Rank)> opened)
        : config_(config),
          directory_(directory),
          control_(control),
          detours_(detours),
          leaving_(leaving),
          opened_(std::move(opened)) {}

    /// Connects to that rank, and sends its waiting messages, after those that opened() sends.
    /// `peer_lost` of that rank: no process listens there any more. `timeout` of that rank: it has
    /// a heartbeat, and has not answered for so long.
    Result<> open(Rank to);
    /// Sets one deadline for all detours that are still wanted, as this rank leaves.
    void end_by(Deadline deadline);

private:
    Result<UniqueFd> connect(Rank to, const PeerRecord& record, Deadline deadline);

    const Config& config_;
    PeerDirectory& directory_;
    ControlTree& control_;
    Detours& detours_;
    const std::atomic<bool>& leaving_;
    const std::function<void(Rank)> opened_;
    std::mutex mutex_;  // guards the next member
    Deadline end_;
};

}  // namespace tutti
