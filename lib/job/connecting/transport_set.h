// The transports of a job, in the order in which they are tried.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/link_attributes.h"
#include "base/result.h"
#include "transport/transport.h"

namespace tutti {

/// Ranks choose alike: the set has the same transports on all of them once they have agreed. Made
/// and changed by the thread that joins; then any thread may call anything.
class TransportSet {
public:
    /// Makes those of the names, and lets them listen. The job does without one that lacks what it
    /// needs, if there are others.
    Result<> listen(const std::vector<std::string>& names, const TransportContext& context);
    /// The worst of each on any rank is what all go by. One that a rank lacks is used by none.
    void agree_on(std::vector<LinkAttributes> worst);
    void close(Deadline deadline);
    void clear() { transports_.clear(); }

    std::span<const std::unique_ptr<Transport>> all() const { return transports_; }
    /// A transport's, as the worst of all ranks' has them: what choices depend on is the same
    /// everywhere.
    Capabilities capabilities(std::size_t transport) const;
    bool takes_devices() const;

    /// Moves data of all transports. Cheap when there is none.
    void progress() const;
    void retire(uint32_t comm) const;
    void peer_gone(Rank peer) const;

private:
    std::vector<std::unique_ptr<Transport>> transports_;
    std::vector<LinkAttributes> common_;  // of each: what all ranks can go by
};

}  // namespace tutti
