// One turn of a measurement: blocking calls, requests that are started and then waited for, or runs
// of plans.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives.h"
#include "options.h"
#include "tutti/tutti.hpp"

namespace bench {

class Operation {
public:
    virtual ~Operation() = default;
    /// Runs the collective once for every pair of buffers. Throws tutti::Error.
    virtual void run() = 0;
    /// Waits for the work that run() has put on a device.
    virtual void finish() {}
};

/// Chooses by the options: plans for --persistent and for a named algorithm, because no blocking
/// call takes one; requests for --async; else blocking calls. Throws tutti::Error.
std::unique_ptr<Operation> make_operation(tutti_comm* comm, const Options& options,
                                          const Call& call, const std::vector<Buffers>& buffers);

/// For the report: "blocking", "persistent", "async" or "persistent async".
std::string mode_name(const Options& options, const std::string& algorithm);

}  // namespace bench
