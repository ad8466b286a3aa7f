// The communicators of this process, for its end.
#pragma once

#include <memory>

#include "base/clock.h"

namespace tutti {

class Communicator;

namespace living_communicators {

void add(const std::shared_ptr<Communicator>& comm);
void remove(const Communicator& comm);
/// All leave in order: what finished calls owe is delivered, and the others hear a goodbye. As the
/// process ends, none is freed.
void leave_all(Deadline deadline);

}  // namespace living_communicators
}  // namespace tutti
