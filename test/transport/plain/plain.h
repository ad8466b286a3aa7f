// Rendezvous ports over plain messengers.
#pragma once

#include <memory>

#include "fabric/rendezvous/port.h"
#include "transport/plain/messenger.h"

namespace tutti::test {

using PlainPort = fabric::RendezvousPort<PlainMessenger>;

Result<std::unique_ptr<fabric::PortFactory>> make_plain_factory(Rank rank, Rank size);

}  // namespace tutti::test
