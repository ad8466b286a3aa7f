#include "transports/ofi/port.h"

#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <thread>

#include "base/log.h"

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
// How long who sleeps may not notice what came, where the provider wakes nobody.
constexpr long look_again_ns = 500'000;
// Where edges wake: what had come before the last of them, and was not read.
constexpr long missed_edge_ns = 5'000'000;
// Of 1.17, the predecessor of what tcp is now: its descriptor stays readable for ever once it was,
// whatever fi_trywait says. That there is more to read still makes an edge.
constexpr std::string_view stays_readable = "net";
// Elsewhere only the end of a send tells that it failed.
constexpr std::string_view never_fails = "shm";
constexpr std::size_t largest_message_bytes = std::size_t{1} << 30;
// A payload begins a cache line.
constexpr std::size_t slot_offset_bytes =
    round_up(envelope_bytes, cache_line_bytes) - envelope_bytes;

constexpr std::size_t slot_bytes(std::size_t message_bytes) {
    return round_up(slot_offset_bytes + message_bytes, cache_line_bytes);
}

uint64_t random_number() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

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
      events_(&events),
      objects_(std::move(objects)),
      memory_(objects_, options.register_all),
      port_(random_number()),
      by_rank_(static_cast<std::size_t>(options.size)) {
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
    first_.endpoint = objects_.endpoint.get();
    first_.bytes = envelope_bytes + std::max(limits_.eager_bytes, max_address_bytes);
    second_.endpoint = objects_.second.get();
    second_.bytes = envelope_bytes + limits_.copied_bytes;
    if (objects_.provider() == never_fails) injected_bytes_ = info.tx_attr->inject_size;
    two_pieces_ = info.tx_attr->iov_limit >= 2;
    staged_bytes_ = slot_bytes(two_pieces_ ? std::min(first_.bytes, envelope_bytes + copied_bytes)
                                           : first_.bytes);
    address_ = ByteWriter()
                   .put(port_)
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
    if (objects_.endpoint && (objects_.info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
        outgoing_.each([](Outgoing& out) { out.registered = {}; });
        incoming_.each([](Incoming& in) { in.registered = {}; });
        for (Block& block : blocks_) block.deregister();
        memory_.close();
    }
    objects_.second.reset();
    objects_.endpoint.reset();
}

Result<> OfiPort::prepare() {
    const bool edges = objects_.wake_fd >= 0 && objects_.provider() == stays_readable;
    if (objects_.wake_fd < 0 || edges) {
        timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
        if (!timer_) return fail_errno(errno, "timerfd_create");
    }
    if (edges) TUTTI_TRY(watch_edges());
    const std::size_t fit = most_bounce_bytes / slot_bytes(first_.bytes);
    first_.goal = share(std::clamp(fit, least_bounces, most_bounces), objects_.info->rx_attr->size);
    const std::size_t staged = share(most_staged, objects_.info->tx_attr->size);
    TUTTI_ASSIGN(Block block, Block::make(memory_, staged * staged_bytes_));
    for (std::size_t i = 0; i < staged; ++i) {
        Staged& one = staged_.emplace_back();
        one.data = block.data() + i * staged_bytes_ + slot_offset_bytes;
        one.descriptor = block.descriptor();
        free_staged_.push_back(&one);
    }
    blocks_.push_back(std::move(block));
    if (second_.endpoint) second_.goal = share(least_bounces, objects_.info->rx_attr->size);
    for (Receives* receives : {&first_, &second_}) {
        if (receives->goal == 0) continue;
        TUTTI_TRY(grow(*receives));
        TUTTI_TRY(post_bounces(*receives));
    }
    return {};
}

Result<> OfiPort::grow(Receives& receives) {
    const std::size_t each = slot_bytes(receives.bytes);
    TUTTI_ASSIGN(Block block, Block::make(memory_, receives.goal * each));
    for (std::size_t i = 0; i < receives.goal; ++i) {
        Bounce& one = bounces_.emplace_back();
        one.of = &receives;
        one.data = block.data() + i * each + slot_offset_bytes;
        one.descriptor = block.descriptor();
        receives.resting.push_back(&one);
    }
    blocks_.push_back(std::move(block));
    return {};
}

// ---- completions -----------------------------------------------------------------------------

bool OfiPort::progress(fabric::PortEvents& events) {
    events_ = &events;
    if (!broken_.empty()) return false;
    look_after_peers();
    bool moved = is_behind() && retry();
    // What is there now; not what comes meanwhile, or a busy peer would keep us here for ever.
    if (!read_completions() && completions_.empty()) return moved;
    Completion completion;
    for (std::size_t left = completions_.size(); left > 0 && next(completion); --left) {
        handle(completion);
        moved = true;
    }
    return moved;
}

bool OfiPort::next(Completion& completion) {
    if (completions_.empty() && !read_completions()) return false;
    completion = completions_.pop();
    return true;
}

bool OfiPort::read_completions() {
    if (!broken_.empty()) return false;
    std::array<fi_cq_msg_entry, 16> entries;
    const ssize_t got = fi_cq_read(objects_.completions.get(), entries.data(), entries.size());
    if (got == -FI_EAVAIL) return read_error();
    for (ssize_t i = 0; i < got; ++i) {
        auto* operation = static_cast<Operation*>(entries[static_cast<std::size_t>(i)].op_context);
        if (!operation) continue;
        left(*operation);
        completions_.push({operation, entries[static_cast<std::size_t>(i)].len, 0});
    }
    return got > 0;
}

bool OfiPort::read_error() {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(objects_.completions.get(), &entry, 0) <= 0) return false;
    auto* operation = static_cast<Operation*>(entry.op_context);
    if (!operation) {
        log::debug("libfabric ({}): {}", objects_.provider(), reason(entry.err));
        return false;
    }
    left(*operation);
    completions_.push({operation, entry.len, entry.err == 0 ? FI_EIO : entry.err});
    return true;
}

