// A failed call returns an error to the program, and tells the other ranks where they wait.
#pragma once

#include "comm/core.h"

namespace tutti {

/// Tells the other ranks of an error, so that they do not wait for what this rank cannot do.
void report_failure(Core& core, const Error& error);

/// A collective could not be prepared: the error for the caller, after the other ranks have been
/// told where they have to be.
Error binding_failed(Core& core, const Error& error);

/// The same for a send or a receive whose channels could not be opened.
Error contact_failed(Core& core, const Transfer& transfer, const Error& error);

}  // namespace tutti
