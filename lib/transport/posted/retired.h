// The communicators that this rank has left. Their numbers are never used again, so every message
// that still arrives for one of them is late, however long ago the rank left.
#pragma once

#include <mutex>

#include "base/id_set.h"

namespace tutti {

/// Any thread. Checked when a channel opens or closes, and for frames of unknown channels, so never
/// while data moves.
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