// A send that libfabric has done with.
void OfiPort::left(Operation& operation) {
    Peer* peer = nullptr;
    if (operation.kind == Operation::Kind::staged) peer = static_cast<Staged&>(operation).peer;
    if (operation.kind == Operation::Kind::payload_out)
        peer = static_cast<Outgoing&>(operation).peer;
    if (!peer || peer->leaving == 0) return;
    --peer->leaving;
    --leaving_;
}

void OfiPort::handle(const Completion& completion) {
    if (completion.error != 0) return failed(completion);
    switch (completion.operation->kind) {
        case Operation::Kind::receive:
            return arrived(static_cast<Bounce&>(*completion.operation), completion.bytes);
        case Operation::Kind::staged: {
            auto& staged = static_cast<Staged&>(*completion.operation);
            if (!staged.second) reach(*staged.peer);
            return give_staged(staged);
        }
        case Operation::Kind::payload_out:
            return finish(static_cast<Outgoing&>(*completion.operation), Code::ok);
        case Operation::Kind::payload_in: {
            auto& in = static_cast<Incoming&>(*completion.operation);
            if (completion.bytes == in.bytes) return fetched(in, Code::ok);
            Peer& peer = *in.peer;
            const std::size_t announced = in.bytes;
            fetched(in, Code::peer_lost);
            return lose(peer, fmt::format("libfabric: a payload of {} bytes instead of {}",
                                          completion.bytes, announced));
        }
    }
}

