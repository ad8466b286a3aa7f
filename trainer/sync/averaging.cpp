#include "trainer/sync/averaging.h"

namespace tutti::training {

Averaging::Averaging(std::deque<Group>& parameters, std::vector<Device*> devices)
    : parameters_(parameters), devices_(std::move(devices)) {
    for (const Group& group : parameters_) {
        Pieces& pieces = pieces_.emplace_back();
        for (Device* device : devices_) {
            pieces.snapshot.emplace_back(*device, group.bytes);
            pieces.way.emplace_back(*device, group.bytes);
        }
    }
}

void Averaging::remember() {
    for (std::size_t g = 0; g < pieces_.size(); ++g)
        for (std::size_t d = 0; d < devices_.size(); ++d)
            devices_[d]->copy(pieces_[g].snapshot[d].data(), parameters_[g].memory[d].data(),
                              parameters_[g].bytes);
}

void Averaging::take_way(std::size_t g, std::size_t d) {
    const Group& group = parameters_[g];
    void* way = pieces_[g].way[d].data();
    devices_[d]->copy(way, group.memory[d].data(), group.bytes);
    devices_[d]->axpby(group.count(), group.dtype, -1, pieces_[g].snapshot[d].data(), 1, way);
}

void Averaging::go_way(std::size_t g, std::size_t d) {
    const Group& group = parameters_[g];
    void* snapshot = pieces_[g].snapshot[d].data();
    devices_[d]->axpby(group.count(), group.dtype, 1, pieces_[g].way[d].data(), 1, snapshot);
    devices_[d]->copy(group.memory[d].data(), snapshot, group.bytes);
}

std::vector<void*> Averaging::ways(std::size_t group) const {
    std::vector<void*> list;
    for (const DeviceMemory& way : pieces_[group].way) list.push_back(way.data());
    return list;
}

}  // namespace tutti::training
