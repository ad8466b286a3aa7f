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

/// Once the ranks have agreed, the set has the same transports on all of them. The joining thread
/// makes and changes it; afterwards any thread may call any function.
class TransportSet {
public:
    /// Makes the named transports, and lets them listen. The job does without a transport that
    /// lacks a resource, if there are others.
    Result<> listen(const std::vector<std::string>& names, const TransportContext& context);
    /// Sets the worst attributes of each transport on any rank. A transport that a rank lacks is
    /// dropped on all ranks.
    void agree_on(std::vector<LinkAttributes> worst);
    void close(Deadline deadline);
    void clear() { transports_.clear(); }

    std::span<const std::unique_ptr<Transport>> all() const { return transports_; }
    /// A transport's capabilities with the worst attributes of all ranks, so that all ranks choose
    /// alike.
    Capabilities capabilities(std::size_t transport) const;
    bool takes_devices() const;

    /// Moves data of all transports. Cheap when there is none.
    void progress() const;
    void retire(uint32_t comm) const;
    void peer_gone(Rank peer) const;
    /// True if that rank's process has ended and nothing that it sent is on its way to this one.
    bool has_ended(Rank peer) const;

private:
    std::vector<std::unique_ptr<Transport>> transports_;
    std::vector<LinkAttributes> common_;  // by transport: the worst attributes of all ranks
};

}  // namespace tutti
