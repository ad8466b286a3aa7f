// Publishes the end of a request to its owner and to sleeping threads.
#pragma once

#include "run/request.h"
#include "wait/waiting.h"

namespace tutti {

/// Marks the request done. Do not touch it afterwards: its owner may see the code and free it.
inline void publish(Request& request, Code code, Waiting& waiting) {
    if (request.driven_by_issuer) return request.code.store(code, std::memory_order_release);
    if (request.keep) waiting.drop_pending();
    request.completion.fire(code);
    // Pairs with done() of a thread that has counted itself in Waiting::sleep: either that thread
    // sees the code, or wake_sleepers() sees the count.
    request.code.store(code, std::memory_order_seq_cst);
    waiting.wake_sleepers();
}

}  // namespace tutti
