// Operations on device memory whose blocking calls have returned: they are polled until they end,
// and the next call reports their failure.
#pragma once

#include <list>
#include <memory>

#include "gpu/device_side.h"

namespace tutti {

/// Only the issuing thread uses it.
class Detached {
public:
    explicit Detached(DeviceSide& side) : side_(side) {}

    bool empty() const { return requests_.empty(); }
    /// Keeps the request that `start` starts. Reserves the place first: a started request must be
    /// kept.
    template <typename Start>
    Result<> keep(Start start) {
        std::list<std::unique_ptr<Request>> one(1);
        TUTTI_ASSIGN(one.front(), start());
        requests_.splice(requests_.end(), one);
        return {};
    }
    /// Drops operations that are done; returns their first failure, for the next call to report.
    Result<> take_error();
    /// Waits for all operations; returns the first failure.
    Result<> sync(int64_t timeout_ms);
    void clear() { requests_.clear(); }

private:
    DeviceSide& side_;
    std::list<std::unique_ptr<Request>> requests_;
};

}  // namespace tutti
