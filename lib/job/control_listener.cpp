#include "job/control_listener.h"

#include <utility>

#include "base/log.h"
#include "control/tree.h"
#include "net/socket.h"

namespace tutti {
namespace {

Error version_error(Rank rank, const ControlTree::Hello& hello) {
    return fail_rank(Code::invalid, hello.rank,
                     "rank {} speaks version {} of the control protocol, rank {} version {}",
                     hello.rank, hello.version, rank, ControlTree::Hello::current_version)
        .advice("install the same version of tutti on every host")
        .value();
}

}  // namespace

Result<std::string> ControlListener::listen(const std::string& host, Reactor& reactor) {
    net::HostPort at{.host = host};
    TUTTI_ASSIGN(UniqueFd listener, net::listen_tcp(at));
    TUTTI_ASSIGN(at.port, net::local_port(listener.get()));
    acceptor_ = std::make_unique<net::Acceptor>(
        reactor, std::move(listener), net::AuthKey{config_.secret, "control/" + config_.job},
        [this](UniqueFd fd, Bytes hello) { accept(std::move(fd), hello); },
        net::Acceptor::Options{});
    return net::format_host_port(at);
}

void ControlListener::accept(UniqueFd fd, ByteView bytes) {
    const auto hello = ControlTree::Hello::decode(bytes);
    const Rank rank = hello ? hello->rank : nobody;
    const auto kind = hello ? hello->kind : ControlTree::LinkKind::branch;
    const bool known = kind == ControlTree::LinkKind::detour
                           ? in_job(rank) && rank != config_.rank
                           : rank > 0 && in_job(rank) && tree_parent(rank) == config_.rank;
    if (!known)
        return log::warn(
            fail(Code::auth, "refused a control connection that claims to come from rank {}", rank)
                .advice("end the processes of earlier runs of this job, and give all ranks the "
                        "same TUTTI_SIZE")
                .on(config_.rank));
    // Attach the child nevertheless: failure messages are the same in every version.
    if (hello->version != ControlTree::Hello::current_version)
        assembly_.fail_start(version_error(config_.rank, *hello));
    if (const auto attached = control_.attach(rank, std::move(fd), kind); !attached)
        return log::warn(
            wrap(attached.error(), fmt::format("refused a control connection of rank {}", rank))
                .on(config_.rank));
    router_.link_accepted(rank, kind);
}

}  // namespace tutti
