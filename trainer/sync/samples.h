// The samples of a step whose replicas have different numbers of them.
#pragma once

#include <cstdint>

#include "trainer/sync/replicas.h"

namespace tutti::trainer {

struct SampleCount {
    int64_t total = 0;       // of all replicas
    int first_replica = -1;  // with samples
};

/// Collective. samples: of this process, by device, then micro-batch.
Result<SampleCount> count_samples(const Replicas& replicas, int micro_batches,
                                  const int64_t* samples);

}  // namespace tutti::trainer
