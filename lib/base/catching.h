// Turns exceptions into errors, for code that must report both.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "base/result.h"

namespace tutti {

/// Calls the body; an exception that it throws becomes an Error.
template <typename Body>
std::invoke_result_t<Body&> catching(Body&& body) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return tl::unexpected<Error>(Error{Code::no_memory, nobody, 0, "out of memory"});
    } catch (const std::exception& e) {
        return tl::unexpected<Error>(Error{Code::system, nobody, 0, e.what()});
    }
}

}  // namespace tutti
