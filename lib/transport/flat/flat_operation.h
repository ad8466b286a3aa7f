// The operations of a flat exchange: every rank publishes its contribution once and reads those of
// all other ranks. An operation runs over a board, which a transport provides: the slots of one
// stream, and the way a contribution gets into the other ranks' slots.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "transport/flat/flat_exchange.h"

namespace tutti {

/// One run of an operation.
struct FlatRun {
    uint64_t number = 0;  // on its stream, from 1
    uint64_t turn = 0;    // the value of a slot's turn once it has this run's contribution
    Tag tag;
};

/// A rank's position on one stream. Only the thread that drives the stream accesses it; other
/// threads drive its neighbours in memory.
struct alignas(no_share_bytes) FlatStream {
    uint64_t started = 0;  // number of the newest run; 0 again in a new epoch
    uint64_t seen = 0;     // the newest run for which the slots of all peers were here, with equal
                           // tags
    std::array<FlatRun, 2> runs{};  // the newest two runs, by number
};

/// A board has the slots of one stream, for one operation. A rank writes its slot of a run without
/// asking whether the peers have read the slot's previous contribution: each transport says beside
/// its slots why it has enough of them. All transports rely on the rule that no run completes
/// before this rank has seen the previous run's slots.
///
/// No function is virtual: a small message takes few instructions more than these.
template <typename Board>
concept FlatBoard = requires(Board& board, const FlatRun& run, const Rank& rank, Failure& failure,
                             Code (*check)()) {
    typename Board::Member;  // the state that the group's operations share
    board.rank;
    board.size;
    board.bytes;  // of a contribution
    // The writer stores `turn` last; a reader that sees it may read the tag and the payload.
    { board.slot(rank, run.number).turn } -> std::same_as<std::atomic<uint64_t>&>;
    { board.slot(rank, run.number).tag } -> std::same_as<Tag&>;
    { board.payload(rank, run.number) } -> std::convertible_to<const std::byte*>;
    { Board::turn_of(run.tag, run.number) } -> std::same_as<uint64_t>;
    // A slot with the right tag must have the right bytes too. If not, the board reports the peer
    // as lost.
    { board.accepts(rank, board.slot(rank, run.number)) } -> std::same_as<bool>;
    board.publish(run, ByteView());
    // The board calls `check`, which advances `rank` past the slots that are here, for as long as
    // this thread can receive further contributions. mismatch: the board has filled in `failure`.
    { board.collect(run, rank, failure, check) } -> std::same_as<Code>;
    board.arm(true);
    board.cancel();
};

template <FlatBoard Board>
class FlatOperation : public Operation {
public:
    using Member = typename Board::Member;
    FlatOperation(std::shared_ptr<Member> member, uint32_t stream, std::size_t bytes)
        : stream_(member->streams[stream]), board_(std::move(member), stream, bytes) {}

    void start(const Tag& tag, const void* in, void* out) final {
        in_ = static_cast<const std::byte*>(in);
        out_ = static_cast<std::byte*>(out);
        const uint64_t number = ++stream_.started;
        run_ = &stream_.runs[number % 2];
        *run_ = {number, Board::turn_of(tag, number), tag};
        next_ = 0;
        checked_ = 0;
        published_ = false;
        running_ = true;
    }
    void cancel() final {
        running_ = false;
        board_.cancel();
    }
    void arm(bool on) final { board_.arm(on); }

protected:
    void publish(ByteView contribution) {
        board_.publish(*run_, contribution);
        published_ = true;
    }

    /// ok: that rank's slot of the run is here, with the tag it must have.
    Code check_slot(const FlatRun& run, Rank rank) {
        const auto& theirs = board_.slot(rank, run.number);
        // Sequentially consistent: a thread checks the slot again after arm(true) and before it
        // sleeps, so either it sees the turn or the writer sees that it sleeps.
        if (theirs.turn.load(std::memory_order_seq_cst) != run.turn) return Code::in_progress;
        if (theirs.tag == run.tag) [[likely]]
            return board_.accepts(rank, theirs) ? Code::ok : Code::in_progress;
        failure_ = {{Code::mismatch, rank, 0, {}}, theirs.tag};
        return Code::mismatch;
    }
    /// ok: the slots of all peers are here, with the expected tag.
    Code gather() {
        const FlatRun& run = *run_;
        return board_.collect(run, next_, failure_, [&] { return check_slots(run, next_); });
    }

