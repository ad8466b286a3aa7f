// The flat exchange in shared memory: a rank writes its contribution once, into memory that all
// peers read. Latency: one cache line written, and one read per peer.
#include <bit>
#include <utility>

#include "reduce/streaming_stores.h"
#include "transport/flat/flat_group.h"
#include "transports/shm/flat_group.h"

namespace tutti::shm {
namespace {

// A contribution of this size or more may be written with streaming stores. Peers read short ones
// at once and would wait for memory, so the gain must be large: only cores that share no cache
// reach it.
constexpr std::size_t past_cache_bytes = 4096, long_bytes = 16 * 1024;
constexpr double gain_of_short = 9, gain_of_long = 1.5;

/// Slots in memory that all ranks map.
class MappedBoard {
public:
    using Member = FlatMember;
    MappedBoard(std::shared_ptr<FlatMember> member, uint32_t stream, std::size_t message_bytes)
        : rank(member->rank),
          size(member->size),
          bytes(message_bytes),
          member_(std::move(member)),
          sleepers_(*reinterpret_cast<std::atomic<uint64_t>*>(
              member_->memory + member_->layout.sleepers_offset(stream))) {
        for (uint64_t turn = 0; turn < flat_depth; ++turn) {
            slots_[turn] = member_->memory + member_->layout.slots_offset(stream, turn);
            areas_[turn] = member_->memory + member_->layout.areas_offset(stream, turn);
        }
    }

    static uint64_t turn_of(const Tag& tag, uint64_t number) {
        return tag.epoch() << Tag::epoch_shift | number;
    }
    FlatSlot& slot(Rank of, uint64_t number) const {
        return *reinterpret_cast<FlatSlot*>(slots_[number % flat_depth] +
                                            static_cast<std::size_t>(of) * no_share_bytes);
    }
    std::byte* payload(Rank of, uint64_t number) const {
        if (bytes <= flat_inline_bytes) return slot(of, number).payload;
        return areas_[number % flat_depth] + static_cast<std::size_t>(of) * flat_slot_bytes;
    }
    // Equal tags mean equal sizes.
    static bool accepts(Rank, const FlatSlot&) { return true; }

    void publish(const FlatRun& run, ByteView contribution) {
        FlatSlot& own = slot(rank, run.number);
        if (!contribution.empty()) write(payload(rank, run.number), contribution.data());
        own.tag = run.tag;
        // Sequentially consistent with arm(): either the last look of a peer that goes to sleep
        // sees this turn, or this thread sees that the peer sleeps.
        own.turn.store(run.turn, std::memory_order_seq_cst);
        const uint64_t asleep = sleepers_.load(std::memory_order_seq_cst);
        if (asleep != 0) [[unlikely]]
            wake(asleep);
    }
    // No receiving: the peers write to memory that this rank maps.
    template <typename Check>
    Code collect(const FlatRun&, const Rank&, Failure&, Check check) {
        return check();
    }
    void cancel() {}
    void arm(bool on) {
        const uint64_t bit = uint64_t{1} << rank;
        if (on)
            sleepers_.fetch_or(bit, std::memory_order_seq_cst);
        else
            sleepers_.fetch_and(~bit, std::memory_order_seq_cst);
    }

    const Rank rank;
    const Rank size;
    const std::size_t bytes;

private:
    void write(std::byte* to, const std::byte* from) {
        copy_message(bytes < past_cache_bytes ? nullptr : &past_cache_, to, from, bytes);
    }

    void wake(uint64_t asleep) const {
        asleep &= ~(uint64_t{1} << rank);
        while (asleep != 0) {
            const int peer = std::countr_zero(asleep);
            if (peer >= size) return;  // peers can write this word, so the index is checked
            member_->doorbells[static_cast<std::size_t>(peer)]->ring();
            asleep &= asleep - 1;
        }
    }

    const std::shared_ptr<FlatMember> member_;
    std::atomic<uint64_t>& sleepers_;
    std::array<std::byte*, flat_depth> slots_{};
    std::array<std::byte*, flat_depth> areas_{};
    StreamingStorePolicy past_cache_{bytes < long_bytes ? gain_of_short : gain_of_long};
};

}  // namespace

std::unique_ptr<IntrinsicGroup> make_flat_group(std::shared_ptr<FlatMember> member) {
    return std::make_unique<FlatGroup<MappedBoard>>(std::move(member));
}

}  // namespace tutti::shm
