#include "p2p/transfers.h"

#include <algorithm>
#include <limits>
#include <new>

#include "run/health_error.h"
#include "run/publish.h"

namespace tutti {
namespace {

// After a peer's bye, messages that it had sent before may take this long to arrive.
constexpr int64_t farewell_ns = 1'000'000'000;
// A send up to this size is copied and done; a larger one waits for its receive and is not copied.
constexpr std::size_t eager_bytes = 32 * 1024;

/// Counts a transfer while it is being posted. Without keep(), as when posting throws, the
/// destructor takes the count back.
class PostedCount {
public:
    explicit PostedCount(std::atomic<int>& posted) : posted_(&posted) { posted_->fetch_add(1); }
    ~PostedCount() {
        if (posted_) posted_->fetch_sub(1);
    }
    PostedCount(const PostedCount&) = delete;
    void keep() { posted_ = nullptr; }

private:
    std::atomic<int>* posted_;
};

}  // namespace

Transfers::Transfers(const Config& config, const Group& group, std::size_t message_bytes,
                     ChannelTable& channels, FailureProtocol& failure_protocol, Waiting& waiting)
    : config_(config),
      rank_(group.rank()),
      size_(group.size()),
      message_bytes_(message_bytes),
      failure_protocol_(failure_protocol),
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
        return fail(Code::invalid, "{}: rank {} is out of range", what, t.peer)
            .advice("give a rank from 0 to {}{}", size_ - 1,
                    t.sends ? "" : ", or TUTTI_ANY_SOURCE");
    if (t.user_tag < 0)
        return fail(Code::invalid, "{}: tag {} is negative", what, t.user_tag)
            .advice("give a tag from 0 to {}", std::numeric_limits<int32_t>::max());
    if (!t.memory && t.bytes > 0)
        return fail(Code::invalid, "{}: the buffer is NULL but the message has {} bytes", what,
                    t.bytes)
            .advice("pass a buffer, or 0 as count");
    return {};
}

/// The error of a transfer whose partner has left.
Error Transfers::left_error(Rank partner) {
    return {.code = Code::peer_lost,
            .rank = partner,
            .message = partner == any_source
                           ? "all other ranks have left: they left or destroyed their communicators"
                           : fmt::format("rank {} has left: it left or destroyed its communicator",
                                         partner),
            .advice = "let every rank finish its messages before it destroys its communicator"};
}

Result<> Transfers::connect(const Transfer& transfer, int64_t timeout_ms) {
    if (transfer.sends && !engine_.connected(transfer.peer) &&
        failure_protocol_.has_left(transfer.peer))
        return tl::unexpected(left_error(transfer.peer));
    return engine_.connect(transfer, owner_,
                           Deadline::after_ms(timeout_ms < 0 ? config_.timeout_ms : timeout_ms),
                           ended_);
}

void Transfers::post(Transfer& transfer, int64_t timeout_ms) {
    transfer.timeout_ms = timeout_ms < 0 ? config_.timeout_ms : timeout_ms;
    {
        const OwnerGuard owned(owner_);
        PostedCount counted(posted_);
        engine_.post(transfer);
        counted.keep();
    }
    bool moved = false;
    try {
        drive(moved);
    } catch (const std::bad_alloc&) {
        // The transfer is posted: the thread that waits for it drives again.
    }
}

void Transfers::post(Bundle& bundle) {
    waiting_.watch();
    posted_.fetch_add(1 + static_cast<int>(bundle.messages.size()));
    const OwnerGuard owned(owner_);
    bundles_.push_back(&bundle);
    for (Transfer* message : bundle.messages) {
        message->timeout_ms = bundle.timeout_ms;
        engine_.post(*message);
    }
}

/// True while a transfer or bundle is pending.
bool Transfers::drive(bool& moved) {
    if (posted_.load() == 0) return false;
    const OwnerGuard owned(owner_, OwnerGuard::Try{});
    if (!owned.held()) return true;
    bool arrived = false;
    engine_.progress(arrived);  // first, so that arrived messages are used
    moved |= arrived;
    if (failure_protocol_.alarm()) {
        if (arrived) moved_ns_ = now_ns();
        purge();
    }
    progress_bundles(moved);
    return posted_.load() > 0;
}

// ---- bundles -----------------------------------------------------------------------------------

void Transfers::progress_bundles(bool& moved) {
    const std::size_t before = bundles_.size();
    std::erase_if(bundles_, [&](Bundle* bundle) { return progress(*bundle, moved); });
    moved |= bundles_.size() != before;
}

/// True if the bundle is over; it may be gone.
bool Transfers::progress(Bundle& bundle, bool& moved) {
    if (!bundle.released.load(std::memory_order_acquire)) return false;
    const auto over = bundle.advance(moved);
    if (!over) return false;
    if (over->tells) failure_protocol_.raise(over->error);
    return end(bundle, over->error);
}

