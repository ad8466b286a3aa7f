#include "job/connecting/detour_dialer.h"

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
constexpr int again_ms = 20;

bool has_no_way(int error) {
    return error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
}

}  // namespace

void DetourDialer::end_by(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    end_ = deadline;
}

Result<> DetourDialer::open(Rank to) {
    const auto left_ms = [this](int64_t most_ms) {
        const std::lock_guard lock(mutex_);
        return std::max<int64_t>(1, end_.left_ms(most_ms));
    };
    const net::CancelWaitsWhen too_late(leaving_);
    TUTTI_ASSIGN(const PeerRecord* record,
                 directory_.find_if_there(to, Deadline::after_ms(left_ms(detour_ms))));
    const bool beats = record->has_heartbeat && config_.heartbeat_ms > 0;
    const int64_t began_ns = now_ns();
    const int64_t patience_ms = left_ms(beats ? config_.heartbeat_ms : detour_ms);
    auto fd = connect(to, *record, Deadline::after_ms(patience_ms));
    if (!fd) {
        const int64_t tried_ms = ns_to_ms(now_ns() - began_ns);
        if (!beats || tried_ms < config_.heartbeat_ms || fd.error().rank == to)
            return tl::unexpected(std::move(fd).error());
        return fail_rank(Code::timeout, to,
                         "it has not let rank {} connect for {} ms (TUTTI_HEARTBEAT_MS is {})",
                         config_.rank, tried_ms, config_.heartbeat_ms);
    }
    TUTTI_TRY(control_.attach(to, std::move(*fd), ControlTree::LinkKind::detour));
    opened_(to);
    detours_.opened(to, control_);
    return {};
}

Result<UniqueFd> DetourDialer::connect(Rank to, const PeerRecord& record, Deadline deadline) {
    TUTTI_ASSIGN(const net::HostPort address, net::parse_host_port(record.control));
    const net::AuthKey secret{config_.secret, "control/" + config_.job};
    const Bytes hello =
        ControlTree::Hello{.rank = config_.rank, .kind = ControlTree::LinkKind::detour}.encode();
    for (net::Redial redial;;) {
        auto fd = net::connect_tcp(address, {.deadline = deadline, .keep_trying = false});
        if (!fd && fd.error().sys_errno == ECONNREFUSED)
            return fail_rank(Code::peer_lost, to, "rank {} no longer listens: {}", to,
                             fd.error().message);
        // The link may come back before the heartbeat is over.
        if (!fd && record.has_heartbeat && has_no_way(fd.error().sys_errno) && !deadline.passed() &&
            !net::wait_cancelled()) {
            net::poll_serving(nullptr, again_ms);
            continue;
        }
        if (!fd) return fd;
        const auto introduced = net::introduce(fd->get(), secret, hello, deadline);
        if (introduced) return fd;
        if (!redial.again(introduced.error(), deadline)) return tl::unexpected(introduced.error());
    }
}

}  // namespace tutti
