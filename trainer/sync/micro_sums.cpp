#include "trainer/sync/micro_sums.h"

namespace tutti::trainer {

Result<> MicroSums::allocate(int micro_batches) {
    // Sums put away at once: one for each bit of the number of micro-batches before the last.
    const auto most = static_cast<unsigned>(micro_batches - 1);
    for (const Group& bucket : buckets_) {
        auto& of_bucket = levels_.emplace_back();
        for (Device* device : devices_) {
            Levels& levels = of_bucket.emplace_back();
            for (unsigned left = most; left > 0; left /= 2) {
                TRAINER_ASSIGN(DeviceMemory level,
                               DeviceMemory::make(*device, bucket.sums_bytes()));
                levels.of.push_back(std::move(level));
            }
        }
    }
    return {};
}

Result<> MicroSums::widen(std::size_t bucket, std::size_t device) {
    const Group& group = buckets_[bucket];
    return devices_[device]->convert(group.count(), group.dtype, group.memory[device].data(),
                                     group.sums_dtype(), group.sums(device));
}

Result<> MicroSums::round(std::size_t bucket, std::size_t device) {
    const Group& group = buckets_[bucket];
    return devices_[device]->convert(group.count(), group.sums_dtype(), group.sums(device),
                                     group.dtype, group.memory[device].data());
}

Result<> MicroSums::add(std::size_t bucket, std::size_t device, const DeviceMemory& level) {
    const Group& group = buckets_[bucket];
    return devices_[device]->axpby(group.count(), group.sums_dtype(), 1, level.data(), 1,
                                   group.sums(device));
}

// A binary counter: a carry is a sum of two sums of the same length.
Result<> MicroSums::put_away(std::size_t bucket, std::size_t device, int micro) {
    auto& levels = levels_[bucket][device].of;
    std::size_t l = 0;
    TRAINER_TRY(widen(bucket, device));
    for (; (micro >> l) & 1; ++l) TRAINER_TRY(add(bucket, device, levels[l]));
    return devices_[device]->copy(levels[l].data(), buckets_[bucket].sums(device),
                                  buckets_[bucket].sums_bytes());
}

Result<> MicroSums::take_up(std::size_t bucket, std::size_t device, int micro) {
    auto& levels = levels_[bucket][device].of;
    TRAINER_TRY(widen(bucket, device));
    for (std::size_t l = 0; l < levels.size(); ++l)
        if ((micro >> l) & 1) TRAINER_TRY(add(bucket, device, levels[l]));
    return {};
}

}  // namespace tutti::trainer
