// Checks of the declarations before any memory is allocated.
#pragma once

#include "trainer/model/recorder.h"

namespace tutti::trainer {

/// Checks that no operation uses another device's buffer, and that all devices have the same
/// parameters.
Result<> check_sanity(const ModelRecorder& recorder);

/// One line for each parameter or computed buffer; ranks with the same model have the same text. A
/// shard has only its name.
std::string signature(const ModelRecorder& recorder, int device);

}  // namespace tutti::trainer
