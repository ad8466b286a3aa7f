// Several bound schedules with windows, run as one: one for each stripe of the data that a rank
// carries.
#pragma once

#include <memory>
#include <vector>

#include "engine/bound_schedule.h"

namespace tutti {

/// Each schedule has memory of its own: all its slots, followed by those of the next schedule.
class Wires final : public Operation {
public:
    Wires(std::vector<std::unique_ptr<BoundSchedule>> all, std::size_t element_bytes);

    /// The largest number of slots of any schedule.
    uint32_t slots() const { return slots_; }
    uint32_t fills() const { return fills_; }
    /// Bytes of one side's memory.
    std::size_t bytes(Space space) const;
    /// A slot's offset in its side's memory, in bytes.
    std::size_t place(Space space, std::size_t wire, uint32_t slot) const;

    void start(const Tag& tag, const void* in, void* out) override;
    Poll progress() override;
    void cancel() override;
    void arm(bool on) override;
    Code health() const override;
    Rank waits_for() const override;

    // As BoundSchedule's.
    void allow(uint32_t fills);
    uint32_t finished() const;
    bool drained() const;

private:
    std::size_t slot_bytes(Space space, std::size_t wire) const;

    const std::vector<std::unique_ptr<BoundSchedule>> all_;
    const std::size_t element_bytes_;
    uint32_t slots_ = 0, fills_ = 0;
};

}  // namespace tutti
