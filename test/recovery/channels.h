// The operations on each communicator of a rank that makes many, and the checks of their results.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace recovery_test {

/// Ends the process; the script looks for the first word.
[[noreturn]] inline void give_up(const char* what) {
    std::fprintf(stderr, "WRONG %s: %s\n", what, tutti_last_error());
    std::exit(1);
}

inline void need(tutti_status status, const char* call) {
    if (status != TUTTI_OK) give_up(call);
}

/// A failure that another rank's end explains.
inline bool is_loss(tutti_status status) {
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_REVOKED;
}

/// Operations over all kinds of channels: flat, small and large cells, messages. Returns the status
/// of the first call that failed, and gives up on a wrong result.
inline tutti_status use_channels(tutti_comm* comm) {
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
        std::vector<float> values(count, static_cast<float>(rank + 1));
        const tutti_status status =
            tutti_allreduce(comm, values.data(), values.data(), count, TUTTI_FLOAT32, TUTTI_SUM);
        if (status != TUTTI_OK) return status;
        if (values.back() != static_cast<float>(size * (size + 1) / 2)) give_up("a wrong sum");
    }
    if (size == 1) return TUTTI_OK;
    std::vector<char> out(100'000, static_cast<char>(rank)), in(out.size());
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const tutti_status status = tutti_sendrecv(comm, out.data(), out.size(), next, 1, in.data(),
                                               in.size(), before, 1, TUTTI_UINT8, nullptr);
    if (status == TUTTI_OK && in.back() != static_cast<char>(before)) give_up("a wrong message");
    return status;
}

}  // namespace recovery_test
