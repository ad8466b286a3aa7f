#include "transports/shm/flat_join.h"

#include <bit>
#include <utility>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/socket.h"

namespace tutti::shm {
namespace {

constexpr int answer_timeout_ms = 1000;
constexpr std::size_t max_waiting = 4096;

constexpr uint64_t bit(Rank rank) {
    return uint64_t{1} << rank;
}

}  // namespace

void GroupHost::request(UniqueFd socket, const ShmHello& hello) {
    const std::lock_guard lock(mutex_);
    if (closed_ || retired_.contains(hello.comm) || waiting_.size() >= max_waiting) return;
    JoinRequest request{std::move(socket), hello};
    if (offers_.contains(hello.comm))
        answer(request);
    else
        waiting_.push_back(std::move(request));
}

void GroupHost::publish(uint32_t comm, GroupOffer offer) {
    const std::lock_guard lock(mutex_);
    if (closed_ || retired_.contains(comm) || offer.size <= 1) return;
    offers_[comm] = std::move(offer);
    std::vector<JoinRequest> later;
    for (JoinRequest& request : waiting_) {
        if (request.hello.comm == comm)
            answer(request);
        else
            later.push_back(std::move(request));
    }
    waiting_ = std::move(later);
}

// Adds the segments and doorbells that the joining process does not have yet; usually none.
std::vector<int> GroupHost::fill(GroupAnswer& reply, const ShmHello& hello,
                                 const FlatMember& member) {
    std::vector<int> fds;
    reply.place = member.place;
    reply.first_segment = hello.segments;
    for (uint32_t i = hello.segments; i < member.segments->count(); ++i) {
        reply.segment_bytes.push_back(member.segments->bytes(i));
        fds.push_back(member.segments->fd(i));
    }
    for (Rank rank = 0; rank < member.size; ++rank) {
        if ((hello.bells & bit(rank)) != 0) continue;
        reply.bells |= bit(rank);
        fds.push_back(member.doorbells[static_cast<std::size_t>(rank)]->fd());
    }
    return fds;
}

// Answers a repeated request again: the first answer may have been lost. An answer goes only to the
// process that asked.
void GroupHost::answer(const JoinRequest& request) const {
    const ShmHello& hello = request.hello;
    const GroupOffer& offer = offers_.at(hello.comm);
    GroupAnswer reply = offer.answer;
    if (hello.size != offer.size || hello.streams != offer.streams || hello.rank < 1 ||
        hello.rank >= offer.size)
        reply = {
            .code = Code::invalid,
            .text = fmt::format("flat: rank {} of {} with {} rings asked for the group of {} "
                                "ranks with {}",
                                hello.rank, hello.size, hello.streams, offer.size, offer.streams)};
    std::vector<int> fds;
    const auto member = offer.member.lock();
    if (reply.code == Code::ok && !member)
        reply = {.code = Code::unsupported, .text = "flat: the leader has left the group"};
    if (reply.code == Code::ok) fds = fill(reply, hello, *member);
    const auto sent = net::send_fds(request.socket.get(), fds, encode(reply),
                                    Deadline::after_ms(answer_timeout_ms));
    if (!sent) log::debug("flat: answering rank {}: {}", hello.rank, sent.error().message);
}

void GroupHost::retire(uint32_t comm) {
    const std::lock_guard lock(mutex_);
    retired_.insert(comm);
    offers_.erase(comm);
    std::erase_if(waiting_, [&](const JoinRequest& request) { return request.hello.comm == comm; });
}

void GroupHost::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    offers_.clear();
    waiting_.clear();
}

Result<std::unique_ptr<IntrinsicGroup>> GroupJoiner::join(const GroupRequest& group,
                                                          Deadline deadline) {
    TUTTI_ASSIGN(auto member, group.rank == 0 ? lead(group) : follow(group, deadline));
    return make_flat_group(std::move(member));
}

Result<std::shared_ptr<FlatMember>> GroupJoiner::make_group(const GroupRequest& group) {
    auto member = std::make_shared<FlatMember>(group.rank, group.size, group.streams);
    for (Rank rank = 0; rank < group.size; ++rank) {
        TUTTI_ASSIGN(auto bell, neighbours_->make_bell(group.in_job(rank)));
        member->doorbells.push_back(std::move(bell));
        member->members.push_back(group.in_job(rank));
    }
    closed_->reuse();
    Arena& arena = closed_->arena();
    const FlatLayout& layout = member->layout;
    TUTTI_ASSIGN(const Arena::Block block, arena.take(layout.bytes(), layout.eager_bytes()));
    member->segments = arena.segments();
    member->place = block.place;
    member->memory = block.data;
    member->closed = closed_;
    return member;
}

