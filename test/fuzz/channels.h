// The targets that open channels use the same tags and the same retired communicator.
#pragma once

#include "transport/channel.h"

namespace tutti::fuzz {

inline constexpr uint32_t retired_comm = 9;

inline Tag tag_of(uint64_t sequence) {
    return {.sequence = sequence, .count = 5, .call = 1, .root = 0, .plan = 0};
}

}  // namespace tutti::fuzz
