// A failed call returns an error to the program, and tells the other ranks if they wait for it.
#pragma once

#include "comm/core.h"

namespace tutti {

/// Tells the other ranks of an error, so that they do not wait for this rank.
void report_failure(Core& core, const Error& error);

/// Called when a collective could not be prepared: tells the other ranks if they must know, then
/// returns the error for the caller.
Error binding_failed(Core& core, const Error& error);

/// The same for a send or receive whose channels could not be opened.
Error contact_failed(Core& core, const Transfer& transfer, const Error& error);

}  // namespace tutti
