// The failure protocol of one communicator: its ranks agree that the communicator has ended, or
// which operations failed and when a new epoch begins. Questions about late ranks (inquiry.h) and
// strict checking (strict_calls.h) are separate.
//
// An epoch is a sequence of operations without a mismatch. When calls differ, the rank that detects
// it floods the news, and every rank fails its operations from that one on. A rank reports "quiet"
// up the tree once it has run all operations before that one and runs nothing of the epoch any
// more; it continues when the root sends "resume". So an operation of a new epoch sees messages of
// an old one only as stale.
//
// The tree replaces ranks that leave (live_tree.h). They have run what they issued and count as
// quiet; their neighbours repeat messages that a leaving rank may have dropped before its bye.
//
// If a rank had issued several operations, all of them fail. The other ranks refuse calls until as
// many have failed there, so that the calls after those are the same everywhere.
//
// The first failure that ends the communicator stands, with two exceptions: the program's revoke
// replaces mismatches and any failure but an abort, and its abort replaces a revoke. A rank passes
// on a failure only if it is the first there or replaces the first, so each flood ends.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/group.h"
#include "control/inquiry.h"
#include "control/protocol_context.h"
#include "control/strict_calls.h"

namespace tutti {

/// Any thread may call any function; the reactor's thread calls receive() and peer_lost().
class FailureProtocol final : private FailureState {
public:
    FailureProtocol(Rank rank, Rank size, uint32_t comm, FailureProtocolHost& host);

    /// False while all is well; hot paths check nothing else. Sequentially consistent, so that
    /// either an issuer sees the alarm or apply_verdicts() sees the issuer's stream taken.
    bool alarm() const { return alarm_.load(std::memory_order_seq_cst); }

    /// The error with which the operation of that sequence must end now, if it must. After a loss,
    /// the error of an operation that needs more data from the lost rank.
    std::optional<Error> verdict(uint64_t sequence);
    struct ToleratedLoss {
        Rank rank = nobody;
        int64_t grace_ns = 0;  // the lost rank's own messages arrive within this time
    };
    /// The lost rank, while the operation of that sequence may still get all its data: data that
    /// the lost rank had sent, and data that other ranks pass on. Else nobody.
    ToleratedLoss tolerated_loss(uint64_t sequence);
    /// The operation lacks data of the lost rank: it fails on every rank, and so do all later ones.
    void fail_after_loss(uint64_t sequence);

    struct FatalError {
        Error error;
        /// No operation is known to have failed for the loss that this error reports: a receive may
        /// still take a message that the lost rank had sent.
        bool may_receive = false;
        int64_t grace_ns = 0;  // if so, the lost rank's messages arrive within this time
        /// Another rank that was lost or missed a deadline, also if a revoke or abort has replaced
        /// that failure: it may not answer any more.
        Rank unresponsive = nobody;
    };
    /// The error that has ended the communicator on every rank. nullopt after a mismatch, and while
    /// calls are only refused because a rank has left.
    std::optional<FatalError> fatal_error();
    /// True once the communicator has ended on every rank.
    bool ended() const { return ended_; }
    /// True if that rank has said bye; any_rank: if all other ranks have.
    bool has_left(Rank rank);
    static constexpr Rank any_rank = nobody;

    enum class CallDecision : uint8_t { proceed, wait };
    /// The admission check of a new call; a call that is refused gets the error. After a mismatch,
    /// each rank gets the error once for every call that failed.
    Result<CallDecision> admit(uint64_t next_number);

    /// The current epoch if it has a mismatch.
    std::optional<uint64_t> failing_epoch();
    /// No operation of that epoch runs here any more. The caller has checked this after
    /// failing_epoch() had returned the epoch, because until then operations could begin. Ignored
    /// while the caller has yet to make a call that precedes the mismatch.
    void quiet(uint64_t epoch, uint64_t last_number);

    void raise(const Error& error) override;
    /// The program ends the communicator on every rank. If the code is `revoked`, or `aborted`
    /// after `revoked`, the error replaces an earlier failure. The text of a revoke then has both.
    void overrule(Error error);
    void raise_mismatch(const Tag& own, Rank peer, const Tag& got) override;
    /// agreements: for the bye's body. Returns the bye without them.
    ControlMessage send_bye(uint64_t last_number, Bytes agreements = {});

