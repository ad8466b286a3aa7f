#include "trainer/sync/samples.h"

#include <algorithm>
#include <array>

#include "trainer/sync/collectives.h"

namespace tutti::trainer {

Result<SampleCount> count_samples(const Replicas& replicas, int micro_batches,
                                  const int64_t* samples) {
    if (!samples)
        return invalid("options.uneven is set, but samples is NULL")
            .advice("pass the number of samples of each device and micro-batch");
    const Comm& comm = replicas.comm;
    const int devices = replicas.local();
    std::array<int64_t, 2> own = {0, devices};  // samples, first device with samples
    for (int i = 0; i < devices * micro_batches; ++i) {
        if (samples[i] < 0)
            return invalid("samples[{}] is {}, which is negative", i, samples[i])
                .advice("pass 0 or more");
        own[0] += samples[i];
        if (samples[i] > 0) own[1] = std::min<int64_t>(own[1], i / micro_batches);
    }
    std::vector<int64_t> all(own.begin(), own.end());
    all.resize(2 * static_cast<std::size_t>(comm.size()));
    if (comm.size() > 1)
        TRAINER_TRY(run_within(step_name, "number of samples", [&](auto* opts, auto* request) {
            return tutti_iallgather(comm.get(), own.data(), all.data(), 2, TUTTI_INT64, opts,
                                    request);
        }));
    SampleCount count;
    for (int rank = comm.size() - 1; rank >= 0; --rank) {
        const int64_t* of_rank = &all[2 * static_cast<std::size_t>(rank)];
        count.total += of_rank[0];
        if (of_rank[0] > 0) count.first_replica = rank * devices + static_cast<int>(of_rank[1]);
    }
    return count;
}

}  // namespace tutti::trainer
