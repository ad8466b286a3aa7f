#include "gpu/detached.h"

#include <algorithm>

namespace tutti {

Result<> Detached::take_error() {
    while (!requests_.empty() && requests_.front()->done()) {
        const auto request = std::move(requests_.front());
        requests_.pop_front();
        if (request->code.load(std::memory_order_acquire) != Code::ok)
            return tl::unexpected(std::move(request->error));
    }
    return {};
}

Result<> Detached::sync(int64_t timeout_ms) {
    const Deadline limit = Deadline::after_ms(timeout_ms < 0 ? 0 : timeout_ms);
    while (!requests_.empty()) {
        const int64_t left_ms = timeout_ms < 0    ? -1
                                : timeout_ms == 0 ? 0
                                                  : std::max<int64_t>(1, limit.left_ms(timeout_ms));
        TUTTI_TRY(side_.progress.may_wait(*requests_.front()));
        if (!side_.progress.wait(*requests_.front(), left_ms))
            return fail(Code::timeout, "{} operations on device memory are not done after {} ms",
                        requests_.size(), timeout_ms)
                .advice(
                    "call tutti_comm_sync again with a longer timeout, or look at what the "
                    "other ranks do");
        TUTTI_TRY(take_error());
    }
    return {};
}

}  // namespace tutti
