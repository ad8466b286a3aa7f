#include "transports/ofi/port.h"

#include <rdma/fi_errno.h>

#include <algorithm>

#include "base/log.h"
#include "wait/pace.h"

namespace tutti::ofi {
namespace {

// Payloads up to here come unasked. Over sockets all that the engine sends: whoever takes it copies
// it out of the kernel anyway, and to be asked first costs a round trip.
constexpr std::size_t eager_bytes = 32 * 1024;
// Few enough to stay in the cache, which they go round in. Buffers posted for small messages, and
// as many for those that leave; halved where the provider's queues are short, which large payloads
// want a part of too.
constexpr std::size_t least_bounces = 8, most_bounces = 64;
constexpr std::size_t most_bounce_bytes = std::size_t{2} << 20;
constexpr std::size_t most_staged = 128;
// The completion queue never overruns: it has room for all that is posted, and for this many
// payloads on their way at once.
constexpr std::size_t most_payloads = 1024;
// Elsewhere only the end of a send tells that it failed.
constexpr std::string_view never_fails = "shm";
constexpr std::size_t largest_message_bytes = std::size_t{1} << 30;
std::size_t share(std::size_t most, std::size_t queue) {
    return std::clamp<std::size_t>(queue / 2, 4, most);
}

}  // namespace

Result<std::unique_ptr<OfiPort>> OfiPort::open(const fi_info& info, const PortOptions& options,
                                               fabric::PortEvents& events) {
    TUTTI_ASSIGN(Objects objects, open_objects(info, most_bounces + least_bounces + most_staged +
                                                         2 * most_payloads));
    std::unique_ptr<OfiPort> port(new OfiPort(std::move(objects), options, events));
    TUTTI_TRY(port->prepare());
    return port;
}

OfiPort::OfiPort(Objects objects, const PortOptions& options, fabric::PortEvents& events)
    : options_(options),
      events_(events),
      objects_(std::move(objects)),
      memory_(options.register_all || registrar_.is_needed() ? &registrar_ : nullptr, "libfabric"),
      peers_(objects_, options.rank, options.size) {
    const fi_info& info = *objects_.info;
    limits_.sockets = limits_.sockets_within = is_over_sockets(objects_.provider());
    limits_.eager_bytes =
        options_.eager_bytes.value_or(limits_.sockets ? options_.max_message_bytes : eager_bytes);
    if (info.ep_attr->max_msg_size < limits_.eager_bytes + envelope_bytes)
        limits_.eager_bytes = info.ep_attr->max_msg_size - envelope_bytes;
    limits_.copied_bytes = std::min(copied_bytes, limits_.eager_bytes);
    limits_.max_message_bytes = std::min(info.ep_attr->max_msg_size, largest_message_bytes);
    if (info.nic && info.nic->link_attr)
        limits_.bandwidth_gbs = static_cast<double>(info.nic->link_attr->speed) / 8e9;
    first_.set_up(objects_.endpoint.get(),
                  envelope_bytes + std::max(limits_.eager_bytes, max_address_bytes));
    second_.set_up(objects_.second.get(), envelope_bytes + limits_.copied_bytes);
    if (objects_.provider() == never_fails) injected_bytes_ = info.tx_attr->inject_size;
    two_pieces_ = info.tx_attr->iov_limit >= 2;
    address_ = ByteWriter()
                   .put(peers_.port())
                   .put_text(objects_.provider())
                   .put_text(as_text(objects_.address))
                   .put_text(as_text(objects_.second_address))
                   .take();
}

OfiPort::~OfiPort() {
    close_endpoint();
}

// Before any memory: then nothing is under way any more, whatever was. Only memory that belongs to
// the endpoint must go first.
void OfiPort::close_endpoint() {
    if (registrar_.is_of_endpoint()) memory_.close();
    objects_.second.reset();
    objects_.endpoint.reset();
}

Result<> OfiPort::prepare() {
    TUTTI_TRY(wake_.open());
    const std::size_t longest = first_.message_bytes();
    const std::size_t fit =
        std::clamp(most_bounce_bytes / slot_bytes(longest), least_bounces, most_bounces);
    TUTTI_TRY(
        sends_.allocate(memory_, share(most_staged, objects_.info->tx_attr->size),
                        two_pieces_ ? std::min(longest, envelope_bytes + copied_bytes) : longest));
    const std::size_t queue = objects_.info->rx_attr->size;
    TUTTI_TRY(first_.start(share(fit, queue)));
    return second_.start(objects_.second ? share(least_bounces, queue) : 0);
}

// ---- completions -----------------------------------------------------------------------------

bool OfiPort::progress() {
    if (!broken_.empty()) return false;
    check_peers();
    bool moved = is_behind() && retry();
    // What is there now; not what comes meanwhile, or a busy peer would keep us here for ever.
    if (!completions_.read() && completions_.waiting().empty()) return moved;
    CqEntry completion;
    for (std::size_t left = completions_.waiting().size();
         left > 0 && completions_.next(completion); --left) {
        handle(completion);
        moved = true;
    }
    return moved;
}

void OfiPort::handle(const CqEntry& completion) {
    if (completion.error != 0) return failed(completion);
    switch (completion.operation->kind) {
        case OpContext::Kind::receive:
            return arrived(static_cast<BounceBuffer&>(*completion.operation), completion.bytes);
        case OpContext::Kind::staged: {
            auto& staged = static_cast<Staged&>(*completion.operation);
            if (!staged.second) peers_.reach(*staged.peer, limits_.sockets);
            return sends_.give(staged);
        }
        case OpContext::Kind::payload_out:
            return finish(static_cast<PayloadOut&>(*completion.operation), Code::ok);
        case OpContext::Kind::payload_in: {
            auto& in = static_cast<PayloadIn&>(*completion.operation);
            if (completion.bytes == in.bytes) return fetched(in, Code::ok);
            OfiPeer& peer = *in.peer;
            const std::size_t announced = in.bytes;
            fetched(in, Code::peer_lost);
            return mark_lost(peer, fmt::format("libfabric: a payload of {} bytes instead of {}",
                                               completion.bytes, announced));
        }
    }
}

void OfiPort::failed(const CqEntry& completion) {
    const auto cause = [&](std::string_view what, std::size_t bytes) {
        return fmt::format("libfabric ({}): {} {} bytes: {}", objects_.provider(), what, bytes,
                           reason(completion.error));
    };
    switch (completion.operation->kind) {
        case OpContext::Kind::receive: {
            auto& bounce = static_cast<BounceBuffer&>(*completion.operation);
            ReceiveBuffers& buffers = *bounce.of;
            buffers.completed();
            buffers.give(bounce);
            log::debug("{}", cause("receiving up to", buffers.message_bytes()));
            return post_more(buffers);
        }
        case OpContext::Kind::staged: {
            auto& staged = static_cast<Staged&>(*completion.operation);
            OfiPeer& peer = *staged.peer;
            const std::size_t bytes = staged.bytes;
            sends_.give(staged);
            return mark_lost(peer, cause("sending", bytes));
        }
        case OpContext::Kind::payload_out: {
            auto& out = static_cast<PayloadOut&>(*completion.operation);
            OfiPeer& peer = *out.peer;
            const std::size_t bytes = out.bytes;
            finish(out, Code::peer_lost);
            return mark_lost(peer, cause("sending", bytes));
        }
        case OpContext::Kind::payload_in: {
            auto& in = static_cast<PayloadIn&>(*completion.operation);
            OfiPeer& peer = *in.peer;
            const std::size_t bytes = in.bytes;
            fetched(in, Code::peer_lost);
            return mark_lost(peer, cause("receiving", bytes));
        }
    }
}

bool OfiPort::arm() {
    const bool idle = completions_.waiting().empty() && control_.empty() && granted_.empty();
    return idle && wake_.arm();
}

Result<> OfiPort::add_memory(std::byte* data, std::size_t bytes) {
    return broken_.empty() ? memory_.add(data, bytes) : Result<>{};
}

void OfiPort::remove_memory(std::byte* data, std::size_t bytes) {
    memory_.remove(data, bytes);
}

// Completions of anything else wait for progress(): no events come from here.
void OfiPort::flush(Deadline deadline) {
    Pace pace(deadline);
    while (broken_.empty() && (sends_.any_leaving() || !control_.empty() || !granted_.empty())) {
        retry();
        const bool read = completions_.read();
        completions_.waiting().remove_if([&](const CqEntry& one) {
            const bool wanted = one.operation->kind == OpContext::Kind::staged && one.error == 0;
            if (wanted) handle(one);
            return wanted;
        });
        if (read ? deadline.passed() : !pace.pause()) return;
    }
}

}  // namespace tutti::ofi
