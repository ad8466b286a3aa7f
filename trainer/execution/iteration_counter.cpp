#include "trainer/execution/iteration_counter.h"

namespace tutti::trainer {

Result<> IterationCounter::advance() {
    ++value_;
    return store();
}

Result<> IterationCounter::load(const std::string& buffer) {
    const Buffer& counter = recorder_.buffer(recorder_.find(0, buffer));
    TRAINER_TRY(replicas_.device(0).copy(&value_, counter.data, sizeof(value_)));
    return store();
}

Result<> IterationCounter::store() const {
    for (const Buffer& buffer : recorder_.buffers())
        if (buffer.counts_steps)
            TRAINER_TRY(replicas_.device(buffer.device).copy(buffer.data, &value_, sizeof(value_)));
    return {};
}

}  // namespace tutti::trainer
