#include "p2p/transfers.h"

#include <algorithm>
#include <limits>
#include <new>

#include "wait/owned.h"

namespace tutti {
namespace {

// What a rank sent before it left may still be on its way when its bye is here.
constexpr int64_t farewell_ns = 1'000'000'000;
// A send up to this is copied and done; a larger one waits for its receive and is not copied.
constexpr std::size_t eager_bytes = 32 * 1024;

}  // namespace

Transfers::Transfers(const Config& config, const Group& group, std::size_t message_bytes,
                     ChannelTable& channels, Agreement& agreement, Waiting& waiting)
    : config_(config),
      rank_(group.rank()),
      size_(group.size()),
      message_bytes_(message_bytes),
      agreement_(agreement),
      waiting_(waiting),
      engine_(rank_, size_, channels,
              {.message_bytes = message_bytes,
               .eager_bytes = std::min(message_bytes, eager_bytes),
               .unexpected_bytes = config.unexpected_bytes},
              *this) {}

Result<> Transfers::check(const Transfer& t) const {
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

/// What a message gets whose other end may be there no more.
Error Transfers::left_error(Rank partner) {
    return {Code::peer_lost, partner, 0,
            partner == any_source
                ? std::string("all other ranks have left")
                : fmt::format("rank {} has left: it destroyed its communicator", partner)};
}

Result<> Transfers::connect(const Transfer& transfer, int64_t timeout_ms) {
    if (transfer.sends && !engine_.connected(transfer.peer) && agreement_.has_left(transfer.peer))
        return tl::unexpected(left_error(transfer.peer));
    return engine_.connect(transfer, owner_,
                           Deadline::after_ms(timeout_ms < 0 ? config_.timeout_ms : timeout_ms),
                           agreement_.ended());
}

void Transfers::post(Transfer& transfer, int64_t timeout_ms) {
    transfer.timeout_ms = timeout_ms < 0 ? config_.timeout_ms : timeout_ms;
    {
        const Owned owned(owner_);
        posted_.fetch_add(1);
        try {
            engine_.post(transfer);
        } catch (...) {
            posted_.fetch_sub(1);
            throw;
        }
    }
    bool moved = false;
    try {
        drive(moved);
    } catch (const std::bad_alloc&) {
        // It is posted: whoever waits for it tries again.
    }
}

void Transfers::post(Exchange& exchange) {
    waiting_.watch();
    posted_.fetch_add(1 + static_cast<int>(exchange.parts.size()));
    const Owned owned(owner_);
    exchanges_.push_back(&exchange);
    // A rank's message to itself is received before it is sent.
    for (const bool sends : {false, true})
        for (Exchange::Part& part : exchange.parts) {
            if (part.asked.message.sends != sends) continue;
            part.on_host.timeout_ms = exchange.timeout_ms;
            engine_.post(part.on_host);
        }
}

/// True while there is any.
bool Transfers::drive(bool& moved) {
    if (posted_.load() == 0) return false;
    const Owned owned(owner_, Owned::Try{});
    if (!owned.held()) return true;
    bool arrived = false;
    engine_.progress(arrived);  // first: what has arrived is used
    moved |= arrived;
    if (agreement_.alarm()) {
        if (arrived) moved_ns_ = now_ns();
        purge();
    }
    progress_exchanges(moved);
    return posted_.load() > 0;
}

// ---- on devices --------------------------------------------------------------------------------

void Transfers::progress_exchanges(bool& moved) {
    const std::size_t before = exchanges_.size();
    std::erase_if(exchanges_, [&](Exchange* exchange) { return progress(*exchange, moved); });
    moved |= exchanges_.size() != before;
}

/// True if it is over, and may be gone.
bool Transfers::progress(Exchange& e, bool& moved) {
    if (!e.released.load(std::memory_order_acquire)) return false;
    if (e.staged) return progress_staged(e, moved);
    for (const Exchange::Part& part : e.parts) {
        const Code code = part.on_host.code.load(std::memory_order_acquire);
        if (code == Code::in_progress) return false;
        if (code != Code::ok) return end(e, part.on_host.error);
    }
    if (const auto misfit = e.misfit(rank_)) {
        agreement_.raise(*misfit);
        return end(e, *misfit);
    }
    const Code code = e.moves ? e.moves->progress() : Code::ok;
    if (code == Code::in_progress) return false;
    return code == Code::ok ? succeed(e) : fail_device(e, code);
}

// As on the host, a message that went wrong is one message's trouble; the others are there.
bool Transfers::progress_staged(Exchange& e, bool& moved) {
    const Code code = e.moves->progress();
    moved |= e.moves->moved();
    if (code == Code::in_progress) return false;
    if (code != Code::ok) return fail_device(e, code);
    for (const Exchange::Part& part : e.parts)
        if (!part.on_host.done()) return false;
    for (const Exchange::Part& part : e.parts)
        if (part.on_host.code.load(std::memory_order_acquire) != Code::ok)
            return end(e, part.on_host.error);
    return succeed(e);
}

bool Transfers::succeed(Exchange& e) {
    for (Exchange::Part& part : e.parts)
        if (const DeviceTransfer& asked = part.asked; asked.into)
            *asked.into = e.staged ? part.on_host.received
                                   : Received{asked.message.peer, asked.tag,
                                              asked.message.bytes / dtype_bytes(asked.dtype)};
    return end(e, Error{.code = Code::ok});
}

bool Transfers::fail_device(Exchange& e, Code code) {
    const Trouble& trouble = e.moves->trouble();
    const Error error{code, trouble.peer == nobody ? rank_ : trouble.peer, 0,
                      fmt::format("rank {}: messages on device memory: {}", rank_, trouble.cause)};
    // A collective of other calls has taken them with it: that is told by itself.
    if (code != Code::aborted) agreement_.raise(error);
    return end(e, error);
}

/// False if its device cannot be let go of yet.
bool Transfers::end(Exchange& e, const Error& error) {
    if (error.code != Code::ok && e.moves) {
        if (!e.moves->may_cancel()) return false;
        e.moves->cancel();
    }
    // What travels on the host from memory that goes with it.
    for (const Exchange::Part& part : e.parts)
        if (part.on_host.code.load(std::memory_order_acquire) == Code::in_progress) return false;
    e.error = error;
    posted_.fetch_sub(1);
    waiting_.unwatch();
    waiting_.publish(e, error.code);
    return true;
}

void Transfers::finished(Transfer& transfer, const Error& error) {
    if (error.code != Code::ok) {
        transfer.error = error;
        transfer.error.message =
            fmt::format("rank {}: {}: {}", rank_, engine_.describe(transfer), error.message);
    } else if (transfer.into) {
        *transfer.into = transfer.received;
    }
    posted_.fetch_sub(1);
    waiting_.publish(transfer, error.code);
}

void Transfers::purge() {
    bool may_receive = false;
    const auto over = agreement_.over(&may_receive);
    const int64_t now = now_ns();
    engine_.purge([&](Transfer& t) -> std::optional<Error> {
        if (over) {
            if (t.sends || !may_receive) return over;
            if (t.left_ns == 0) t.left_ns = now;
            if (now < std::max(t.left_ns, moved_ns_) + on_the_way_ns) return std::nullopt;
            return over;
        }
        const Rank partner = t.partner();
        if (partner == rank_ || !agreement_.has_left(partner)) return std::nullopt;
        if (t.left_ns == 0) t.left_ns = now;
        if (now < t.left_ns + farewell_ns) return std::nullopt;
        return left_error(partner);
    });
    // After their messages: a device's stream goes on when nothing moves in its memory any more.
    if (over)
        std::erase_if(exchanges_, [&](Exchange* e) {
            return e->released.load(std::memory_order_acquire) && end(*e, *over);
        });
}

void Transfers::look_at_clocks() {
    if (posted_.load() == 0) return;
    const int64_t now = now_ns();
    std::optional<Error> late;  // or worse
    {
        const Owned owned(owner_, Owned::Try{});
        if (!owned.held()) return;
        if (const Code code = engine_.health(); code != Code::ok)
            late = Error{code, rank_, 0,
                         fmt::format("rank {} cannot go on with its messages: {} (is /dev/shm or "
                                     "memory full?)",
                                     rank_, code_name(code))};
        engine_.for_each([&](Transfer& t) {
            if (t.began_ns == 0) t.began_ns = now;
            if (late || t.timeout_ms <= 0 || ns_to_ms(now - t.began_ns) < t.timeout_ms) return;
            late = Error{Code::timeout, t.partner(), 0,
                         fmt::format("rank {} waited {} ms in a {}", rank_, t.timeout_ms,
                                     engine_.describe(t))};
        });
        for (Exchange* exchange : exchanges_)
            if (!late) late = this->late(*exchange, now);
    }
    if (late) agreement_.raise(*late);
}

std::optional<Error> Transfers::late(Exchange& e, int64_t now) const {
    if (e.began_ns == 0) e.began_ns = now;
    if (e.timeout_ms <= 0 || ns_to_ms(now - e.began_ns) < e.timeout_ms) return std::nullopt;
    const Rank peer = e.parts.empty() ? nobody : e.parts.front().asked.message.peer;
    return Error{Code::timeout, peer, 0,
                 fmt::format("rank {} waited {} ms for {} messages on device memory, the first "
                             "of them with rank {}",
                             rank_, e.timeout_ms, e.parts.size(), peer)};
}

bool Transfers::arm(bool on) {
    if (posted_.load() == 0 && on) return true;
    const Owned owned(owner_, Owned::Try{});
    if (owned.held()) engine_.arm(on);
    return owned.held();
}

void Transfers::end_all() {
    const Owned owned(owner_);
    const Error why{Code::aborted, rank_, 0,
                    fmt::format("rank {} destroyed the communicator before", rank_)};
    engine_.purge([&](const Transfer&) { return std::optional(why); });
    for (Exchange* e : exchanges_) e->released.store(true, std::memory_order_release);
    // What was launched later goes after what it would take with it.
    for (std::size_t round = exchanges_.size(); round > 0 && !exchanges_.empty(); --round)
        std::erase_if(exchanges_, [&](Exchange* e) { return end(*e, why); });
}

}  // namespace tutti
