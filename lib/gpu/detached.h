// Operations on device memory whose blocking calls have returned: they are polled until they end,
// and the next call reports their failure.
#pragma once

#include <list>
#include <memory>

#include "gpu/device_side.h"

namespace tutti {

/// The issuing thread's.
class Detached {
public:
    explicit Detached(DeviceSide& side) : side_(side) {}

    bool empty() const { return requests_.empty(); }
    /// Keeps what `start` starts. Makes the place first, as a started request has to be kept.
    template <typename Start>
    Result<> keep(Start start) {
        std::list<std::unique_ptr<Request>> one(1);
        TUTTI_ASSIGN(one.front(), start());
        requests_.splice(requests_.end(), one);
        return {};
    }
    /// Drops those that are done; the first failure among them, which the next call has to report.
    Result<> take_error();
    /// Waits for all of them; the first failure.
    Result<> sync(int64_t timeout_ms);
    void clear() { requests_.clear(); }

private:
    DeviceSide& side_;
    std::list<std::unique_ptr<Request>> requests_;
};

}  // namespace tutti
