#include "proof/values.h"

namespace tutti::symbolic {

Content Values::content(Value value) const {
    if (!value.is_input()) return contents_[value.number()];
    const auto rank = static_cast<Rank>(value.number());
    const Contributions from = Contributions::of(rank, value.chunk());
    return {from, Order::of(rank), from.low};
}

Value Values::combine(Value first, Value second, Form result, uint32_t guess) {
    Content made = content(first);
    const Content other = content(second);
    made.from += other.from;
    made.order = made.order + other.order;
    made.bits = mix(mix(mix(made.bits, other.bits), 3), static_cast<uint64_t>(result));
    const Value value = keep(made, result, first.chunk(), guess);
    if (words_ == 0 || !value.defined()) return value;
    known_.resize(contents_.size() * words_);
    const std::span<uint64_t> known(&known_[value.number() * words_], words_);
    note_arrivals(first, known);
    note_arrivals(second, known);
    return value;
}

Value Values::convert(Value value, Form result, uint32_t guess) {
    // Widening is exact, and a reduction widens a raw operand anyway: only the end rounds.
    const bool widens = value.form() == Form::raw && result == Form::partial;
    if (widens || value.form() == result) return value.widened(result);
    Content made = content(value);
    made.bits = mix(made.bits, 5 + static_cast<uint64_t>(result));
    return keep(made, result, value.chunk(), guess);
}

void Values::note_arrivals(Value value, std::span<uint64_t> known) const {
    if (value.is_input())
        known[value.number() / 64] |= uint64_t{1} << value.number() % 64;
    else
        for (std::size_t i = 0; i < words_; ++i) known[i] |= known_[value.number() * words_ + i];
}

bool Values::knows(Value value, Rank rank) const {
    const auto bit = static_cast<std::size_t>(rank);
    if (value.is_input()) return value.number() == bit;
    return known_[value.number() * words_ + bit / 64] >> bit % 64 & 1;
}

// `bits` is a hash already, so it serves as the index.
uint32_t& Values::slot_of(const Content& content) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = content.bits & mask;
    while (slots_[at] != 0 && !(contents_[slots_[at] - 1] == content)) at = (at + 1) & mask;
    return slots_[at];
}

Value Values::keep(const Content& content, Form form, uint32_t chunk, uint32_t guess) {
    if (guess < contents_.size() && contents_[guess] == content)
        return Value::result(form, chunk, guess);
    if (2 * contents_.size() >= slots_.size()) grow();
    uint32_t& slot = slot_of(content);
    if (slot == 0) {
        if (contents_.size() >= Value::most_results) return {};
        contents_.push_back(content);
        slot = static_cast<uint32_t>(contents_.size());
    }
    return Value::result(form, chunk, slot - 1);
}

void Values::grow() {
    slots_.assign(slots_.empty() ? 64 : 2 * slots_.size(), 0);
    for (std::size_t i = 0; i < contents_.size(); ++i)
        slot_of(contents_[i]) = static_cast<uint32_t>(i + 1);
}

}  // namespace tutti::symbolic
