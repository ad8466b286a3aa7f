// FNV-1a, 64 bits. The same on every platform, so that it may travel between ranks; std::hash may
// not.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr uint64_t hash_basis = 0xcbf29ce484222325;

/// The hash is made of bytes, or of words, one after the other from hash_basis on.
constexpr uint64_t mix_hash(uint64_t hash, uint64_t word) {
    return (hash ^ word) * 0x100000001b3;
}

constexpr uint64_t hash_of(std::string_view text) {
    uint64_t hash = hash_basis;
    for (const char c : text) hash = mix_hash(hash, static_cast<unsigned char>(c));
    return hash;
}

}  // namespace tutti
