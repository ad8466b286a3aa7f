// A communicator's sends and receives: issuing, driving and ending them.
#include <limits>

#include "comm/communicator.h"
#include "comm/owned.h"

namespace tutti {
namespace {

constexpr int64_t ms = 1'000'000;
// What a rank sent before it left may still be on its way when its bye is here.
constexpr int64_t farewell_ns = 1000 * ms;

}  // namespace

Result<> Communicator::check(const Transfer& t) const {
    const char* const what = t.sends ? "send" : "recv";
    const bool any = !t.sends && t.peer == any_source;
    if (!any && (t.peer < 0 || t.peer >= size_))
        return fail(Code::invalid, "{}: rank {} is out of range: ranks go from 0 to {}{}", what,
                    t.peer, size_ - 1, t.sends ? "" : ", TUTTI_ANY_SOURCE is any");
    if (t.user_tag < 0)
        return fail(Code::invalid, "{}: tag {} is negative: tags go from 0 to {}", what, t.user_tag,
                    std::numeric_limits<int32_t>::max());
    if (!t.memory && t.bytes > 0)
        return fail(Code::invalid, "{}: the buffer is NULL but has {} bytes", what, t.bytes);
    return {};
}

Result<> Communicator::post(Transfer& transfer, int64_t timeout_ms) {
    TUTTI_TRY(forked());
    TUTTI_TRY(check(transfer));
    if (destroyed_) return fail(Code::aborted, "rank {}: the communicator was destroyed", rank_);
    if (auto over = agreement_.over()) return tl::unexpected(*over);
    const int64_t own_ms = endpoint_->config().timeout_ms;
    transfer.timeout_ms = timeout_ms < 0 ? own_ms : timeout_ms;
    auto connected = transfers_.connect(transfer, transfer_owner_, Deadline::after_ms(own_ms));
    if (!connected) return tl::unexpected(binding_failed(connected.error()));
    transfers_posted_.fetch_add(1);
    {
        const Owned owned(transfer_owner_);
        transfers_.post(transfer);
    }
    bool moved = false;
    drive_transfers(moved, true);
    return {};
}

Result<> Communicator::run(Transfer& transfer) {
    TUTTI_TRY(post(transfer, -1));
    wait(transfer, -1);
    if (transfer.code.load(std::memory_order_acquire) == Code::ok) return {};
    return tl::unexpected(std::move(transfer.error));
}

Result<std::unique_ptr<Request>> Communicator::start(std::unique_ptr<Transfer> transfer,
                                                     int64_t timeout_ms) {
    transfer->keep = shared_from_this();
    pending_.fetch_add(1);
    if (auto posted = post(*transfer, timeout_ms); !posted) {
        pending_.fetch_sub(1);
        return tl::unexpected(std::move(posted).error());
    }
    if (!transfer->done() && !manual()) endpoint_->kick();
    return transfer;
}

/// True while there is any.
bool Communicator::drive_transfers(bool& moved, bool may_open) {
    if (transfers_posted_.load() == 0) return false;
    const Owned owned(transfer_owner_, Owned::Try{});
    if (!owned.held()) return true;
    if (agreement_.alarm()) purge_transfers();
    transfers_.progress(moved, may_open);
    return transfers_posted_.load() > 0;
}

void Communicator::finished(Transfer& transfer, const Error& error) {
    if (error.code != Code::ok) {
        transfer.error = error;
        transfer.error.message =
            fmt::format("rank {}: {}: {}", rank_, transfers_.describe(transfer), error.message);
    } else if (transfer.into) {
        *transfer.into = transfer.received;
    }
    transfers_posted_.fetch_sub(1);
    publish(transfer, error.code);
}

void Communicator::purge_transfers() {
    const auto over = agreement_.over();
    const int64_t now = now_ns();
    transfers_.purge([&](Transfer& t) -> std::optional<Error> {
        if (over) return over;
        if (t.peer == rank_ || !agreement_.has_left(t.peer)) return std::nullopt;
        if (t.left_ns == 0) t.left_ns = now;
        if (now < t.left_ns + farewell_ns) return std::nullopt;
        return Error{Code::peer_lost, t.peer, 0,
                     t.peer == any_source
                         ? std::string("all other ranks have left")
                         : fmt::format("rank {} has left: it destroyed its communicator", t.peer)};
    });
}

void Communicator::look_at_transfers(int64_t now) {
    if (transfers_posted_.load() == 0) return;
    std::optional<Error> late;  // or worse
    {
        const Owned owned(transfer_owner_, Owned::Try{});
        if (!owned.held()) return;
        if (const Code code = transfers_.health(); code != Code::ok)
            late = Error{code, rank_, 0,
                         fmt::format("rank {} cannot go on with its messages: {} (is /dev/shm or "
                                     "memory full?)",
                                     rank_, code_name(code))};
        transfers_.for_each([&](Transfer& t) {
            if (t.began_ns == 0) t.began_ns = now;
            if (late || t.timeout_ms <= 0 || now < t.began_ns + t.timeout_ms * ms) return;
            late = Error{Code::timeout, t.peer, 0,
                         fmt::format("rank {} waited {} ms in a {}", rank_, t.timeout_ms,
                                     transfers_.describe(t))};
        });
    }
    if (late) agreement_.raise(*late);
}

void Communicator::arm_transfers(bool on) {
    if (transfers_posted_.load() == 0 && on) return;
    const Owned owned(transfer_owner_, Owned::Try{});
    if (owned.held()) transfers_.arm(on);
}

}  // namespace tutti
