// Describes the machine of a measurement, without its name.
#pragma once

#include <nlohmann/json.hpp>

namespace bench {

/// kernel, machine, cpu, cores (that this process may use), caches.
nlohmann::ordered_json describe_machine();

}  // namespace bench
