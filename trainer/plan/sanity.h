// Checks of the declarations before any memory is allocated.
#pragma once

#include "trainer/model/recorder.h"

namespace tutti::trainer {

/// No operation touches another device's buffer, and all devices have the same parameters.
Result<> check_sanity(const ModelRecorder& recorder);

/// One line a parameter or computed buffer, the same text on ranks that fit together. Shards have
/// their names alone.
std::string signature(const ModelRecorder& recorder, int device);

}  // namespace tutti::trainer
