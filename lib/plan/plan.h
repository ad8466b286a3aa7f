// A call bound once: what was asked for, what was chosen, and the operation that does it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/call.h"
#include "transport/operation.h"

namespace tutti {

struct Plan {
    /// Copies what the call refers to: a plan outlives the call that it was made for.
    Plan(const Call& wanted, uint32_t on_stream);

    Call call;
    std::string algorithm;             // what call.algorithm points to
    std::vector<std::size_t> lengths;  // what the call's lists point to
    std::vector<const void*> inputs;   // of the run under way, where the call has several
    uint32_t stream = 0;
    std::size_t bytes = 0;  // of the caller's larger buffer
    Tag tag;                // all but the sequence
    std::unique_ptr<Operation> operation;
    std::unique_ptr<Plan> offloaded;  // the same call on an accelerator's memory, once needed
    uint64_t generation = 0;          // of the group there that it was bound to
    void* queue = nullptr;            // of a persistent plan's runs, on an accelerator
    int64_t timeout_ms = -1;          // likewise; < 0: the communicator's
    std::atomic<bool> busy{false};    // a request runs it

    bool busy_anywhere() const { return busy || (offloaded && offloaded->busy); }
};

}  // namespace tutti
