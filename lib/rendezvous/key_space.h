// The launcher's own key space: by it rank 0 tells the others where its store listens.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"

namespace tutti {

/// Collective over the job's ranks: rank 0's value, without blanks, on every rank. PMI-1 as MPICH's
/// launcher speaks it on the descriptor PMI_FD; the program's MPI may have used it before, or may
/// use it later, but not meanwhile.
Result<std::string> share_over_pmi(const GetEnv& get_env, Rank rank, const std::string& value,
                                   Deadline deadline);

/// The same by PMIx, whose library (libpmix.so.2) is loaded for it.
Result<std::string> share_over_pmix(Rank rank, const std::string& value, Deadline deadline);

}  // namespace tutti
