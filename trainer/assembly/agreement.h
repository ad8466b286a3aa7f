// The collectives by which the ranks agree on a model while it is built: each difference is an
// error on every rank.
#pragma once

#include <string>

#include "trainer/model/recorder.h"
#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// Every rank takes part, also after a failure of its own. Returns that failure, or else an error
/// that names a rank that failed, or ranks with another number of devices.
Result<> agree(const Comm& comm, int devices, const Result<>& own);

/// INVALID on every rank if one's signature is not rank 0's; the error has the first line that
/// differs.
Result<> compare_signatures(const Comm& comm, const std::string& signature);

/// Gives the shards that do not say where they begin their rows: they follow one another in the
/// order of the replicas.
Result<> number_rows(ModelRecorder& recorder, const Replicas& replicas);

}  // namespace tutti::trainer
