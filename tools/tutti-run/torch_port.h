// A port that is kept free for torch.distributed's store: MASTER_PORT.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace tutti::run {

/// While the descriptor is open, the kernel gives the port to no other process, and rank 0 can
/// listen on it.
struct TorchPort {
    UniqueFd reservation;
    uint16_t number = 0;
};
Result<TorchPort> reserve_torch_port();

}  // namespace tutti::run