Result<std::shared_ptr<FlatMember>> GroupJoiner::lead(const GroupRequest& group) {
    auto member = make_group(group);
    GroupHost::GroupOffer offer{.size = group.size, .streams = group.streams};
    if (member)
        offer.member = *member;
    else
        offer.answer = {.code = member.error().code, .text = member.error().message};
    host_->publish(group.comm, std::move(offer));
    return member;
}

Result<std::shared_ptr<FlatMember>> GroupJoiner::follow(const GroupRequest& group,
                                                        Deadline deadline) {
    const Rank leader = group.in_job(0);
    const auto doing = [&] { return fmt::format("flat: joining rank {}", leader); };
    TUTTI_ASSIGN(const PeerAddress address, group.find(leader));
    UniqueFd socket;
    for (net::Redial redial;;) {
        auto met = net::connect_unix(address.address, {.deadline = deadline});
        if (!met)
            return fail_rank(Code::unsupported, leader, "flat: rank {} cannot be reached: {}",
                             leader, met.error().message)
                .advice(same_namespace);
        socket = std::move(*met);
        const auto asked = ask(socket.get(), group, deadline);
        if (asked) break;
        if (!redial.again(asked.error(), deadline)) return wrap(asked.error(), doing());
    }
    auto message = net::recv_fds(socket.get(), max_frame_bytes, deadline);
    if (!message) return wrap(std::move(message).error(), doing());
    TUTTI_ASSIGN(const GroupAnswer answer, decode_answer(message->body));
    if (answer.code != Code::ok) return fail(answer.code, "{}: {}", doing(), answer.text);
    if (auto taken = take(group, answer, std::move(message->fds)); !taken)
        return wrap(std::move(taken).error(), doing());

    auto member = std::make_shared<FlatMember>(group.rank, group.size, group.streams);
    for (Rank rank = 0; rank < group.size; ++rank) {
        member->doorbells.push_back(neighbours_->bell(group.in_job(rank)));
        if (rank != group.rank && !member->doorbells.back())
            return fail(Code::invalid, "{}: it sent no doorbell of rank {}", doing(), rank)
                .advice(same_version);
    }
    const auto segments = neighbours_->segments(leader);
    std::byte* memory = segments->at(answer.place, member->layout.bytes());
    if (memory == nullptr)
        return fail(Code::invalid, "{}: there is no page {} in segment {} of its shared memory",
                    doing(), answer.place.page, answer.place.segment)
            .advice(same_version);
    member->segments = segments;
    member->place = answer.place;
    member->memory = memory;
    return member;
}

Result<> GroupJoiner::ask(int socket, const GroupRequest& group, Deadline deadline) {
    const Rank leader = group.in_job(0);
    ShmHello hello{.kind = HelloKind::group,
                   .rank = group.rank,
                   .comm = group.comm,
                   .size = group.size,
                   .streams = group.streams,
                   .segments = neighbours_->segments(leader)->count()};
    for (Rank rank = 0; rank < group.size; ++rank) {
        const bool known = rank == group.rank ? neighbours_->is_rung_by(leader)
                                              : neighbours_->bell(group.in_job(rank)) != nullptr;
        if (known) hello.bells |= bit(rank);
    }
    return net::introduce(socket, key_, encode(hello), deadline);
}

Result<> GroupJoiner::take(const GroupRequest& group, const GroupAnswer& answer,
                           std::vector<UniqueFd> fds) {
    const std::size_t segments = answer.segment_bytes.size();
    const auto bells = static_cast<std::size_t>(std::popcount(answer.bells));
    if (fds.size() != segments + bells)
        return fail(Code::invalid, "it sent {} file descriptors instead of {}", fds.size(),
                    segments + bells)
            .advice(same_version);
    const Rank leader = group.in_job(0);
    const auto table = neighbours_->segments(leader);
    std::size_t next = 0;
    for (; next < segments; ++next)
        TUTTI_TRY(table->take(answer.first_segment + static_cast<uint32_t>(next),
                              std::move(fds[next]), answer.segment_bytes[next]));
    for (Rank rank = 0; rank < group.size; ++rank) {
        if ((answer.bells & bit(rank)) == 0) continue;
        // The non-blocking flag belongs to the eventfd's open file description, and the leader has
        // set it.
        if (rank == group.rank)
            TUTTI_TRY(neighbours_->watch(leader, std::move(fds[next]), *context_.data_reactor));
        else
            neighbours_->add_bell(group.in_job(rank), std::move(fds[next]));
        if (++next == fds.size()) break;
    }
    return {};
}

}  // namespace tutti::shm
