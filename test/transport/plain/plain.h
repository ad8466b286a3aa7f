// Message ports over plain messengers.
#pragma once

#include <memory>

#include "fabric/messages/port.h"
#include "transport/plain/messenger.h"

namespace tutti::test {

using PlainPort = fabric::MessagePort<PlainMessenger>;

Result<std::unique_ptr<fabric::PortFactory>> make_plain_factory(Rank rank, Rank size);

}  // namespace tutti::test
