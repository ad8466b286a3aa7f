// A call bound once: the call, the chosen algorithm, and the operation that runs it.
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
    /// Copies the data to which the call refers, because a plan outlives the call.
    Plan(const Call& wanted, uint32_t on_stream);

    Call call;
    std::string algorithm;             // call.algorithm points here
    std::vector<std::size_t> lengths;  // the call's lists point here
    std::vector<const void*> inputs;   // of the current run, if the call has several
    uint32_t stream = 0;
    std::size_t bytes = 0;  // of the caller's larger buffer
    Tag tag;                // all but the sequence
    std::unique_ptr<Operation> operation;
    std::unique_ptr<Plan> offloaded;  // the same call on an accelerator's memory, once needed
    uint64_t generation = 0;          // of the accelerator's group to which it was bound
    void* queue = nullptr;            // of a persistent plan's runs on an accelerator
    int64_t timeout_ms = -1;          // of a persistent plan's runs; < 0: the communicator's
    std::atomic<bool> busy{false};    // a request runs it

    bool busy_anywhere() const { return busy || (offloaded && offloaded->busy); }
};

}  // namespace tutti
