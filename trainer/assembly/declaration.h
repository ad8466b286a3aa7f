// The model as the program's builders declare it.
#pragma once

#include "trainer/model/recorder.h"
#include "trainer/model/settings.h"
#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// Runs the input and the forward builder for each device of this process. If the model trains,
/// then declares the gradients and runs the update builder for each. The recorder gets all
/// declarations; the first error ends the call.
Result<> declare_model(const tutti_parallelize_spec& spec, const TrainerSettings& settings,
                       const Replicas& replicas, ModelRecorder& recorder);

/// Gives the options that the caller left open their values, which depend on the communicator and
/// the devices.
Result<> complete_settings(TrainerSettings& settings, const Replicas& replicas);

}  // namespace tutti::trainer
