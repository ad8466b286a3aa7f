#include "trainer/sync/micro_sums.h"

namespace tutti::trainer {

void MicroSums::append_nodes(Program& program, BucketFunction function) {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
        for (std::size_t d = 0; d < devices_.size(); ++d) {
            ProgramNode node =
                group_node(buckets_[b], "micro-batches, " + buckets_[b].name, static_cast<int>(d));
            node.own = [this, function, b, d](const RunContext& context) {
                return (this->*function)(b, d, context.micro);
            };
            program.nodes.push_back(std::move(node));
        }
}

void MicroSums::append_stores(Program& micro) {
    append_nodes(micro, &MicroSums::store);
}

void MicroSums::append_sums(Program& last, bool rounds) {
    append_nodes(last, rounds ? &MicroSums::add_stored_and_round : &MicroSums::add_stored);
}

Result<> MicroSums::allocate() {
    // The binary counter in store() counts to `most`. It has a level for each bit of that number,
    // because all of the bits can be set at the same time.
    const auto most = static_cast<unsigned>(micro_batches_ - 1);
    for (const BufferGroup& bucket : buckets_) {
        auto& of_bucket = levels_.emplace_back();
        for (Device* device : devices_) {
            Levels& levels = of_bucket.emplace_back();
            for (unsigned left = most; left > 0; left /= 2) {
                TRAINER_ASSIGN(DeviceAllocation level,
                               DeviceAllocation::make(*device, bucket.sums_bytes()));
                levels.of.push_back(std::move(level));
            }
        }
    }
    return {};
}

Result<> MicroSums::widen(std::size_t bucket, std::size_t device) {
    const BufferGroup& group = buckets_[bucket];
    return devices_[device]->convert(group.count(), group.dtype, group.memory[device].data(),
                                     group.sums_dtype(), group.sums(device));
}

Result<> MicroSums::add(std::size_t bucket, std::size_t device, const DeviceAllocation& level) {
    const BufferGroup& group = buckets_[bucket];
    return devices_[device]->axpby(group.count(), group.sums_dtype(), 1, level.data(), 1,
                                   group.sums(device));
}

// The levels are a binary counter of the micro-batches stored so far, which are `micro` many: level
// l holds a sum of 2^l of them if bit l is set. A carry adds two sums of equally many
// micro-batches, so the order of additions is the tree of micro_sums.h.
Result<> MicroSums::store(std::size_t bucket, std::size_t device, int micro) {
    auto& levels = levels_[bucket][device].of;
    std::size_t l = 0;
    TRAINER_TRY(widen(bucket, device));
    for (; (micro >> l) & 1; ++l) TRAINER_TRY(add(bucket, device, levels[l]));
    return devices_[device]->copy(levels[l].data(), buckets_[bucket].sums(device),
                                  buckets_[bucket].sums_bytes());
}

Result<> MicroSums::add_stored(std::size_t bucket, std::size_t device, int micro) {
    auto& levels = levels_[bucket][device].of;
    TRAINER_TRY(widen(bucket, device));
    for (std::size_t l = 0; l < levels.size(); ++l)
        if ((micro >> l) & 1) TRAINER_TRY(add(bucket, device, levels[l]));
    return {};
}

Result<> MicroSums::add_stored_and_round(std::size_t bucket, std::size_t device, int micro) {
    const BufferGroup& group = buckets_[bucket];
    TRAINER_TRY(add_stored(bucket, device, micro));
    return devices_[device]->convert(group.count(), group.sums_dtype(), group.sums(device),
                                     group.dtype, group.memory[device].data());
}

}  // namespace tutti::trainer