void OfiPort::failed(const Completion& completion) {
    const auto cause = [&](std::string_view what, std::size_t bytes) {
        return fmt::format("libfabric ({}): {} {} bytes: {}", objects_.provider(), what, bytes,
                           reason(completion.error));
    };
    switch (completion.operation->kind) {
        case Operation::Kind::receive: {
            auto& bounce = static_cast<Bounce&>(*completion.operation);
            --bounce.of->posted;
            bounce.of->resting.push_back(&bounce);
            log::debug("{}", cause("receiving up to", bounce.of->bytes));
            return post_more(*bounce.of);
        }
        case Operation::Kind::staged: {
            auto& staged = static_cast<Staged&>(*completion.operation);
            Peer& peer = *staged.peer;
            const std::size_t bytes = staged.bytes;
            give_staged(staged);
            return lose(peer, cause("sending", bytes));
        }
        case Operation::Kind::payload_out: {
            auto& out = static_cast<Outgoing&>(*completion.operation);
            Peer& peer = *out.peer;
            const std::size_t bytes = out.bytes;
            finish(out, Code::peer_lost);
            return lose(peer, cause("sending", bytes));
        }
        case Operation::Kind::payload_in: {
            auto& in = static_cast<Incoming&>(*completion.operation);
            Peer& peer = *in.peer;
            const std::size_t bytes = in.bytes;
            fetched(in, Code::peer_lost);
            return lose(peer, cause("receiving", bytes));
        }
    }
}

bool OfiPort::arm() {
    if (!completions_.empty() || !control_.empty() || !granted_.empty()) return false;
    if (!broken_.empty()) return true;
    if (timer_) {
        const long nanoseconds = edges_ ? missed_edge_ns : look_again_ns;
        const itimerspec soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = nanoseconds}};
        const bool set = ::timerfd_settime(timer_.get(), 0, &soon, nullptr) == 0;
        if (!edges_ || !set) return set;
    }
    fid* queue = &objects_.completions->fid;
    return fi_trywait(objects_.fabric.get(), &queue, 1) == 0;
}

Result<> OfiPort::watch_edges() {
    edges_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!edges_) return fail_errno(errno, "epoll_create1");
    epoll_event edge{.events = EPOLLIN | EPOLLET, .data = {}}, level{.events = EPOLLIN, .data = {}};
    if (::epoll_ctl(edges_.get(), EPOLL_CTL_ADD, objects_.wake_fd, &edge) != 0 ||
        ::epoll_ctl(edges_.get(), EPOLL_CTL_ADD, timer_.get(), &level) != 0)
        return fail_errno(errno, "epoll_ctl");
    return {};
}

// Or whoever sleeps next is woken at once, over and over: to read what has come does not empty the
// descriptor.
void OfiPort::heard() {
    if (!timer_ && !broken_.empty()) return;
    if (!timer_) {
        fid* queue = &objects_.completions->fid;
        (void)fi_trywait(objects_.fabric.get(), &queue, 1);
        return;
    }
    epoll_event events[2];
    if (edges_ && ::epoll_wait(edges_.get(), events, 2, 0) < 0)
        log::debug("libfabric ({}): edges: errno {}", objects_.provider(), errno);
    uint64_t expirations = 0;
    if (::read(timer_.get(), &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        log::debug("libfabric ({}): timer: errno {}", objects_.provider(), errno);
}

Result<> OfiPort::add_memory(std::byte* data, std::size_t bytes) {
    return broken_.empty() ? memory_.add(data, bytes) : Result<>{};
}

void OfiPort::remove_memory(std::byte* data, std::size_t bytes) {
    memory_.remove(data, bytes);
}

// Completions of anything else wait for progress(): no events come from here.
void OfiPort::flush(Deadline deadline) {
    while (broken_.empty() && (leaving_ > 0 || !control_.empty() || !granted_.empty())) {
        retry();
        const bool read = read_completions();
        completions_.remove_if([&](const Completion& one) {
            const bool wanted = one.operation->kind == Operation::Kind::staged && one.error == 0;
            if (wanted) handle(one);
            return wanted;
        });
        if (deadline.passed()) return;
        if (!read) std::this_thread::yield();
    }
}

}  // namespace tutti::ofi
