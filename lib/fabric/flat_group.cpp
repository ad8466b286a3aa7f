#include "fabric/flat_group.h"

#include <algorithm>
#include <cstring>

namespace tutti::fabric {
namespace {

/// This rank's membership. Operations keep it, and with it the engines. A stream runs over the
/// engine that its channels do.
struct Member {
    struct EngineBoard {
        std::shared_ptr<FabricEngine> engine;
        std::unique_ptr<SlotBoard> board;
    };
    Member(const std::vector<std::shared_ptr<FabricEngine>>& engines, const GroupRequest& group)
        : streams(group.streams) {
        for (std::size_t i = 0; i < engines.size(); ++i)
            parts.push_back({engines[i], std::make_unique<SlotBoard>(
                                             group.comm, group.rank, group.size, group.streams,
                                             SlotBoard::Share{i, engines.size()})});
    }
    ~Member() {
        for (const EngineBoard& part : parts) part.engine->flat().leave(*part.board);
    }
    Member(const Member&) = delete;

    const EngineBoard& part(uint32_t stream) const { return parts[stream % parts.size()]; }

    const uint32_t streams;
    std::vector<EngineBoard> parts;
};

/// Allreduce, and barrier as the allreduce of nothing.
class FlatOperation final : public Operation {
public:
    FlatOperation(std::shared_ptr<Member> member, const IntrinsicShape& shape)
        : member_(std::move(member)),
          engine_(*member_->part(shape.stream).engine),
          board_(*member_->part(shape.stream).board),
          stream_(*board_.streams[shape.stream]),
          own_(static_cast<std::size_t>(board_.rank)),
          reduction_(shape, static_cast<Rank>(board_.size())),
          bytes_(reduction_.empty() ? 0 : shape.count * shape.reducer.bytes(Width::raw)),
          contributions_(board_.size()) {}

    // Another of the stream's operations may be announced by now.
    ~FlatOperation() override {
        if (armed_) engine_.arm(false);
    }

    void start(const Tag& tag, const void* in, void* out) override {
        tag_ = tag;
        in_ = static_cast<const std::byte*>(in);
        out_ = out;
        number_ = ++stream_.started;
        turn_ = SlotStream::turn_of(tag, number_);
        next_ = 0;
        published_ = false;
        running_ = true;
    }
    Poll progress() override;
    void cancel() override {
        running_ = false;
        engine_.flat().cancel(stream_);
    }
    // The announcing thread holds the engine once, also in another's place.
    void arm(bool on) override {
        stream_.sleeper.set_sleeping(on);
        if (armed_) engine_.arm(false);
        armed_ = on;
        if (on) engine_.arm(true);
    }
    Rank waits_for() const override {
        if (!running_ || next_ >= board_.size()) return nobody;
        return static_cast<Rank>(next_);
    }

private:
    void publish();
    Poll gather();
    Poll differs(const Peer* peer, const Tag& tag);

    const std::shared_ptr<Member> member_;
    FabricEngine& engine_;
    SlotBoard& board_;
    SlotStream& stream_;
    const std::size_t own_;
    FlatReduction reduction_;
    const std::size_t bytes_;
    std::vector<const std::byte*> contributions_;

