// The flat exchange over a fabric, for the planner of collectives.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/engine.h"

namespace tutti::fabric {

using ParseAddress = std::function<Result<Address>(const PeerAddress&)>;
std::unique_ptr<IntrinsicProvider> make_flat_provider(
    std::vector<std::shared_ptr<FabricEngine>> engines, ParseAddress parse);

}  // namespace tutti::fabric
