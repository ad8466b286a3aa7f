// Communicators of processes that exchange their handles, for python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "communicator.h"

namespace tutti_python {

/// This process's handle with these settings.
nanobind::bytes handle(const Settings& settings);
/// A communicator of the processes of these handles. timeout_ms: -1 for the settings'.
std::unique_ptr<Communicator> reconfigure(const Settings& settings, const std::string& uuid,
                                          const std::vector<nanobind::bytes>& handles,
                                          int64_t timeout_ms);

}  // namespace tutti_python