    Tag tag_;
    const std::byte* in_ = nullptr;
    void* out_ = nullptr;
    uint64_t number_ = 0, turn_ = 0;
    std::size_t next_ = 0;  // whose contribution is the next to look at
    bool published_ = false, running_ = false, armed_ = false;
    Failure failure_;
};

void FlatOperation::publish() {
    published_ = true;
    stream_.slot(own_, number_).turn.store(turn_, std::memory_order_relaxed);
    Contribution& out = stream_.outgoing;
    out.header.bytes = static_cast<uint32_t>(bytes_);
    out.header.position = static_cast<uint32_t>(number_);
    out.header.tag = tag_;
    if (bytes_ > 0) std::memcpy(out.payload.data(), in_, bytes_);
    // Pairs with the engine's look: the contribution before who is to have it.
    const uint64_t all = (uint64_t{1} << board_.size()) - 1;
    stream_.unsent.store(all & ~(uint64_t{1} << own_), std::memory_order_release);
}

Poll FlatOperation::differs(const Peer* peer, const Tag& tag) {
    const auto member = std::find(board_.peers.begin(), board_.peers.end(), peer);
    failure_ = {{Code::mismatch, static_cast<Rank>(member - board_.peers.begin()), 0, {}}, tag};
    running_ = false;
    return failure_;
}

/// ok: every contribution is here, with the tag it must have, and this rank's has left.
Poll FlatOperation::gather() {
    for (; next_ < board_.size(); ++next_) {
        if (next_ == own_) continue;
        if (!stream_.has(next_, number_, turn_)) return Code::in_progress;
        const SlotStream::Slot& slot = stream_.slot(next_, number_);
        if (slot.tag != tag_) return differs(board_.peers[next_], slot.tag);
        if (slot.bytes != bytes_) {
            engine_.reject(
                *board_.peers[next_],
                fmt::format("it sent {} bytes where its call has {}", slot.bytes, bytes_));
            return Code::in_progress;
        }
        contributions_[next_] = slot.payload.data();
    }
    const bool sent = stream_.unsent.load(std::memory_order_acquire) == 0;
    return sent ? Code::ok : Code::in_progress;
}

Poll FlatOperation::progress() {
    if (!running_) return Code::ok;
    if (!published_) publish();
    // This rank's contribution goes first.
    const bool all_sent = stream_.unsent.load(std::memory_order_relaxed) == 0;
    Poll poll = all_sent ? gather() : Poll(Code::in_progress);
    for (bool on = true; poll.pending() && on;) {
        const std::size_t before = next_;
        const std::size_t member = before < board_.size() ? before : own_;
        const auto* stray =
            engine_.flat().exchange(board_, stream_, {member, number_, turn_, tag_});
        if (stray) [[unlikely]]
            return differs(&stray->flow->peer, stray->tag);
        poll = gather();
        on = next_ > before;
    }
    if (poll.code != Code::ok) return poll;
    if (stream_.unread.load(std::memory_order_relaxed)) [[unlikely]]
        if (const auto* stray = engine_.flat().stray(stream_, tag_))
            return differs(&stray->flow->peer, stray->tag);
    contributions_[own_] = in_;
    if (!reduction_.empty()) reduction_.run(contributions_, out_);
    running_ = false;
    return Code::ok;
}

class FlatGroup final : public IntrinsicGroup {
public:
    explicit FlatGroup(std::shared_ptr<Member> member) : member_(std::move(member)) {}

    bool serves(Collective collective, std::size_t bytes) const override {
        return bytes <= flat_max_bytes &&
               (collective == Collective::allreduce || collective == Collective::barrier);
    }
    std::size_t most_bytes() const override { return flat_max_bytes; }
    bool sends() const override { return true; }
    Result<std::unique_ptr<Operation>> bind(const IntrinsicShape& shape) override;
    // Turns hold the epoch: what lies in the slots is never taken for a new operation's.
    void reset() override {
        for (uint32_t i = 0; i < member_->streams; ++i)
            member_->part(i).board->streams[i]->started = 0;
    }

private:
    const std::shared_ptr<Member> member_;
};

Result<std::unique_ptr<Operation>> FlatGroup::bind(const IntrinsicShape& shape) {
    TUTTI_TRY(flat_contribution_bytes(*this, shape));
    if (shape.stream >= member_->streams)
        return fail(Code::invalid, "flat: stream {} of {}", shape.stream, member_->streams);
    return std::make_unique<FlatOperation>(member_, shape);
}

}  // namespace

Result<std::unique_ptr<IntrinsicGroup>> FlatProvider::join(const GroupRequest& group,
                                                           Deadline deadline) {
    static_cast<void>(deadline);  // only who looks for the members waits
    TUTTI_TRY(check_flat_group(group, 2, flat_max_ranks));
    std::vector<Contact> contacts(static_cast<std::size_t>(group.size));
    for (Rank rank = 0; rank < group.size; ++rank) {
        if (rank == group.rank) continue;
        TUTTI_ASSIGN(const PeerAddress found, group.find(group.in_job(rank)));
        TUTTI_ASSIGN(Address address, parse_(found));
        if (address.ports.size() != engines_.size())
            return fail_rank(Code::unsupported, found.rank,
                             "flat: rank {} has {} ports, this one {}: see TUTTI_FABRIC_PORTS",
                             found.rank, address.ports.size(), engines_.size());
        contacts[static_cast<std::size_t>(rank)] = {found.rank, std::move(address)};
    }
    auto member = std::make_shared<Member>(engines_, group);
    for (std::size_t i = 0; i < engines_.size(); ++i)
        TUTTI_TRY(engines_[i]->flat().join(*member->parts[i].board, contacts, i));
    return std::make_unique<FlatGroup>(std::move(member));
}

}  // namespace tutti::fabric
