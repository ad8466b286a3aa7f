// The end of a request, as its owner and the threads that sleep hear of it.
#pragma once

#include "run/request.h"
#include "wait/waiting.h"

namespace tutti {

/// The request is done. Afterwards it may be gone: its owner sees the code and frees it.
inline void publish(Request& request, Code code, Waiting& waiting) {
    if (request.driven_by_issuer) return request.code.store(code, std::memory_order_release);
    if (request.keep) waiting.drop_pending();
    request.completion.fire(code);
    request.code.store(code, std::memory_order_seq_cst);
    waiting.wake_sleepers();
}

}  // namespace tutti
