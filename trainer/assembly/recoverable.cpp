#include "trainer/assembly/recoverable.h"

namespace tutti::trainer {
namespace {

template <typename... Args>
ErrorResult unsupported(fmt::format_string<Args...> text, Args&&... args) {
    return fail(TUTTI_ERR_UNSUPPORTED, "recovery.recover: {}",
                fmt::format(text, std::forward<Args>(args)...));
}

Result<> check_options(const TrainerSettings& settings, bool trains) {
    if (!trains)
        return unsupported("the trainer has no update builder, so it has no steps to repeat")
            .advice("set recover for the trainer that trains, and build this one without ranks");
    if (settings.scale_learning_rate)
        return unsupported(
                   "with options.scale = TUTTI_SCALE_LEARNING_RATE the update builder has used the "
                   "first number of replicas")
            .advice("set options.scale to TUTTI_SCALE_LOSS");
    if (!settings.synchronous())
        return unsupported(
                   "with options.local_steps the ranks' parameters differ between two averages, "
                   "and a lost rank's cannot be had back")
            .advice("set options.local_steps to 0");
    return {};
}

Result<> check_collective(const DeclaredOperation& operation) {
    const CollectiveCall& call = *operation.collective;
    if (call.kind != TUTTI_COLLECTIVE_ALLREDUCE)
        return unsupported(
                   "collective '{}' depends on the first number of replicas, or on one "
                   "of them",
                   operation.full_name())
            .advice("declare only collectives of kind TUTTI_COLLECTIVE_ALLREDUCE");
    if (call.op == TUTTI_AVG)
        return unsupported(
                   "the gradient of the average '{}' depends on the first number of "
                   "replicas",
                   operation.full_name())
            .advice("declare a sum of the values and of their number, and divide");
    return {};
}

}  // namespace

Result<> check_recoverable(const TrainerSettings& settings, const ModelRecorder& recorder,
                           bool trains) {
    TRAINER_TRY(check_options(settings, trains));
    for (const Buffer& buffer : recorder.buffers()) {
        if (buffer.distributed())
            return unsupported("buffer '{}' is distributed: a lost rank's shard is lost, too",
                               buffer.full_name())
                .advice("declare it without TUTTI_DISTRIBUTED, or restart from a checkpoint");
        if (buffer.sparse())
            return unsupported(
                       "the gradient's list of the sparse parameter '{}' has its length "
                       "from the first number of replicas",
                       buffer.full_name())
                .advice("declare it without TUTTI_SPARSE");
    }
    for (const DeclaredOperation& operation : recorder.operations())
        if (operation.collective) TRAINER_TRY(check_collective(operation));
    return {};
}

}  // namespace tutti::trainer
