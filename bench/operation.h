// One turn of a measurement: a blocking call, started-then-waited calls, or runs of plans.
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
    /// Every buffer pair once; throws tutti::Error.
    virtual void run() = 0;
    /// Waits for the work that run() has put on a device.
    virtual void finish() {}
};

/// As the options say: plans for --persistent and for a named algorithm, which no blocking call
/// takes; requests for --async; else the blocking call. Throws tutti::Error.
std::unique_ptr<Operation> make_operation(tutti_comm* comm, const Options& options,
                                          const Call& call, const std::vector<Buffers>& buffers);

/// For the report: "blocking", "persistent", "async" or "persistent async".
std::string mode_name(const Options& options, const std::string& algorithm);

}  // namespace bench
