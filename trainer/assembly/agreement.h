// The collectives by which the ranks agree on a model while it is built: each difference is an
// error on every rank.
#pragma once

#include <string>

#include "trainer/model/recorder.h"
#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// Every rank takes part, also after its own failure. Returns that failure, or else an error that
/// names a rank that failed or has another number of devices.
Result<> agree(const Comm& comm, int devices, const Result<>& own);

/// INVALID on every rank if one's signature is not rank 0's; the error has the first line that
/// differs. True on every rank if rank 0 admits the others to a training.
Result<bool> compare_signatures(const Comm& comm, const std::string& signature, bool admits);

/// Numbers the rows of shards without total_rows: the shards follow one another in the order of the
/// replicas.
Result<> number_rows(ModelRecorder& recorder, const Replicas& replicas);

}  // namespace tutti::trainer
