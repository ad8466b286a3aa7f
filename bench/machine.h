// Describes the machine of a measurement, without its name.
#pragma once

#include <nlohmann/json.hpp>

namespace bench {

/// Returns the fields kernel, machine, cpu, cores (the cores that this process may use) and caches.
nlohmann::ordered_json describe_machine();

}  // namespace bench
