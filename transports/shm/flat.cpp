// The flat exchange: every rank writes its contribution once, reads everyone else's, and reduces
// them in rank order, so that all ranks compute the same bits. Latency is one line written and one
// line read per peer.
#include <algorithm>
#include <bit>
#include <cstring>

#include "reduce/streaming_stores.h"
#include "transport/flat/flat_exchange.h"
#include "transports/shm/flat_group.h"

namespace tutti::shm {
namespace {

// From here on a contribution may be written past the cache. Short ones are read at once, and their
// readers wait for memory: only cores that share no cache gain enough.
constexpr std::size_t past_cache_bytes = 4096, long_bytes = 16 * 1024;
constexpr double gain_of_short = 9, gain_of_long = 1.5;

class FlatOperation : public Operation {
public:
    FlatOperation(std::shared_ptr<FlatMember> member, const IntrinsicShape& shape)
        : member_(std::move(member)),
          state_(member_->streams[shape.stream]),
          memory_(member_->memory),
          sleepers_(*reinterpret_cast<std::atomic<uint64_t>*>(
              memory_ + member_->layout.sleepers_offset(shape.stream))),
          rank_(member_->rank),
          size_(member_->size),
          bytes_(shape.count * shape.reducer.bytes(Width::raw)) {
        for (uint64_t turn = 0; turn < flat_depth; ++turn) {
            slots_[turn] = memory_ + member_->layout.slots_offset(shape.stream, turn);
            areas_[turn] = memory_ + member_->layout.areas_offset(shape.stream, turn);
        }
    }

    void start(const Tag& tag, const void* in, void* out) final {
        in_ = static_cast<const std::byte*>(in);
        out_ = static_cast<std::byte*>(out);
        number_ = ++state_.started;
        epoch_bits_ = tag.epoch() << Tag::epoch_shift;
        state_.tags[number_ % 2] = tag;
        tag_ = tag;
        next_ = 0;
        checked_ = 0;
        published_ = false;
        running_ = true;
    }
    void cancel() final { running_ = false; }
    void arm(bool on) final {
        const uint64_t bit = uint64_t{1} << rank_;
        if (on)
            sleepers_.fetch_or(bit, std::memory_order_seq_cst);
        else
            sleepers_.fetch_and(~bit, std::memory_order_seq_cst);
    }

protected:
    FlatSlot& slot(uint64_t number, Rank rank) const {
        return *reinterpret_cast<FlatSlot*>(slots_[number % flat_depth] +
                                            static_cast<std::size_t>(rank) * no_share_bytes);
    }
    std::byte* payload(Rank rank) const {
        if (bytes_ <= flat_inline_bytes) return slot(number_, rank).payload;
        return areas_[number_ % flat_depth] + static_cast<std::size_t>(rank) * flat_slot_bytes;
    }

    void publish(bool with_payload) {
        FlatSlot& own = slot(number_, rank_);
        if (with_payload && bytes_ > 0) write(payload(rank_));
        own.tag = tag_;
        // Sequentially consistent with arm(): either the last look of a peer that goes to sleep
        // sees this turn, or we see that it sleeps.
        own.turn.store(epoch_bits_ | number_, std::memory_order_seq_cst);
        published_ = true;
        const uint64_t asleep = sleepers_.load(std::memory_order_seq_cst);
        if (asleep != 0) [[unlikely]]
            wake(asleep);
    }

    /// ok: that rank's slot of operation `number` is here, with the tag it must have.
    Code check_slot(uint64_t number, Rank rank, const Tag& tag) {
        const FlatSlot& theirs = slot(number, rank);
        if (theirs.turn.load(std::memory_order_seq_cst) != (epoch_bits_ | number))
            return Code::in_progress;
        if (theirs.tag == tag) [[likely]]
            return Code::ok;
        failure_ = {{Code::mismatch, rank, 0, {}}, theirs.tag};
        running_ = false;
        return Code::mismatch;
    }

    Code gather() {
        for (; next_ < size_; ++next_) {
            if (next_ == rank_) continue;
            if (const Code code = check_slot(number_, next_, tag_); code != Code::ok) return code;
        }
        return Code::ok;
    }

    /// The rule that makes slots reusable and lets a broadcast's root learn of a mismatch: nothing
    /// completes before the previous operation's slots were seen.
    Code check_previous() {
        const uint64_t previous = number_ - 1;
        if (state_.seen >= previous) [[likely]]
            return Code::ok;
        const Tag& tag = state_.tags[previous % 2];
        for (; checked_ < size_; ++checked_) {
            if (checked_ == rank_) continue;
            if (const Code code = check_slot(previous, checked_, tag); code != Code::ok)
                return code;
        }
        state_.seen = previous;
        return Code::ok;
    }

