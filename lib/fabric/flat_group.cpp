#include "fabric/flat_group.h"

#include <algorithm>
#include <cstring>

#include "transport/flat/flat_group.h"

namespace tutti::fabric {
namespace {

/// This rank's membership. Operations keep it, and with it the engines. A stream runs over the same
/// engine as its channels.
struct Member {
    struct EngineBoard {
        std::shared_ptr<FabricEngine> engine;
        std::unique_ptr<SlotBoard> board;
    };
    Member(const std::vector<std::shared_ptr<FabricEngine>>& engines, const GroupRequest& group)
        : rank(group.rank), size(group.size), streams(group.streams) {
        for (std::size_t i = 0; i < engines.size(); ++i)
            parts.push_back({engines[i], std::make_unique<SlotBoard>(
                                             group.comm, group.rank, group.size, group.streams,
                                             SlotBoard::Share{i, engines.size()})});
    }
    ~Member() {
        for (const EngineBoard& part : parts) part.engine->flat().leave(*part.board);
    }
    Member(const Member&) = delete;

    // The slots have room for the largest contribution.
    static Result<> prepare(uint32_t, std::size_t) { return {}; }
    const EngineBoard& part(uint32_t stream) const { return parts[stream % parts.size()]; }

    static constexpr FlatLimits limits{.least_ranks = 2,
                                       .most_ranks = flat_max_ranks,
                                       .most_bytes = flat_max_bytes,
                                       .sends = true};
    const Rank rank;
    const Rank size;
    std::vector<FlatStream> streams;
    std::vector<EngineBoard> parts;
};

/// Slots in this process, into which the engine copies the peers' contributions.
class FabricBoard {
public:
    using Member = fabric::Member;
    FabricBoard(std::shared_ptr<Member> member, uint32_t stream, std::size_t message_bytes)
        : rank(member->rank),
          size(member->size),
          bytes(message_bytes),
          member_(std::move(member)),
          engine_(*member_->part(stream).engine),
          board_(*member_->part(stream).board),
          stream_(*board_.streams[stream]) {}
    // Leaves the stream's sleeper as it is: another operation of the stream may have set it by now.
    ~FabricBoard() {
        if (armed_) engine_.arm(false);
    }
    FabricBoard(const FabricBoard&) = delete;

    static uint64_t turn_of(const Tag& tag, uint64_t number) {
        return SlotStream::turn_of(tag, number);
    }
    SlotStream::Slot& slot(Rank of, uint64_t number) const {
        return stream_.slot(static_cast<std::size_t>(of), number);
    }
    const std::byte* payload(Rank of, uint64_t number) const {
        return slot(of, number).payload.data();
    }
    bool accepts(Rank from, const SlotStream::Slot& slot) {
        if (slot.bytes == bytes) [[likely]]
            return true;
        engine_.reject(*board_.peers[static_cast<std::size_t>(from)],
                       fmt::format("it sent {} bytes where its call has {}", slot.bytes, bytes));
        return false;
    }

    void publish(const FlatRun& run, ByteView contribution);
    template <typename Check>
    Code collect(const FlatRun& run, const Rank& next, Failure& failure, Check check);
    void cancel() { engine_.flat().cancel(stream_); }
    // Counts this thread as a sleeper of the engine at most once, even if it calls with on again.
    void arm(bool on) {
        stream_.sleeper.set_sleeping(on);
        if (armed_) engine_.arm(false);
        armed_ = on;
        if (on) engine_.arm(true);
    }

    const Rank rank;
    const Rank size;
    const std::size_t bytes;

private:
    // Acquire: the engine's owner has finished reading the contribution that the next run
    // overwrites.
    bool has_sent() const { return stream_.unsent.load(std::memory_order_acquire) == 0; }
    Code report(const ReceiveQueue::ReceiveSlot& stray, Failure& failure) const;

