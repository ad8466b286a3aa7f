#include "engine/wires.h"

#include <algorithm>

namespace tutti {

Wires::Wires(std::vector<std::unique_ptr<BoundSchedule>> all, std::size_t element_bytes)
    : all_(std::move(all)), element_bytes_(element_bytes) {
    for (const auto& wire : all_) {
        slots_ = std::max(slots_, wire->window().slots);
        fills_ = std::max(fills_, wire->window().fills);
    }
}

std::size_t Wires::slot_bytes(Space space, std::size_t wire) const {
    return all_[wire]->window().slot(space) * element_bytes_;
}

std::size_t Wires::place(Space space, std::size_t wire, uint32_t slot) const {
    std::size_t at = 0;
    for (std::size_t w = 0; w < wire; ++w) at += all_[w]->window().slots * slot_bytes(space, w);
    return at + slot * slot_bytes(space, wire);
}

std::size_t Wires::bytes(Space space) const {
    return place(space, all_.size() - 1, all_.back()->window().slots);
}

void Wires::start(const Tag& tag, const void* in, void* out) {
    for (std::size_t w = 0; w < all_.size(); ++w)
        all_[w]->start(tag, static_cast<const std::byte*>(in) + place(Space::input, w, 0),
                       static_cast<std::byte*>(out) + place(Space::output, w, 0));
}

Poll Wires::progress() {
    Poll all = Code::ok;
    for (const auto& wire : all_) {
        const Poll one = wire->progress();
        if (one.failure) return one;
        all.moved |= one.moved;
        if (one.pending()) all.code = one.code;
    }
    return all;
}

void Wires::cancel() {
    for (const auto& wire : all_) wire->cancel();
}

void Wires::arm(bool on) {
    for (const auto& wire : all_) wire->arm(on);
}

Code Wires::health() const {
    for (const auto& wire : all_)
        if (const Code code = wire->health(); code != Code::ok) return code;
    return Code::ok;
}

Rank Wires::waits_for() const {
    for (const auto& wire : all_)
        if (const Rank peer = wire->waits_for(); peer != nobody) return peer;
    return nobody;
}

void Wires::allow(uint32_t fills) {
    for (const auto& wire : all_) wire->allow(std::min(fills, wire->window().fills));
}

// Ignores a schedule that has finished all its fills, so that it does not hold back the others.
uint32_t Wires::finished() const {
    uint32_t least = fills_;
    for (const auto& wire : all_)
        if (wire->finished() < wire->window().fills) least = std::min(least, wire->finished());
    return least;
}

bool Wires::drained() const {
    return std::all_of(all_.begin(), all_.end(), [](const auto& wire) { return wire->drained(); });
}

}  // namespace tutti
