// Accepts the control connections of other ranks.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_tree.h"
#include "job/assembly.h"
#include "job/control_router.h"
#include "net/acceptor.h"

namespace tutti {

/// Checks each connection's hello, attaches the connection to the control tree, and tells the
/// router. It runs on the reactor's thread; one thread calls listen() and stop().
class ControlListener {
public:
    ControlListener(const Config& config, ControlTree& control, Assembly& assembly,
                    ControlRouter& router)
        : config_(config), control_(control), assembly_(assembly), router_(router) {}

    /// Accepts connections of other ranks on that host's address, which this returns with its port.
    Result<std::string> listen(const std::string& host, Reactor& reactor);
    void stop() { acceptor_.reset(); }

private:
    bool in_job(Rank rank) const { return rank >= 0 && rank < config_.size; }
    void accept(UniqueFd fd, ByteView hello);

    const Config& config_;
    ControlTree& control_;
    Assembly& assembly_;
    ControlRouter& router_;
    std::unique_ptr<net::Acceptor> acceptor_;
};

}  // namespace tutti
