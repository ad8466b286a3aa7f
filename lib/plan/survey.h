// Collects the properties of a communicator on which selection depends, from its endpoint.
#pragma once

#include "job/endpoint.h"
#include "select/selection.h"

namespace tutti {

/// The same on every rank, because it depends only on values that all ranks agreed on while
/// joining. The intrinsic is not in it.
SelectionInput survey(const Endpoint& endpoint, Rank ranks, bool one_host);

}  // namespace tutti
