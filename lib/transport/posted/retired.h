// The communicators that this rank has left. Their numbers are never used again, so whatever still
// comes for one of them is known to be late, however long ago that was.
#pragma once

#include <mutex>

#include "base/id_set.h"

namespace tutti {

/// Any thread. Looked at when a channel opens or closes, and for frames of channels that are not
/// there: never while data moves.
class Retired {
public:
    void insert(uint32_t comm) {
        const std::lock_guard lock(mutex_);
        comms_.insert(comm);
    }
    bool contains(uint32_t comm) const {
        const std::lock_guard lock(mutex_);
        return comms_.contains(comm);
    }

private:
    mutable std::mutex mutex_;
    IdSet comms_;
};

}  // namespace tutti