/// False if the work beside the messages cannot be abandoned yet, or a message is still pending.
bool Transfers::end(Bundle& bundle, const Error& error) {
    if (error.code != Code::ok && !bundle.let_go()) return false;
    // Messages that are still in progress on the host use memory that ends with the bundle.
    for (const Transfer* message : bundle.messages)
        if (message->code.load(std::memory_order_acquire) == Code::in_progress) return false;
    bundle.error = error;
    posted_.fetch_sub(1);
    waiting_.unwatch();
    publish(bundle, error.code, waiting_);
    return true;
}

void Transfers::finished(Transfer& transfer, const Error& error) {
    if (error.code != Code::ok) {
        const std::string what = engine_.describe(transfer);
        // An error that this rank has reported may already name the message.
        const bool named = error.reporter == rank_ && error.message.find(what) != std::string::npos;
        transfer.error = named ? error : on_rank(rank_, wrap(error, what).value());
    } else if (transfer.into) {
        *transfer.into = transfer.received;
    }
    posted_.fetch_sub(1);
    publish(transfer, error.code, waiting_);
}

void Transfers::purge() {
    const auto over = failure_protocol_.fatal_error();
    const int64_t now = now_ns();
    bool may_arrive = false;
    engine_.purge([&](Transfer& t) -> std::optional<Error> {
        if (over) {
            if (t.sends || !over->may_receive) return over->error;
            if (t.left_ns == 0) t.left_ns = now;
            if (now >= std::max(t.left_ns, moved_ns_) + over->grace_ns) return over->error;
            may_arrive = true;
            return std::nullopt;
        }
        const Rank partner = t.partner();
        if (partner == rank_ || !failure_protocol_.has_left(partner)) return std::nullopt;
        if (t.left_ns == 0) t.left_ns = now;
        if (now < t.left_ns + farewell_ns) return std::nullopt;
        return left_error(partner);
    });
    wait_for_arrivals(may_arrive);
    // End bundles after their messages: a device's stream continues once no message uses its
    // memory.
    if (over)
        std::erase_if(bundles_, [&](Bundle* bundle) {
            return bundle->released.load(std::memory_order_acquire) && end(*bundle, over->error);
        });
}

// No doorbell rings when the time for arrivals is over, so waiting threads sleep for short times.
void Transfers::wait_for_arrivals(bool on) {
    if (std::exchange(may_arrive_, on) == on) return;
    if (on)
        waiting_.watch();
    else
        waiting_.unwatch();
}

void Transfers::check_deadlines() {
    if (posted_.load() == 0) return;
    const int64_t now = now_ns();
    std::optional<Error> late;  // or another failure
    {
        const OwnerGuard owned(owner_, OwnerGuard::Try{});
        if (!owned.held()) return;
        if (const Code code = engine_.health(); code != Code::ok)
            late = health_error(rank_, code, "its sends and receives");
        engine_.for_each([&](Transfer& t) {
            if (t.began_ns == 0) t.began_ns = now;
            if (late || t.timeout_ms <= 0 || ns_to_ms(now - t.began_ns) < t.timeout_ms) return;
            late = timed_out(t.timeout_ms, t.partner(), "a " + engine_.describe(t));
        });
        for (Bundle* bundle : bundles_)
            if (!late) late = this->late(*bundle, now);
    }
    if (late) failure_protocol_.raise(*late);
}

Error Transfers::timed_out(int64_t after_ms, Rank partner, std::string_view what) const {
    return fail_rank(Code::timeout, partner, "timed out after {} ms in {}", after_ms, what)
        .advice(
            "compare the tag and the communicator on both sides, and look at what {} does; if it "
            "is only slow, raise TUTTI_TIMEOUT_MS",
            partner < 0 ? std::string("the sender") : fmt::format("rank {}", partner))
        .on(rank_)
        .value();
}

std::optional<Error> Transfers::late(Bundle& bundle, int64_t now) const {
    if (bundle.began_ns == 0) bundle.began_ns = now;
    if (bundle.timeout_ms <= 0 || ns_to_ms(now - bundle.began_ns) < bundle.timeout_ms)
        return std::nullopt;
    const Rank partner = bundle.messages.empty() ? nobody : bundle.messages.front()->peer;
    return timed_out(bundle.timeout_ms, partner, bundle.describe());
}

bool Transfers::arm(bool on) {
    if (posted_.load() == 0 && on) return true;
    const OwnerGuard owned(owner_, OwnerGuard::Try{});
    if (owned.held()) engine_.arm(on);
    return owned.held();
}

void Transfers::end_all() {
    const OwnerGuard owned(owner_);
    const Error why =
        fail_rank(Code::aborted, rank_,
                  "this rank destroyed the communicator while the message was pending")
            .advice("wait for every request before tutti_comm_destroy")
            .value();
    engine_.purge([&](const Transfer&) { return std::optional(why); });
    wait_for_arrivals(false);
    for (Bundle* bundle : bundles_) bundle->released.store(true, std::memory_order_release);
    // One bundle's let_go() may fail until others have ended: try in rounds.
    for (std::size_t round = bundles_.size(); round > 0 && !bundles_.empty(); --round)
        std::erase_if(bundles_, [&](Bundle* bundle) { return end(*bundle, why); });
}

}  // namespace tutti
