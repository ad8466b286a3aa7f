#include "trainer/sync/averaging.h"

namespace tutti::trainer {

Result<> Averaging::allocate() {
    for (const Group& group : parameters_) {
        Pieces& pieces = pieces_.emplace_back();
        for (Device* device : devices_) {
            for (auto* list : {&pieces.snapshot, &pieces.way}) {
                TRAINER_ASSIGN(DeviceMemory piece, DeviceMemory::make(*device, group.bytes));
                list->push_back(std::move(piece));
            }
        }
    }
    return {};
}

Result<> Averaging::remember() {
    for (std::size_t g = 0; g < pieces_.size(); ++g)
        for (std::size_t d = 0; d < devices_.size(); ++d)
            TRAINER_TRY(devices_[d]->copy(pieces_[g].snapshot[d].data(),
                                          parameters_[g].memory[d].data(), parameters_[g].bytes));
    return {};
}

Result<> Averaging::take_way(std::size_t g, std::size_t d) {
    const Group& group = parameters_[g];
    void* way = pieces_[g].way[d].data();
    TRAINER_TRY(devices_[d]->copy(way, group.memory[d].data(), group.bytes));
    return devices_[d]->axpby(group.count(), group.dtype, -1, pieces_[g].snapshot[d].data(), 1,
                              way);
}

Result<> Averaging::go_way(std::size_t g, std::size_t d) {
    const Group& group = parameters_[g];
    void* snapshot = pieces_[g].snapshot[d].data();
    TRAINER_TRY(
        devices_[d]->axpby(group.count(), group.dtype, 1, pieces_[g].way[d].data(), 1, snapshot));
    return devices_[d]->copy(group.memory[d].data(), snapshot, group.bytes);
}

std::vector<void*> Averaging::ways(std::size_t group) const {
    std::vector<void*> list;
    for (const DeviceMemory& way : pieces_[group].way) list.push_back(way.data());
    return list;
}

}  // namespace tutti::trainer
