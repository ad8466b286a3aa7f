// What the ranks of one communicator must agree on when something goes wrong: that it is over, or
// which operations failed and when a new epoch begins. And, with strict checking, on every call.
//
// An epoch is a stretch of operations without a mismatch. When calls differ, whoever sees it floods
// the news; every rank fails its operations from that one on, reports "quiet" up the tree once it
// has run all before that one and runs nothing of the epoch any more, and goes on when the root
// says "resume". No message of an old epoch can then meet an operation of a new one other than as
// stale.
//
// Ranks that leave are replaced in the tree (live_tree.h). They have run what they issued and are
// as good as quiet; what they may have dropped between leaving and their bye is said again.
//
// A rank that had issued several operations has as many that fail. The others are refused calls
// until as many of theirs have failed, so that the calls after those are the same everywhere.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/live_tree.h"
#include "control/news.h"
#include "record/recorder.h"

namespace tutti {

/// A lost rank's messages arrive no later than this after the news of its loss.
constexpr int64_t on_the_way_ns = 20'000'000;

class AgreementHost {
public:
    virtual ~AgreementHost() = default;
    virtual void send_control(Rank to, const News& news) = 0;
    virtual const Recorder& recorder() const = 0;
    /// While the program waits in this communicator: for which rank, nobody if that is not known.
    virtual std::optional<Rank> blocked_on() = 0;
    /// Something changed: end what must end, wake whoever sleeps. Never called with locks held.
    virtual void settle() = 0;
    /// The next operation's number follows this sequence's. Called while nothing runs.
    virtual void resume(uint64_t sequence) = 0;
};

/// Who had not called an operation when everyone was asked last.
struct Late {
    static constexpr std::size_t most_named = 8;
    std::vector<Rank> ranks;  // in order, so many of them
    bool answered = false;    // the last question; else these were late when it was asked before
    // Have not called it because they wait themselves, in an earlier call, and for whom; as many at
    // most.
    std::map<Rank, Rank> waiting;
    std::map<Rank, int64_t> silent_ms;  // do not answer at all, and since when; as many at most
    /// The one to name, nobody if there is none.
    Rank first() const { return ranks.empty() ? nobody : ranks.front(); }
    std::vector<Rank> silent_for(int64_t least_ms) const;
    /// The first that waits, and the end of the chain of ranks that wait for each other. Those that
    /// wait for the rank `own`, which asks, are the end.
    std::pair<Rank, Rank> chain(Rank own) const;
    /// "ranks 3, 5".
    std::string names() const { return names_of(ranks); }
    static std::string names_of(const std::vector<Rank>& ranks);
};

/// Any thread may call anything; receive() and peer_lost() come from the reactor's.
class Agreement {
public:
    Agreement(Rank rank, Rank size, uint32_t comm, AgreementHost& host);

    /// False while all is well: the only thing hot paths look at. Sequentially consistent, so that
    /// either an issuer sees the alarm or settle() sees the issuer's stream taken.
    bool alarm() const { return alarm_.load(std::memory_order_seq_cst); }

    /// Why the operation of that sequence must end now, if it must; after a loss, why it cannot get
    /// more from the rank that is gone.
    std::optional<Error> verdict(uint64_t sequence);
    /// The rank that is gone, while the operation of that sequence may still get all that it needs:
    /// what that rank had sent before, and what the others pass on. Else nobody.
    Rank survived(uint64_t sequence);
    /// It lacks something from the rank that is gone: with it fail, on every rank, all that come
    /// after it.
    void give_up(uint64_t sequence);

    /// Why nothing works any more, if that is so for everyone: not after a mismatch, nor where only
    /// operations are refused because somebody has left.
    /// may_receive, if given, is set while no operation is known to have failed for the loss that
    /// ended it: a receive may still take what the lost rank had sent.
    std::optional<Error> over(bool* may_receive = nullptr);
    /// Set when it is over for everyone: for waits that are not for its operations.
    const std::atomic<bool>& ended() const { return ended_; }
    /// Whether that rank has said bye; any_rank: whether all the others have.
    bool has_left(Rank rank);
    static constexpr Rank any_rank = nobody;

    enum class Entry : uint8_t { proceed, wait, refused };
    /// May a new call start? refused: with the error it gets (of a mismatch each rank hears once,
    /// or as often as there are calls of one rank that it failed).
    Entry admit(uint64_t next_number, Error& error);

    /// The epoch that has a mismatch, if this one has.
    std::optional<uint64_t> failing_epoch();
    /// Nothing of that epoch runs here any more, as was seen after failing_epoch() had said so: who
    /// looked earlier may have missed what began since. Not taken for an answer while the caller
    /// has yet to call what comes before the mismatch.
    void quiet(uint64_t epoch, uint64_t last_number);

    void raise(const Error& error);  // the communicator is over, for everyone
    void raise_mismatch(const Tag& own, Rank peer, const Tag& got);
    void say_bye(uint64_t last_number);
    /// Waiting suspiciously long: finds out who is missing, or who called something else.
    void stalled(const Tag& tag);
    /// When one that has waited since then asks again: ever more rarely, and once more shortly
    /// before its deadline, as who was late may be there by then.
    static int64_t ask_at(int64_t began_ns, int64_t now, int64_t timeout_ms);
    Late late(uint64_t sequence);
    /// The same of those whom everyone waits for after a mismatch: they have yet to call what comes
    /// before it.
    void ask_who_is_behind();
    Late behind();

