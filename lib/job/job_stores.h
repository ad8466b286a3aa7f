// The stores that this process has opened, for its jobs one after the other.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "rendezvous/store.h"

namespace tutti::job_stores {

/// Opens the configured store. A store that rank 0 serves is kept until the process ends, because
/// it serves later jobs, too.
Result<std::shared_ptr<Store>> open(const Config& config, Deadline deadline);

/// Opens it without a look at the kept stores, and keeps nothing: for a process that never serves
/// it.
Result<std::shared_ptr<Store>> open_anew(const Config& config, Deadline deadline);

/// The process that served the configured tcp store has ended: serves it anew, with no keys, at the
/// first of its places that is on this host, unless another rank does already.
Result<std::shared_ptr<Store>> take_over(const Config& config, Deadline deadline);

/// A name that tells apart the jobs that a process joins one after the other in the same store. The
/// caller takes it before anything can fail: each attempt counts on every rank, however far it
/// comes, so that the next name is the same on every rank.
std::string next_generation(const Config& config, const Store* own_store);

}  // namespace tutti::job_stores
