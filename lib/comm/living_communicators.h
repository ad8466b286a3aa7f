// The list of this process's communicators, for the exit handler.
#pragma once

#include <memory>

#include "base/clock.h"

namespace tutti {

class Communicator;

namespace living_communicators {

void add(const std::shared_ptr<Communicator>& comm);
void remove(const Communicator& comm);
/// Every communicator delivers the unsent output of finished calls and sends the other ranks a
/// goodbye. None is freed, because the process ends.
void leave_all(Deadline deadline);

}  // namespace living_communicators
}  // namespace tutti