    void propose(const Tag& tag);
    bool agreed(uint64_t sequence) const {
        return agreed_.load(std::memory_order_acquire) >= sequence;
    }

    void receive(Rank from, const News& news);
    /// A peer's connection ended; ignored after its bye.
    void peer_lost(Rank peer, const std::string& cause);
    /// A peer's process has ended, in order or not: it is lost unless its bye comes soon. Until
    /// then others take its place in the tree.
    void unreachable(Rank peer);
    /// Whether that time is over. For who waits, now and then.
    void look_at_unreachable();

private:
    static constexpr uint64_t number_mask = (uint64_t{1} << Tag::epoch_shift) - 1;
    static constexpr int64_t longest_pause_ns = 2'000'000'000;  // between questions
    struct Proposal {
        Tag tag;
        Rank first = nobody;
        uint32_t have = 0;
    };
    using Lock = std::unique_lock<std::mutex>;

    void flood(const News& news, Rank except);
    News make(News::Kind kind, const Tag& tag) const;
    void sound() { alarm_.store(true, std::memory_order_seq_cst); }
    /// A failure ends operations from that sequence on.
    static constexpr uint64_t every_sequence = 0, no_sequence = ~uint64_t{0};
    void end(const Error& error, uint64_t from_sequence, Rank except);
    void fail_from(uint64_t sequence, Rank except);
    Rank survived_loss(uint64_t sequence) const;
    void take_mismatch(const News& news, Rank from);
    void take_quiet(Lock& lock);
    void take_resume(uint64_t sequence, uint64_t failed);
    void take_bye(const News& news, Rank from);
    void catch_up(Rank to, bool byes);
    std::vector<Rank> replace(Rank rank, bool byes);
    bool said_bye(Rank rank) const { return tree_.has_left(rank) && without_bye_.count(rank) == 0; }
    void take_stall(const News& news);
    void take_query(const News& news, Rank from);
    void take_late(const News& news);
    void take_suspect(const News& news);
    bool note_late(const News& news);
    void ask(Rank neighbour, const News& news);
    bool is_silent(Rank neighbour) const;
    void tell_silent(Rank neighbour);
    void take_silent(const News& news, Rank from);
    void heard(Rank from);
    void answer(Rank to, const News& question);
    void take_proposal(Rank from, const Tag& tag);
    Error departed_error() const;
    Error hear(uint64_t number);
    bool behind_mismatch(uint64_t last_number) const;
    bool fine() const { return !dead_ && !mismatch_ && owed_.empty() && departed_.empty(); }

    const Rank rank_, size_;
    const uint32_t comm_;
    // Of the whole tree. Strict checking needs everyone: without those that have left no call is
    // agreed on.
    const Rank first_parent_;
    const std::vector<Rank> first_children_;
    AgreementHost& host_;

    std::atomic<bool> alarm_{false}, ended_{false};
    std::atomic<uint64_t> agreed_{0};
    std::mutex mutex_;  // guards what follows
    LiveTree tree_;
    uint64_t epoch_ = 0;
    uint64_t begun_after_ = 0;       // the number of the last operation before this epoch
    std::optional<Error> dead_;      // what operations get from now on
    std::optional<Error> mismatch_;  // of this epoch
    std::optional<News> failure_, disagreement_;  // as everyone is told of them; the failure's
                                                  // sequence is the first that it ends
    uint64_t mismatch_from_ = 0;
    uint64_t first_heard_ = 0;  // the number of the first call here that got it; 0: none has
    struct Owed {
        Error error;
        uint64_t calls = 0;
    };
    std::deque<Owed>
        owed_;  // mismatches of epochs that are over, and how many calls are to get each
    bool self_quiet_ = false, quiet_sent_ = false;
    std::set<Rank> quiet_children_;
    uint64_t quiet_number_ = 0;
    uint64_t own_failed_ = 0,
             most_failed_ = 0;  // calls that the mismatch failed: here, in the subtree
    std::vector<std::pair<Rank, uint64_t>> departed_;  // rank, its last operation; first come first
    Late late_;                                        // as far as this rank has heard
    bool late_heard_ = false;                          // since it was asked last
    uint64_t late_sequence_ = 0;
    News stall_;  // passed on already
    int64_t stall_ns_ = 0;
    std::map<Rank, int64_t> unheard_;    // neighbours, since when they were asked and said nothing
    std::map<Rank, int64_t> silent_ms_;  // as everyone was told; until the next question
    std::set<Rank> without_bye_;         // are gone, and replaced in the tree
    std::map<Rank, int64_t> bye_until_ns_;  // of these, that are not lost yet
    std::atomic<int64_t> next_lost_ns_{0};  // the first of those times, 0: none
    std::map<uint64_t, Proposal> proposals_;
};

}  // namespace tutti