    /// The result of a step that is not over.
    Poll reached(Code code) const {
        return code == Code::in_progress ? Poll(code) : Poll(failure_);
    }
    Poll finish(uint64_t seen) {
        state_.seen = seen;
        running_ = false;
        return Code::ok;
    }

    std::shared_ptr<FlatMember> member_;
    FlatStream& state_;
    std::byte* memory_;
    std::atomic<uint64_t>& sleepers_;
    std::array<std::byte*, flat_depth> slots_{};
    std::array<std::byte*, flat_depth> areas_{};
    const Rank rank_;
    const Rank size_;
    const std::size_t bytes_;

    const std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    Tag tag_;
    uint64_t number_ = 0;
    uint64_t epoch_bits_ = 0;
    Rank next_ = 0;     // whose slot of this operation is the next to look at
    Rank checked_ = 0;  // whose slot of the previous one is
    bool published_ = false;
    bool running_ = false;

private:
    void write(std::byte* to) {
        copy_message(bytes_ < past_cache_bytes ? nullptr : &past_cache_, to, in_, bytes_);
    }

    void wake(uint64_t asleep) {
        const int ranks = size_;
        asleep &= ~(uint64_t{1} << rank_);
        while (asleep != 0) {
            const int rank = std::countr_zero(asleep);
            if (rank >= ranks) return;  // the word is the peers' to write: no index without a check
            member_->doorbells[static_cast<std::size_t>(rank)]->ring();
            asleep &= asleep - 1;
        }
    }

    StreamingStorePolicy past_cache_{bytes_ < long_bytes ? gain_of_short : gain_of_long};
    Failure failure_;
};

/// Allreduce, and barrier as the allreduce of nothing.
class FlatAllreduce final : public FlatOperation {
public:
    FlatAllreduce(std::shared_ptr<FlatMember> member, const IntrinsicShape& shape)
        : FlatOperation(std::move(member), shape),
          reduction_(shape, size_),
          contributions_(static_cast<std::size_t>(size_)) {}

    Poll progress() override {
        if (!running_) return Code::ok;
        if (!published_) publish(!reduction_.empty());
        if (const Code code = gather(); code != Code::ok) return reached(code);
        if (const Code code = check_previous(); code != Code::ok) return reached(code);
        if (!reduction_.empty()) reduce();
        return finish(number_);
    }
    Rank waits_for() const override {
        if (!running_) return nobody;
        return next_ < size_ ? next_ : checked_ < size_ ? checked_ : nobody;
    }

private:
    void reduce() {
        for (Rank rank = 0; rank < size_; ++rank)
            contributions_[static_cast<std::size_t>(rank)] = rank == rank_ ? in_ : payload(rank);
        reduction_.run(contributions_, out_);
    }

    FlatReduction reduction_;
    std::vector<const std::byte*> contributions_;
};

class FlatBroadcast final : public FlatOperation {
public:
    FlatBroadcast(std::shared_ptr<FlatMember> member, const IntrinsicShape& shape)
        : FlatOperation(std::move(member), shape), root_(shape.root) {}

    Poll progress() override {
        if (!running_) return Code::ok;
        if (!published_) {
            if (rank_ == root_) {
                publish(true);
                if (out_ != nullptr) keep(in_);
            } else {
                if (const Code code = check_slot(number_, root_, tag_); code != Code::ok)
                    return reached(code);
                // Copied before it is acknowledged: an acknowledged payload is not read again.
                keep(payload(root_));
                publish(false);
            }
        }
        if (const Code code = check_previous(); code != Code::ok) return reached(code);
        return finish(state_.seen);
    }
    Rank waits_for() const override {
        if (!running_) return nobody;
        if (!published_) return root_;
        return checked_ < size_ ? checked_ : nobody;
    }

private:
    void keep(const std::byte* data) {
        if (bytes_ > 0 && out_ != data) std::memcpy(out_, data, bytes_);
    }

    const Rank root_;
};

}  // namespace

std::unique_ptr<Operation> make_flat_operation(std::shared_ptr<FlatMember> member,
                                               const IntrinsicShape& shape) {
    if (shape.collective == Collective::broadcast)
        return std::make_unique<FlatBroadcast>(std::move(member), shape);
    return std::make_unique<FlatAllreduce>(std::move(member), shape);
}

}  // namespace tutti::shm
