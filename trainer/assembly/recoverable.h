// Whether a trainer can go on after a loss.
#pragma once

#include "trainer/model/recorder.h"
#include "trainer/model/settings.h"

namespace tutti::trainer {

/// UNSUPPORTED names the buffer, collective or option that depends on a lost rank's data, or on the
/// first number of replicas.
Result<> check_recoverable(const TrainerSettings& settings, const ModelRecorder& recorder,
                           bool trains);

}  // namespace tutti::trainer
