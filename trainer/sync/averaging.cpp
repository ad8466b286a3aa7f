#include "trainer/sync/averaging.h"

namespace tutti::trainer {

Result<> Averaging::allocate() {
    for (const Group& group : parameters_) {
        Pieces& pieces = pieces_.emplace_back();
        for (Device* device : devices_) {
            for (auto* list : {&pieces.snapshot, &pieces.delta}) {
                const std::size_t bytes = group.count() * tutti_dtype_size(sum_dtype(group.dtype));
                TRAINER_ASSIGN(DeviceMemory piece, DeviceMemory::make(*device, bytes));
                list->push_back(std::move(piece));
            }
        }
    }
    return {};
}

Result<> Averaging::take_snapshot() {
    for (std::size_t g = 0; g < pieces_.size(); ++g)
        for (std::size_t d = 0; d < devices_.size(); ++d)
            TRAINER_TRY(widen(g, d, pieces_[g].snapshot[d].data()));
    return {};
}

Result<> Averaging::widen(std::size_t g, std::size_t d, void* to) {
    const Group& group = parameters_[g];
    return devices_[d]->convert(group.count(), group.dtype, group.memory[d].data(),
                                sum_dtype(group.dtype), to);
}

Result<> Averaging::compute_delta(std::size_t g, std::size_t d) {
    const Group& group = parameters_[g];
    void* delta = pieces_[g].delta[d].data();
    TRAINER_TRY(widen(g, d, delta));
    return devices_[d]->axpby(group.count(), sum_dtype(group.dtype), -1,
                              pieces_[g].snapshot[d].data(), 1, delta);
}

Result<> Averaging::apply_delta(std::size_t g, std::size_t d) {
    const Group& group = parameters_[g];
    const tutti_dtype wide = sum_dtype(group.dtype);
    void* snapshot = pieces_[g].snapshot[d].data();
    TRAINER_TRY(
        devices_[d]->axpby(group.count(), wide, 1, pieces_[g].delta[d].data(), 1, snapshot));
    TRAINER_TRY(
        devices_[d]->convert(group.count(), wide, snapshot, group.dtype, group.memory[d].data()));
    // The next delta is relative to the parameters as they were rounded.
    return is_narrow(group.dtype) ? widen(g, d, snapshot) : Result<>();
}

std::vector<void*> Averaging::deltas(std::size_t group) const {
    std::vector<void*> list;
    for (const DeviceMemory& delta : pieces_[group].delta) list.push_back(delta.data());
    return list;
}

}  // namespace tutti::trainer
