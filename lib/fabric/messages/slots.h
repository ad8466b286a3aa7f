// Objects that keep their address and have numbers that peers can refer to.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace tutti::fabric {

/// T has `uint64_t number`. find() returns nullptr for a number that was given back.
template <typename T>
class Slots {
public:
    T& take() {
        if (free_.empty()) {
            free_.push_back(static_cast<uint32_t>(slots_.size()));
            slots_.emplace_back().index = free_.back();
        }
        NumberedSlot& slot = slots_[free_.back()];
        free_.pop_back();
        slot.taken = true;
        slot.value.number = uint64_t{slot.turn} << 32 | slot.index;
        return slot.value;
    }
    void give(T& value) {
        NumberedSlot& slot = slots_[static_cast<uint32_t>(value.number)];
        slot.value = T{};
        slot.taken = false;
        ++slot.turn;
        free_.push_back(slot.index);
    }
    T* find(uint64_t number) {
        const auto index = static_cast<uint32_t>(number);
        if (index >= slots_.size()) return nullptr;
        NumberedSlot& slot = slots_[index];
        return slot.taken && slot.turn == number >> 32 ? &slot.value : nullptr;
    }
    std::size_t taken() const { return slots_.size() - free_.size(); }

    /// f may give back its argument, and take another.
    template <typename F>
    void each(F f) {
        for (std::size_t i = 0; i < slots_.size(); ++i)
            if (slots_[i].taken) f(slots_[i].value);
    }

private:
    struct NumberedSlot {
        T value;
        uint32_t index = 0;
        uint32_t turn = 0;
        bool taken = false;
    };
    std::deque<NumberedSlot> slots_;
    std::vector<uint32_t> free_;
};

}  // namespace tutti::fabric
