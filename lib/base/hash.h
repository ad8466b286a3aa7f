// FNV-1a, 64 bits. The same on every platform, so ranks may exchange it; std::hash is not.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr uint64_t hash_basis = 0xcbf29ce484222325;

/// Starts from hash_basis and mixes in bytes, or words, one after the other.
constexpr uint64_t mix_hash(uint64_t hash, uint64_t word) {
    return (hash ^ word) * 0x100000001b3;
}

constexpr uint64_t hash_of(std::string_view text) {
    uint64_t hash = hash_basis;
    for (const char c : text) hash = mix_hash(hash, static_cast<unsigned char>(c));
    return hash;
}

}  // namespace tutti
