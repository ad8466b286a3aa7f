// Opens libfabric ports for the fabric engine.
#pragma once

#include <memory>

#include "fabric/port.h"
#include "transports/ofi/port.h"

namespace tutti::ofi {

/// Chooses the provider; unsupported: none fits.
Result<std::unique_ptr<fabric::PortFactory>> make_factory(const PortOptions& options);

}  // namespace tutti::ofi
