// The heartbeat of one rank: when it sends a sign of life to its neighbours in the control tree,
// and which of them have been silent for too long. A state machine without I/O: messages go in,
// time is an argument.
//
// Beats begin at the root of the tree, once the root knows that every rank of the job understands
// them, and each rank passes them on to its neighbours. So no rank of an older version ever gets
// one. A rank is watched from its first beat on: a rank with manual progress, which has no thread
// that could send beats while the program computes, sends none.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "base/types.h"

namespace tutti {

/// One thread calls its functions, the one that reads the control connections. Any thread may call
/// doubts().
class Heartbeat {
public:
    /// A neighbour is silent after period_ms without a message; 0: none ever is, and there are no
    /// beats.
    explicit Heartbeat(int64_t period_ms) : period_ns_(period_ms * 1'000'000) {}

    /// Every rank of the job understands beats. True if that is new.
    bool begin(int64_t now_ns);
    bool is_beating() const { return beating_; }
    int64_t period_ms() const { return period_ns_ / 1'000'000; }

    /// The neighbour has sent a beat: from now on it is watched.
    void note_beat(Rank peer, int64_t now_ns);
    /// Any message of a neighbour is a sign of life.
    void note_message(Rank peer, int64_t now_ns);
    /// No connection to that rank remains, or it has left.
    void forget(Rank peer) { watched_.erase(peer); }

    struct Silence {
        Rank peer = nobody;
        int64_t silent_ms = 0;
    };
    struct Pulse {
        bool beat = false;  // send a beat on every link
        std::vector<Silence> silent;
    };
    /// Called for the first time when the thread begins to run, then at due_ns(), and when begin()
    /// has returned true. A silent neighbour is reported once. If the call comes late by over half
    /// a period, this process did not run meanwhile: the time begins anew for every neighbour.
    Pulse pulse(int64_t now_ns);
    int64_t due_ns() const { return due_ns_; }
    static constexpr int64_t never_ns = std::numeric_limits<int64_t>::max();

    /// Another thread of this process runs. True if the pulse is so late that this thread must beat
    /// in its place. For that thread alone.
    bool note_running(int64_t now_ns);
    /// The time between two calls of note_running().
    int64_t beat_check_ms() const { return period_ms() / checks_per_period; }

    /// True if this process did not run for so long that its neighbours may call it silent, and
    /// close their connections in order. Connections that end meanwhile or shortly afterwards
    /// prove no loss.
    bool doubts(int64_t now_ns) const;

private:
    /// A message that has arrived may not have been read yet, so a rank counts as silent only if
    /// the next pulse finds no message either.
    struct WatchedPeer {
        int64_t heard_ns = 0;
        bool overdue = false;
    };

    bool did_not_run(int64_t now_ns) const;
    void begin_doubts(int64_t now_ns);

    static constexpr int64_t checks_per_period = 8;

    const int64_t period_ns_;
    std::atomic<bool> beating_{false};
    int64_t next_beat_ns_ = 0;
    std::map<Rank, WatchedPeer> watched_;
    std::atomic<int64_t> due_ns_{never_ns}, doubts_until_ns_{0};
    std::atomic<int64_t> ran_ns_{0};  // another thread
};

}  // namespace tutti
