#include "job/connecting/detours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/acceptor.h"
#include "net/serving.h"
#include "net/socket.h"

namespace tutti {
namespace {

constexpr int64_t detour_ms = 1000;  // for a detour to a rank that was there before

}  // namespace

bool Detours::add_behind_others(Rank to, Bytes& message) {
    const std::lock_guard lock(mutex_);
    return queue_.add_behind_others(to, message);
}

void Detours::add(Rank to, Bytes message) {
    {
        const std::lock_guard lock(mutex_);
        if (!queue_.add(to, std::move(message))) return;
    }
    wakeups_.wake_service();
}

void Detours::request(Rank to) {
    {
        const std::lock_guard lock(mutex_);
        queue_.request(to);
    }
    wakeups_.wake_service();
}

Rank Detours::next() {
    const std::lock_guard lock(mutex_);
    return queue_.next();
}

void Detours::close(Rank to) {
    const std::lock_guard lock(mutex_);
    queue_.close(to);
}

void Detours::end_by(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    end_ = deadline;
}

Result<> Detours::open(Rank to) {
    const auto left_ms = [this] {
        const std::lock_guard lock(mutex_);
        return std::max<int64_t>(1, end_.left_ms(detour_ms));
    };
    const net::CancelWaitsWhen too_late(leaving_);
    TUTTI_ASSIGN(UniqueFd fd, connect(to, Deadline::after_ms(left_ms())));
    TUTTI_TRY(control_.attach(to, std::move(fd), ControlTree::LinkKind::detour));
    // Send with the mutex held, so that no new message overtakes the waiting ones.
    const std::lock_guard lock(mutex_);
    for (const Bytes& message : queue_.take(to)) control_.send(to, message);
    return {};
}

Result<UniqueFd> Detours::connect(Rank to, Deadline deadline) {
    TUTTI_ASSIGN(const PeerRecord* record, directory_.find_if_there(to, deadline));
    TUTTI_ASSIGN(const net::HostPort address, net::parse_host_port(record->control));
    const net::AuthKey secret{config_.secret, "control/" + config_.job};
    const Bytes hello =
        ControlTree::Hello{.rank = config_.rank, .kind = ControlTree::LinkKind::detour}.encode();
    for (net::Redial redial;;) {
        auto fd = net::connect_tcp(address, {.deadline = deadline, .keep_trying = false});
        if (!fd && fd.error().sys_errno == ECONNREFUSED)
            return fail_rank(Code::peer_lost, to, "rank {} no longer listens: {}", to,
                             fd.error().message);
        if (!fd) return fd;
        const auto introduced = net::introduce(fd->get(), secret, hello, deadline);
        if (introduced) return fd;
        if (!redial.again(introduced.error(), deadline)) return tl::unexpected(introduced.error());
    }
}

}  // namespace tutti
