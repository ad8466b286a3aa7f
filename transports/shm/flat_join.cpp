#include "transports/shm/flat_join.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "transport/shared_memory.h"

namespace tutti::shm {
namespace {

constexpr int answer_timeout_ms = 1000;
constexpr std::size_t max_waiting = 4096;

Result<std::shared_ptr<FlatMember>> make_group(const GroupRequest& group) {
    auto member = std::make_shared<FlatMember>(group.rank, group.size, group.streams);
    const FlatLayout& layout = member->layout;
    TUTTI_ASSIGN(auto memory,
                 make_shared_memory("tutti-flat", layout.bytes(), layout.eager_bytes()));
    member->memory = std::move(memory.data);
    member->memory_fd = std::move(memory.fd);
    for (Rank rank = 0; rank < group.size; ++rank) {
        UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        if (!fd) return fail_errno(errno, "flat: out of file descriptors (ulimit -n)? eventfd");
        member->doorbells.push_back(std::make_shared<const Doorbell>(std::move(fd)));
    }
    return member;
}

Result<> check_size(const GroupRequest& group) {
    if (group.size < 1 || group.size > flat_max_ranks)
        return fail(Code::unsupported, "flat: {} ranks, 1 to {} are served", group.size,
                    flat_max_ranks);
    if (group.streams < 1 || group.streams > flat_max_streams)
        return fail(Code::unsupported, "flat: {} streams, 1 to {} are served", group.streams,
                    flat_max_streams);
    if (group.rank < 0 || group.rank >= group.size)
        return fail(Code::invalid, "flat: rank {} of {}", group.rank, group.size);
    return {};
}

}  // namespace

void GroupHost::request(UniqueFd socket, const Hello& hello) {
    const std::lock_guard lock(mutex_);
    if (closed_ || waiting_.size() >= max_waiting) return;
    Request request{std::move(socket), hello};
    if (offers_.contains(hello.comm))
        answer(request);
    else
        waiting_.push_back(std::move(request));
}

void GroupHost::publish(uint32_t comm, Offer offer) {
    const std::lock_guard lock(mutex_);
    if (closed_ || offer.size <= 1) return;
    offer.unanswered = offer.size - 1;
    offers_[comm] = std::move(offer);
    std::vector<Request> later;
    for (Request& request : waiting_) {
        if (request.hello.comm == comm && offers_.contains(comm))
            answer(request);
        else
            later.push_back(std::move(request));
    }
    waiting_ = std::move(later);
}

void GroupHost::answer(const Request& request) {
    const Hello& hello = request.hello;
    const auto found = offers_.find(hello.comm);
    Offer& offer = found->second;
    GroupAnswer reply = offer.answer;
    if (hello.size != offer.size || hello.streams != offer.streams || hello.rank < 1 ||
        hello.rank >= offer.size)
        reply = {
            .code = Code::invalid,
            .text = fmt::format("flat: rank {} of {} with {} streams asked for the group of {} "
                                "ranks with {}",
                                hello.rank, hello.size, hello.streams, offer.size, offer.streams)};
    std::vector<int> fds;
    if (reply.code == Code::ok) {
        fds.push_back(offer.member->memory_fd.get());
        for (const auto& doorbell : offer.member->doorbells) fds.push_back(doorbell->fd());
    }
    const auto sent = net::send_fds(request.socket.get(), fds, encode(reply),
                                    Deadline::after_ms(answer_timeout_ms));
    if (!sent) log::debug("flat: answering rank {}: {}", hello.rank, sent.error().message);
    if (--offer.unanswered == 0) offers_.erase(found);
}

void GroupHost::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    offers_.clear();
    waiting_.clear();
}

std::string_view FlatProvider::reference(Collective collective) const {
    switch (collective) {
        case Collective::allreduce:
            return "ring";
        case Collective::broadcast:
            return "binomial";
        case Collective::barrier:
            return "dissemination";
        default:
            return "";
    }
}

Result<std::unique_ptr<IntrinsicGroup>> FlatProvider::join(const GroupRequest& group,
                                                           Deadline deadline) {
    TUTTI_TRY(check_size(group));
    TUTTI_ASSIGN(auto member, group.rank == 0 ? lead(group) : follow(group, deadline));
    TUTTI_TRY(member->watch(*context_.data_reactor));
    return std::make_unique<FlatGroup>(std::move(member));
}

Result<std::shared_ptr<FlatMember>> FlatProvider::lead(const GroupRequest& group) {
    auto member = make_group(group);
    GroupHost::Offer offer{.size = group.size, .streams = group.streams};
    if (member)
        offer.member = *member;
    else
        offer.answer = {.code = member.error().code, .text = member.error().message};
    host_->publish(group.comm, std::move(offer));
    return member;
}

Result<std::shared_ptr<FlatMember>> FlatProvider::follow(const GroupRequest& group,
                                                         Deadline deadline) {
    const auto doing = [&] { return fmt::format("flat: joining rank {}", group.leader.rank); };
    auto socket = net::connect_unix(group.leader.address, {.deadline = deadline});
    if (!socket)
        return fail_rank(Code::unsupported, group.leader.rank,
                         "flat: the leader is not within reach: {}", socket.error().message);
    const Bytes hello = encode(Hello{.kind = HelloKind::group,
                                     .rank = group.rank,
                                     .comm = group.comm,
                                     .size = group.size,
                                     .streams = group.streams});
    if (auto met = net::introduce(socket->get(), key_, hello, deadline); !met)
        return wrap(std::move(met).error(), doing());
    auto message = net::recv_fds(socket->get(), max_frame_bytes, deadline);
    if (!message) return wrap(std::move(message).error(), doing());
    TUTTI_ASSIGN(const GroupAnswer answer, decode_answer(message->body));
    if (answer.code != Code::ok) return fail(answer.code, "{}: {}", doing(), answer.text);
    const auto ranks = static_cast<std::size_t>(group.size);
    if (message->fds.size() != ranks + 1)
        return fail(Code::invalid, "{}: {} descriptors came, {} were expected", doing(),
                    message->fds.size(), ranks + 1);

    auto member = std::make_shared<FlatMember>(group.rank, group.size, group.streams);
    member->memory_fd = std::move(message->fds[0]);
    TUTTI_ASSIGN(member->memory,
                 map_shared_memory(member->memory_fd.get(), member->layout.bytes()));
    for (std::size_t i = 0; i < ranks; ++i) {
        // An eventfd's flags belong to the description, which the leader made non-blocking.
        member->doorbells.push_back(
            std::make_shared<const Doorbell>(std::move(message->fds[i + 1])));
    }
    return member;
}

}  // namespace tutti::shm
