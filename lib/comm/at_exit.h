// The end of a process that leaves communicators alive: by exit or by a return from main.
#pragma once

#include <memory>
#include <string_view>

namespace tutti {

class Communicator;

/// One exit handler makes all living communicators leave in order, within a second together: what
/// finished calls owe is delivered, the others hear a goodbye, and no thread of tutti's runs any
/// more when exit goes on to the handlers of the libraries that such a thread enters. A forked
/// child's handler knows only what that child has made.
namespace at_exit {

/// Exit handlers run in the opposite order of their registration. So the handler is registered
/// again whenever tutti has begun to use other libraries, which `libraries` names.
void arm(std::string_view libraries);
void add(const std::shared_ptr<Communicator>& comm);
void remove(const Communicator& comm);

}  // namespace at_exit
}  // namespace tutti
