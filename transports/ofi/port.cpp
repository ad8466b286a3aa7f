#include "transports/ofi/port.h"

#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "fabric/messages/port.h"
#include "net/socket.h"
#include "transports/ofi/messenger.h"

namespace tutti::ofi {
namespace {

using fabric::OpContext;

static_assert(sizeof(fi_context2) <= OpContext::library_bytes);
static_assert(FI_ADDR_NOTAVAIL == fabric::no_address);

// Payloads up to this size are sent eagerly. Over sockets all payloads are: the receiver copies
// them out of the kernel anyway, and a rendezvous would cost a round trip.
constexpr std::size_t eager_bytes = 32 * 1024;
// Copying this much costs less than sending two pieces and waiting for their completion.
constexpr std::size_t copied_bytes = 8192;
// Over other providers only a send's completion shows that it failed.
constexpr std::string_view never_fails = "shm";
constexpr std::size_t largest_message_bytes = std::size_t{1} << 30;

void* descriptor_of(const fabric::MessageBuffer& buffer) {
    return ofi::descriptor_of(buffer.registration);
}
void* descriptor_of(const Registered& registered) {
    return ofi::descriptor_of(registered.handle());
}

fabric::MessengerLimits limits_of(const Objects& objects, const PortOptions& options) {
    const fi_info& info = *objects.info;
    const std::size_t most = info.ep_attr->max_msg_size;
    fabric::MessengerLimits out;
    fabric::PortLimits& port = out.port;
    port.sockets = port.sockets_within = is_over_sockets(objects.provider());
    port.eager_bytes =
        options.eager_bytes.value_or(port.sockets ? options.max_message_bytes : eager_bytes);
    if (most < port.eager_bytes + fabric::envelope_bytes)
        port.eager_bytes = most - fabric::envelope_bytes;
    port.copied_bytes = std::min(copied_bytes, port.eager_bytes);
    port.max_message_bytes = std::min(most, largest_message_bytes);
    if (info.nic && info.nic->link_attr)
        port.bandwidth_gbs = static_cast<double>(info.nic->link_attr->speed) / 8e9;
    if (objects.provider() == never_fails) out.injected_bytes = info.tx_attr->inject_size;
    out.two_pieces = info.tx_attr->iov_limit >= 2;
    out.second = objects.second != nullptr;
    out.send_queue = info.tx_attr->size;
    out.receive_queue = info.rx_attr->size;
    return out;
}

}  // namespace

OfiMessenger::OfiMessenger(Objects objects, const PortOptions& options)
    : objects_(std::move(objects)),
      memory_(options.register_all || registrar_.is_needed() ? &registrar_ : nullptr, "libfabric"),
      limits_(limits_of(objects_, options)) {}

std::string OfiMessenger::failure(std::string_view what, std::size_t bytes, int code) const {
    return fmt::format("{}: {} {} bytes: {}", name(), what, bytes, reason(code));
}

// Closes the endpoint before any memory is freed, so that no operation uses the memory any more.
// Only memory that belongs to the endpoint must be deregistered first.
void OfiMessenger::close() {
    if (registrar_.is_of_endpoint()) memory_.close();
    objects_.second.reset();
    objects_.endpoint.reset();
}

// ---- addresses -------------------------------------------------------------------------------

void OfiMessenger::publish(ByteWriter& address) const {
    address.put_text(objects_.provider())
        .put_text(as_text(objects_.address))
        .put_text(as_text(objects_.second_address));
}

Result<OfiMessenger::Published> OfiMessenger::parse(Rank rank, ByteReader& in) const {
    const std::string provider = in.get_text(fabric::max_address_bytes);
    Published address;
    address.endpoint = in.get_text(fabric::max_address_bytes);
    address.second = in.get_text(fabric::max_address_bytes);
    if (!in.at_end() || address.endpoint.empty())
        return fail_rank(Code::invalid, rank, "libfabric: rank {} has published no valid address",
                         rank)
            .advice("install the same version of tutti on every host");
    if (provider == objects_.provider()) return address;
    return fail_rank(Code::unsupported, rank,
                     "libfabric: rank {} uses the provider '{}', but this rank uses '{}' "
                     "(TUTTI_OFI_PROVIDER)",
                     rank, provider, objects_.provider())
        .advice("set TUTTI_OFI_PROVIDER to the same provider on every rank");
}

Result<fi_addr_t> OfiMessenger::insert(Rank rank, ByteView where) {
    // A provider reads as many bytes as its kind of address has; the padding keeps it within the
    // buffer.
    Bytes padded(where.begin(), where.end());
    padded.resize(fabric::max_address_bytes);
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    const int inserted =
        fi_av_insert(objects_.addresses.get(), padded.data(), 1, &address, 0, nullptr);
    if (inserted == 1) return address;
    return fail_fi(*objects_.info, fmt::format("resolving the address of rank {}", rank),
                   inserted < 0 ? inserted : -FI_EINVAL);
}

Result<> OfiMessenger::take_address(MessagePeer& peer, ByteView where) {
    if (peer.address != FI_ADDR_NOTAVAIL) return {};
    TUTTI_ASSIGN(peer.address, insert(peer.rank, where));
    return {};
}

Result<> OfiMessenger::connect(MessagePeer& peer, const Published& address) {
    TUTTI_TRY(take_address(peer, as_bytes(address.endpoint)));
    if (!address.second.empty() && peer.second == FI_ADDR_NOTAVAIL) {
        TUTTI_ASSIGN(peer.second, insert(peer.rank, as_bytes(address.second)));
    }
    return {};
}

// Over sockets the connection exists now.
void OfiMessenger::note_reached(const MessagePeer& peer) {
    if (!limits_.port.sockets) return;
    std::array<std::byte, fabric::max_address_bytes> where{};
    std::size_t bytes = where.size();
    if (fi_av_lookup(objects_.addresses.get(), peer.address, where.data(), &bytes) != 0) return;
    net::bound_hidden_if_local(objects_.address,
                               ByteView(where.data(), std::min(bytes, where.size())));
}

// ---- messages and payloads -------------------------------------------------------------------

int OfiMessenger::hand_over(fabric::StagedMessage& staged) {
    fid_ep* const endpoint = staged.second ? objects_.second.get() : objects_.endpoint.get();
    return static_cast<int>(fi_send(endpoint, staged.data, staged.bytes, descriptor_of(staged),
                                    staged.second ? staged.peer->second : staged.peer->address,
                                    static_cast<OpContext*>(&staged)));
}

int OfiMessenger::send(fabric::StagedMessage& staged) {
    const int code = hand_over(staged);
    if (code != -FI_EAGAIN || !staged.second) return code;
    // Sends through the first endpoint until the second connection is made, or has room.
    staged.second = false;
    return hand_over(staged);
}

int OfiMessenger::inject(const fabric::StagedMessage& staged) {
    return static_cast<int>(
        fi_inject(objects_.endpoint.get(), staged.data, staged.bytes, staged.peer->address));
}

int OfiMessenger::send_in_place(fabric::PayloadOut& out) {
    const fabric::StagedMessage& staged = *out.staged;
    const std::array pieces = {iovec{staged.data, staged.bytes},
                               iovec{const_cast<std::byte*>(out.data), out.bytes}};
    std::array<void*, 2> descriptors = {descriptor_of(staged), descriptor_of(out.registered)};
    return static_cast<int>(fi_sendv(objects_.endpoint.get(), pieces.data(), descriptors.data(), 2,
                                     out.peer->address, static_cast<OpContext*>(&out)));
}

int OfiMessenger::post(fabric::BounceBuffer& bounce) {
    fid_ep* const endpoint = bounce.second ? objects_.second.get() : objects_.endpoint.get();
    return static_cast<int>(fi_recv(endpoint, bounce.data, bounce.bytes, descriptor_of(bounce),
                                    FI_ADDR_UNSPEC, static_cast<OpContext*>(&bounce)));
}

int OfiMessenger::send_payload(fabric::PayloadOut& out) {
    return static_cast<int>(fi_tsend(objects_.endpoint.get(), out.data, out.bytes,
                                     descriptor_of(out.registered), out.peer->address, out.tag,
                                     static_cast<OpContext*>(&out)));
}

int OfiMessenger::receive_payload(fabric::PayloadIn& in, std::byte* where) {
    return static_cast<int>(fi_trecv(objects_.endpoint.get(), where, in.bytes,
                                     descriptor_of(in.registered), FI_ADDR_UNSPEC, in.tag(), 0,
                                     static_cast<OpContext*>(&in)));
}

void OfiMessenger::cancel(fabric::PayloadIn& in) {
    fi_cancel(&objects_.endpoint->fid, static_cast<OpContext*>(&in));
}

// ---- completions -----------------------------------------------------------------------------

std::size_t OfiMessenger::read(std::span<fabric::OpCompletion> completions) {
    std::array<fi_cq_msg_entry, 16> entries;
    const ssize_t got = fi_cq_read(objects_.completions.get(), entries.data(),
                                   std::min(entries.size(), completions.size()));
    if (got == -FI_EAVAIL) return read_error(completions);
    std::size_t count = 0;
    for (ssize_t i = 0; i < got; ++i) {
        const fi_cq_msg_entry& entry = entries[static_cast<std::size_t>(i)];
        if (auto* operation = static_cast<OpContext*>(entry.op_context))
            completions[count++] = {operation, entry.len, 0};
    }
    return count;
}

std::size_t OfiMessenger::read_error(std::span<fabric::OpCompletion> completions) {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(objects_.completions.get(), &entry, 0) <= 0) return 0;
    auto* operation = static_cast<OpContext*>(entry.op_context);
    if (!operation) {
        log::debug("{}: {}", name(), reason(entry.err));
        return 0;
    }
    completions[0] = {operation, entry.len, entry.err == 0 ? FI_EIO : entry.err};
    return 1;
}

// ---- the port --------------------------------------------------------------------------------

Result<std::unique_ptr<fabric::Port>> open_port(const fi_info& info, const PortOptions& options,
                                                fabric::PortEvents& events) {
    TUTTI_ASSIGN(Objects objects, open_objects(info, fabric::most_operations));
    auto port = std::make_unique<fabric::MessagePort<OfiMessenger>>(
        options.rank, options.size, events, std::move(objects), options);
    TUTTI_TRY(port->open());
    return port;
}

}  // namespace tutti::ofi