    const std::shared_ptr<Member> member_;
    FabricEngine& engine_;
    SlotBoard& board_;
    SlotStream& stream_;
    bool armed_ = false;
};

void FabricBoard::publish(const FlatRun& run, ByteView contribution) {
    slot(rank, run.number).turn.store(run.turn, std::memory_order_relaxed);
    Contribution& out = stream_.outgoing;
    out.header.bytes = static_cast<uint32_t>(contribution.size());
    out.header.position = static_cast<uint32_t>(run.number);
    out.header.tag = run.tag;
    if (!contribution.empty())
        std::memcpy(out.payload.data(), contribution.data(), contribution.size());
    // Pairs with the engine's load of `unsent`: the contribution is visible before the members'
    // bits.
    const uint64_t all = (uint64_t{1} << size) - 1;
    stream_.unsent.store(all & ~(uint64_t{1} << rank), std::memory_order_release);
}

// Sends this rank's contribution first; the operation ends only once the contribution is sent.
template <typename Check>
Code FabricBoard::collect(const FlatRun& run, const Rank& next, Failure& failure, Check check) {
    Code code = has_sent() ? check() : Code::in_progress;
    for (Rank before = nobody; code == Code::in_progress && next != before;) {
        before = next;
        const auto awaited = static_cast<std::size_t>(before < size ? before : rank);
        const auto* stray = engine_.flat().exchange(board_, stream_, run, awaited);
        if (stray) [[unlikely]]
            return report(*stray, failure);
        code = check();
        if (code == Code::ok && !has_sent()) code = Code::in_progress;
    }
    if (code != Code::ok) return code;
    if (stream_.unread.load(std::memory_order_relaxed)) [[unlikely]]
        if (const auto* stray = engine_.flat().stray(stream_, run.tag))
            return report(*stray, failure);
    return Code::ok;
}

Code FabricBoard::report(const ReceiveQueue::ReceiveSlot& stray, Failure& failure) const {
    const auto from = std::find(board_.peers.begin(), board_.peers.end(), &stray.flow->peer);
    const auto peer = static_cast<Rank>(from - board_.peers.begin());
    failure = {{Code::mismatch, peer, 0, {}}, stray.tag};
    return Code::mismatch;
}

Result<std::unique_ptr<IntrinsicGroup>> join_flat_group(
    const std::vector<std::shared_ptr<FabricEngine>>& engines, const ParseAddress& parse,
    const GroupRequest& group) {
    std::vector<Contact> contacts(static_cast<std::size_t>(group.size));
    for (Rank rank = 0; rank < group.size; ++rank) {
        if (rank == group.rank) continue;
        TUTTI_ASSIGN(const PeerAddress found, group.find(group.in_job(rank)));
        TUTTI_ASSIGN(Address address, parse(found));
        if (address.ports.size() != engines.size())
            return fail_rank(Code::unsupported, found.rank,
                             "flat: rank {} has {} ports, but this rank has {}", found.rank,
                             address.ports.size(), engines.size())
                .advice("set TUTTI_FABRIC_PORTS to the same number on every rank");
        contacts[static_cast<std::size_t>(rank)] = {found.rank, std::move(address)};
    }
    auto member = std::make_shared<Member>(engines, group);
    for (std::size_t i = 0; i < engines.size(); ++i)
        TUTTI_TRY(engines[i]->flat().join(*member->parts[i].board, contacts, i));
    return std::make_unique<FlatGroup<FabricBoard>>(std::move(member));
}

}  // namespace

std::unique_ptr<IntrinsicProvider> make_flat_provider(
    std::vector<std::shared_ptr<FabricEngine>> engines, ParseAddress parse) {
    // Joining here does not wait for the members, so it ignores the deadline.
    auto join = [engines = std::move(engines), parse = std::move(parse)](const GroupRequest& group,
                                                                         Deadline) {
        return join_flat_group(engines, parse, group);
    };
    return std::make_unique<FlatProvider>(Member::limits, std::move(join));
}

}  // namespace tutti::fabric
