// The launcher's own key space: rank 0 publishes the address of its store there.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"

namespace tutti {

/// Collective over the job's ranks: returns rank 0's value, without blanks, on every rank. PMI-1 as
/// MPICH's launcher speaks it on the descriptor PMI_FD. The program's MPI may have used it before,
/// or may use it later, but not at the same time.
Result<std::string> share_over_pmi(const GetEnv& get_env, Rank rank, const std::string& value,
                                   Deadline deadline);

/// The same over PMIx; loads its library (libpmix.so.2).
Result<std::string> share_over_pmix(Rank rank, const std::string& value, Deadline deadline);

}  // namespace tutti
