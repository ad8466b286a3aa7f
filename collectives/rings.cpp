#include "collectives/rings.h"

namespace tutti {

RingOrder::RingOrder(const ScheduleRequest& request, uint32_t lane)
    : ranks_(request.ranks),
      position_(request.rank),
      hosts_(request.hosts),
      turn_(static_cast<Rank>(lane / 2)),
      backward_(lane % 2 != 0) {
    if (hosts_) {
        const Rank host = hosts_->host_of(request.rank), size = hosts_->size_of(host);
        const Rank local = hosts_->local_of(request.rank);
        position_ = hosts_->before(host) + (local + size - turn_ % size) % size;
    }
    if (backward_) position_ = ranks_ - 1 - position_;
}

Rank RingOrder::at(Rank position) const {
    if (backward_) position = ranks_ - 1 - position;
    if (!hosts_) return position;
    const Rank host = hosts_->host_of(hosts_->in_order(position));
    const Rank local = (position - hosts_->before(host) + turn_) % hosts_->size_of(host);
    return hosts_->member(host, local);
}

Schedule multi_ring(const ScheduleRequest& request,
                    Lane (*lane)(const RingOrder&, uint32_t first)) {
    const auto n = static_cast<uint32_t>(request.ranks);
    Schedule schedule;
    schedule.chunks = 2 * n * request.lanes;
    for (uint32_t l = 0; l < 2 * request.lanes; ++l)
        schedule.lanes.push_back(lane(RingOrder(request, l), l * n));
    return schedule;
}

}  // namespace tutti