    /// The ranks that are gone, as far as this rank knows. A rank that has said bye has left.
    struct GoneRanks {
        std::vector<Rank> lost, left;  // lost: proven
        std::vector<Accusation> accusations;
        bool self = false;  // this rank has told the others that it is lost
    };
    GoneRanks gone();

    Inquiry& inquiry() { return inquiry_; }
    StrictCalls& strict() { return strict_; }

    void receive(Rank from, const ControlMessage& message);
    /// A peer's connection ended; ignored after its bye. accuser: the loss is not proven, but that
    /// member has heard nothing of the peer.
    void peer_lost(Rank peer, const std::string& cause, Rank accuser = nobody);
    /// A peer's process has ended, in order or not: it is lost unless its bye comes soon. Other
    /// ranks take its place in the tree at once.
    void unreachable(Rank peer);
    /// Reports peers whose bye has not come in time as lost. Waiting threads call this now and
    /// then, whatever they wait for. True once the communicator has ended on every rank.
    bool check_unreachable();

private:
    using Lock = std::unique_lock<std::mutex>;

    // FailureState
    uint64_t epoch() const override { return epoch_; }
    std::optional<uint64_t> mismatch_from() const override {
        return mismatch_ ? std::optional(mismatch_from_) : std::nullopt;
    }
    bool behind_mismatch(uint64_t last_number) const override;
    bool may_run(const Tag& tag) const override;
    void catch_up(Rank to, uint64_t number) override;
    void raise_mismatch(const ControlMessage& message) override;

    /// A failure ends operations from that sequence on.
    static constexpr uint64_t every_sequence = 0, no_sequence = ~uint64_t{0};
    /// may_replace: the failure is the program's or another rank's, not the consequence of one
    /// here.
    void end(const Error& error, uint64_t from_sequence, Rank except, bool may_replace);
    Rank tolerated_loss_locked(uint64_t sequence) const;
    void handle_mismatch(const ControlMessage& message, Rank from);
    void handle_quiet(Lock& lock);
    void handle_resume(uint64_t sequence, uint64_t failed);
    void handle_bye(const ControlMessage& message, Rank from);
    void resend_failure_state(Rank to, bool byes);
    std::vector<Rank> replace(Rank rank, bool byes);
    bool said_bye(Rank rank) const {
        return context_.tree.has_left(rank) && without_bye_.count(rank) == 0;
    }
    Error mismatch_of_call(uint64_t number);
    bool is_without_failure() const {
        return !dead_ && !mismatch_ && unreported_.empty() && departed_.empty();
    }

    ProtocolContext context_;
    Inquiry inquiry_;
    StrictCalls strict_;
    std::atomic<bool> alarm_{false}, ended_{false};
    // The context's mutex guards the members below.
    uint64_t epoch_ = 0;
    uint64_t begun_after_ = 0;       // the number of the last operation before this epoch
    std::optional<Error> dead_;      // the error of all operations from now on
    std::optional<Error> mismatch_;  // of this epoch
    std::optional<ControlMessage> failure_,
        disagreement_;  // as flooded to all ranks; the failure's
                        // sequence is the first that it ends
    Rank unresponsive_ = nobody;
    uint64_t mismatch_from_ = 0;
    uint64_t first_heard_ = 0;  // number of the first call here that got it; 0: none
    struct UnreportedMismatch {
        Error error;
        uint64_t calls = 0;
    };
    std::deque<UnreportedMismatch>
        unreported_;  // mismatches of past epochs, with the number of calls that get each
    bool self_quiet_ = false, quiet_sent_ = false;
    std::set<Rank> quiet_children_;
    uint64_t quiet_number_ = 0;
    uint64_t own_failed_ = 0,
             most_failed_ = 0;  // calls that the mismatch failed: here, in the subtree
    std::vector<std::pair<Rank, uint64_t>> departed_;  // rank, its last operation; first come first
    std::map<Rank, Bytes> agreements_;                 // of their byes
    std::set<Rank> without_bye_;                       // gone, and replaced in the tree
    std::set<Accusation> accusations_;
    bool own_loss_ = false;                 // this rank has found that it is lost
    std::map<Rank, int64_t> bye_until_ns_;  // by rank: when its bye is overdue
    std::atomic<int64_t> next_lost_ns_{0};  // the earliest of these times; 0: none
};

}  // namespace tutti
