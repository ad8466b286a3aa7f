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

}  // namespace

void DetourDialer::end_by(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    end_ = deadline;
}

Result<> DetourDialer::open(Rank to) {
    const auto left_ms = [this] {
        const std::lock_guard lock(mutex_);
        return std::max<int64_t>(1, end_.left_ms(detour_ms));
    };
    const net::CancelWaitsWhen too_late(leaving_);
    TUTTI_ASSIGN(UniqueFd fd, connect(to, Deadline::after_ms(left_ms())));
    TUTTI_TRY(control_.attach(to, std::move(fd), ControlTree::LinkKind::detour));
    detours_.opened(to, control_);
    return {};
}

Result<UniqueFd> DetourDialer::connect(Rank to, Deadline deadline) {
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
