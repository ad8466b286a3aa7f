#include "job/connecting/transport_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "transports/catalog.h"

namespace tutti {
namespace {

constexpr int64_t drop_ms = 1000;

}  // namespace

Result<> TransportSet::listen(const std::vector<std::string>& names,
                              const TransportContext& context) {
    for (const std::string& name : names) {
        if (context.size == 1) continue;
        const auto kinds = tutti::transports();
        const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                       [&](const TransportKind& k) { return k.name == name; });
        std::unique_ptr<Transport> transport = kind->make(context);
        if (auto listening = transport->listen(); !listening) {
            if (!transport->capabilities().lacking || names.size() == 1)
                return wrap(listening.error(), fmt::format("transport {}", name));
            log::warn(wrap(listening.error(), fmt::format("the job does without {}", name))
                          .on(context.rank));
        }
        transports_.push_back(std::move(transport));
    }
    return {};
}

void TransportSet::agree_on(std::vector<LinkAttributes> worst) {
    common_ = std::move(worst);
    for (std::size_t i = transports_.size(); i-- > 0;) {
        if (!common_[i].lacking) continue;
        transports_[i]->close(Deadline::after_ms(drop_ms));
        transports_.erase(transports_.begin() + static_cast<std::ptrdiff_t>(i));
        common_.erase(common_.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void TransportSet::close(Deadline deadline) {
    for (const auto& transport : transports_) transport->close(deadline);
}

Capabilities TransportSet::capabilities(std::size_t transport) const {
    Capabilities c = transports_[transport]->capabilities();
    static_cast<LinkAttributes&>(c) = common_[transport];
    return c;
}

bool TransportSet::takes_devices() const {
    return std::any_of(transports_.begin(), transports_.end(),
                       [](const auto& t) { return t->capabilities().takes_devices; });
}

void TransportSet::progress() const {
    for (const auto& transport : transports_) transport->progress();
}

void TransportSet::retire(uint32_t comm) const {
    for (const auto& transport : transports_) transport->retire(comm);
}

// A transport that reports ends carries everything from the ranks that it reaches if it is the
// first one.
bool TransportSet::has_ended(Rank peer) const {
    return !transports_.empty() && transports_.front()->has_ended(peer);
}

void TransportSet::peer_gone(Rank peer) const {
    for (const auto& transport : transports_) transport->peer_gone(peer);
}

}  // namespace tutti
