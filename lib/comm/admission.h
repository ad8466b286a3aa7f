// Gives a request its place in the order of operations, which is the same on every rank; while
// there is an alarm, the caller waits here until the communicator works again.
#pragma once

#include "comm/core.h"

namespace tutti {

/// For the issuing thread only.
class Admission {
public:
    explicit Admission(Core& core) : core_(core) {}

    /// The stream of the next operation. wanted < 0: round robin by the operation's number, which
    /// is the same on every rank even if earlier operations have failed.
    uint32_t stream_for(int wanted) const;
    /// Called before a call is prepared, which talks to peers and the store. Waits until the
    /// communicator works again, so that no rank waits for a rank that is gone.
    Result<> enter(uint32_t stream, int64_t timeout_ms);

    enum class Place : uint8_t {
        given,     // the request runs, and the caller owns its stream
        outdated,  // a mismatch came since the request was prepared: begin again
    };
    Result<Place> submit(Request& request, Plan& plan, int64_t timeout_ms);

private:
    Result<> wait_to_enter(Stream& stream, int64_t timeout_ms);
    Result<> wait_out_alarm(Stream& stream, int64_t timeout_ms);
    Error not_all_back(int64_t timeout_ms);
    Result<> propose(Stream& stream, const Tag& tag);

    Core& core_;
};

}  // namespace tutti