    /// No operation completes before this rank has seen the previous operation's slots. This makes
    /// slots reusable, and lets a broadcast's root learn of a mismatch.
    Code check_previous() {
        const uint64_t previous = run_->number - 1;
        if (stream_.seen >= previous) [[likely]]
            return Code::ok;
        const Code code = check_slots(stream_.runs[previous % 2], checked_);
        if (code == Code::ok) stream_.seen = previous;
        return code;
    }
    Rank previous_waits_for() const {
        return stream_.seen + 1 < run_->number && checked_ < board_.size ? checked_ : nobody;
    }

    /// Ends the run if the step failed.
    Poll reached(Code code) {
        if (code == Code::in_progress) return code;
        running_ = false;
        return failure_;
    }
    Poll finish(uint64_t seen) {
        stream_.seen = seen;
        running_ = false;
        return Code::ok;
    }

    FlatStream& stream_;
    Board board_;
    FlatRun* run_ = nullptr;  // an element of the stream's runs; nullptr before the first
    const std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    Rank next_ = 0;     // the rank whose slot of this run is checked next
    Rank checked_ = 0;  // the rank whose slot of the previous run is checked next
    bool published_ = false;
    bool running_ = false;

private:
    Code check_slots(const FlatRun& run, Rank& next) {
        for (; next < board_.size; ++next) {
            if (next == board_.rank) continue;
            if (const Code code = check_slot(run, next); code != Code::ok) return code;
        }
        return Code::ok;
    }

    Failure failure_;
};

/// Allreduce, and barrier as the allreduce of no elements.
template <FlatBoard Board>
class FlatAllreduce final : public FlatOperation<Board> {
    using Base = FlatOperation<Board>;

public:
    FlatAllreduce(std::shared_ptr<typename Base::Member> member, const IntrinsicShape& shape,
                  std::size_t bytes)
        : Base(std::move(member), shape.stream, bytes),
          reduction_(shape, board_.size),
          contributions_(static_cast<std::size_t>(board_.size)) {}

    Poll progress() override {
        if (!running_) return Code::ok;
        if (!published_) this->publish({in_, board_.bytes});
        if (const Code code = this->gather(); code != Code::ok) return this->reached(code);
        if (const Code code = this->check_previous(); code != Code::ok) return this->reached(code);
        if (!reduction_.empty()) reduce();
        return this->finish(run_->number);
    }
    Rank waits_for() const override {
        if (!running_) return nobody;
        return next_ < board_.size ? next_ : this->previous_waits_for();
    }

private:
    using Base::board_, Base::run_, Base::in_, Base::next_, Base::published_, Base::running_;

    void reduce() {
        for (Rank rank = 0; rank < board_.size; ++rank)
            contributions_[static_cast<std::size_t>(rank)] =
                rank == board_.rank ? in_ : board_.payload(rank, run_->number);
        reduction_.run(contributions_, this->out_);
    }

    FlatReduction reduction_;
    std::vector<const std::byte*> contributions_;
};

template <FlatBoard Board>
class FlatBroadcast final : public FlatOperation<Board> {
    using Base = FlatOperation<Board>;

public:
    FlatBroadcast(std::shared_ptr<typename Base::Member> member, const IntrinsicShape& shape,
                  std::size_t bytes)
        : Base(std::move(member), shape.stream, bytes), root_(shape.root) {}

    Poll progress() override {
        if (!running_) return Code::ok;
        if (!published_) {
            if (board_.rank == root_) {
                this->publish({in_, board_.bytes});
                if (out_ != nullptr) keep(in_);
            } else {
                if (const Code code = this->check_slot(*run_, root_); code != Code::ok)
                    return this->reached(code);
                // Copied before this rank acknowledges it: after that the root may overwrite the
                // payload.
                keep(board_.payload(root_, run_->number));
                this->publish({});
            }
        }
        if (const Code code = this->check_previous(); code != Code::ok) return this->reached(code);
        return this->finish(this->stream_.seen);
    }
    Rank waits_for() const override {
        if (!running_) return nobody;
        return published_ ? this->previous_waits_for() : root_;
    }

private:
    using Base::board_, Base::run_, Base::in_, Base::out_, Base::published_, Base::running_;

    void keep(const std::byte* data) {
        if (board_.bytes > 0 && out_ != data) std::memcpy(out_, data, board_.bytes);
    }

    const Rank root_;
};

}  // namespace tutti
