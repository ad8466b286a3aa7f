// The stores that this process has opened, for its jobs one after the other.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "rendezvous/store.h"

namespace tutti::job_stores {

/// The store of the settings. One that rank 0 serves is kept, as it serves later jobs, too,
/// until the process ends.
Result<std::shared_ptr<Store>> open(const Config& config, Deadline deadline);

/// A name that tells apart the jobs that a process joins one after the other in the same store. It
/// is taken before anything can fail: an attempt counts on every rank, however far it comes, so
/// that the next one is the same everywhere.
std::string next_generation(const Config& config, const Store* own_store);

}  // namespace tutti::job_stores
