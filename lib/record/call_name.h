// The name of an operation that consists of several collectives, such as a trainer's step. The
// operation begins with a barrier of that name. A rank that calls another operation then gets a
// mismatch error that names both, not one about the first collective in which they differ. If a
// barrier would take too long, each collective's tag carries the name's number and its hash
// instead.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

/// The name travels in the barrier's tag, in fields that a barrier does not need: 6 bits per
/// character.
struct CallName {
    uint64_t head = 0;  // characters 0 … 9
    uint32_t tail = 0;  // characters 10 … 14
    bool operator==(const CallName&) const = default;

    static constexpr std::size_t longest = 15, in_head = 10;
    static constexpr int character_bits = 6;
    static constexpr std::string_view characters =
        " 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    /// Each character's code, or 0 for a character that is not allowed. A table, because a
    /// trainer's step encodes a name for each of its collectives.
    static constexpr std::array<uint8_t, 256> codes = [] {
        std::array<uint8_t, 256> list{};
        for (std::size_t i = 0; i < characters.size(); ++i)
            list[static_cast<unsigned char>(characters[i])] = static_cast<uint8_t>(i + 1);
        return list;
    }();

    /// nullopt if the name is too long or has a character that is not allowed. An empty text is no
    /// name.
    static constexpr std::optional<CallName> of(std::string_view text) {
        if (text.size() > longest) return std::nullopt;
        CallName name;
        for (std::size_t i = text.size(); i-- > 0;) {
            const uint8_t code = codes[static_cast<unsigned char>(text[i])];
            if (code == 0) return std::nullopt;
            if (i < in_head)
                name.head = name.head << character_bits | code;
            else
                name.tail = name.tail << character_bits | code;
        }
        return name;
    }

    /// Decodes any bits, because they may come from a wire.
    std::string text() const {
        constexpr uint64_t mask = (1u << character_bits) - 1;
        std::string text;
        for (std::size_t i = 0; i < longest; ++i) {
            const uint64_t word = i < in_head ? head : tail;
            const auto code = static_cast<std::size_t>(
                word >> character_bits * static_cast<int>(i < in_head ? i : i - in_head) & mask);
            if (code == 0) break;
            text += characters[code - 1];
        }
        return text;
    }
};
static_assert(CallName::characters.size() + 1 == 1 << CallName::character_bits);

/// The names that a collective's tag has a number for, so that other ranks can print them. A name's
/// number is its index here; 0 means any other name. Tags compare every name by its hash.
inline constexpr std::array<std::string_view, 5> numbered_names = {
    "", "trainer step", "trainer sync", "fc forward", "fc backward"};
constexpr uint32_t number_of(const CallName& name) {
    const auto found = std::ranges::find_if(
        numbered_names, [&](std::string_view text) { return CallName::of(text) == name; });
    return found == numbered_names.end() ? 0
                                         : static_cast<uint32_t>(found - numbered_names.begin());
}

}  // namespace tutti
