#include "comm/messenger.h"

#include <new>

#include "comm/failures.h"

namespace tutti {

Result<> Messenger::post(Transfer& transfer, int64_t timeout_ms) {
    TUTTI_TRY(core_.may_call());
    TUTTI_TRY(core_.transfers.check(transfer));
    TUTTI_TRY(core_.may_start());
    // After a loss a receive may still take a message that has arrived (Transfers::purge).
    const auto over = core_.failure_protocol.fatal_error();
    if (over && (transfer.sends || !over->may_receive)) return tl::unexpected(over->error);
    if (auto posted = connect_and_post(transfer, timeout_ms); !posted)
        return tl::unexpected(contact_failed(core_, transfer, posted.error()));
    return {};
}

Result<> Messenger::connect_and_post(Transfer& transfer, int64_t timeout_ms) {
    try {
        TUTTI_TRY(core_.transfers.connect(transfer, timeout_ms));
        core_.transfers.post(transfer, timeout_ms);
        return {};
    } catch (const std::bad_alloc&) {
        return fail(Code::no_memory, "there is no memory to {} {} bytes",
                    transfer.sends ? "send" : "receive", transfer.bytes);
    }
}

Result<> Messenger::run(Transfer& transfer) {
    TUTTI_TRY(post(transfer, -1));
    progress_.wait(transfer, -1);
    if (transfer.code.load(std::memory_order_acquire) == Code::ok) return {};
    return tl::unexpected(std::move(transfer.error));
}

Result<std::unique_ptr<Request>> Messenger::start(std::unique_ptr<Transfer> transfer,
                                                  int64_t timeout_ms) {
    transfer->keep = core_.self.lock();
    core_.waiting.add_pending();
    if (auto posted = post(*transfer, timeout_ms); !posted) {
        core_.waiting.drop_pending();
        return tl::unexpected(std::move(posted).error());
    }
    transfer->done() ? core_.endpoint->wakeups().returns() : progress_.hand_over();
    return transfer;
}

}  // namespace tutti
