#include "job/heartbeat.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr int64_t beats_per_period = 4;
constexpr int64_t second_looks_per_period = 50;
constexpr int64_t doubtful_periods = 2;  // for the news of an exclusion to arrive

}  // namespace

bool Heartbeat::begin(int64_t now_ns) {
    if (beating_ || period_ns_ == 0) return false;
    beating_ = true;
    next_beat_ns_ = now_ns;
    return true;
}

void Heartbeat::note_beat(Rank peer, int64_t now_ns) {
    if (beating_) watched_[peer] = {now_ns, false};
}

void Heartbeat::note_message(Rank peer, int64_t now_ns) {
    if (const auto found = watched_.find(peer); found != watched_.end())
        found->second = {now_ns, false};
}

Heartbeat::Pulse Heartbeat::pulse(int64_t now_ns) {
    if (period_ns_ == 0) return {};
    if (due_ns_ != never_ns && now_ns - due_ns_ > period_ns_ / 2) {
        if (did_not_run(now_ns)) begin_doubts(now_ns);
        for (auto& [peer, watch] : watched_) watch = {now_ns, false};
    }
    Pulse pulse;
    const bool is_due = now_ns >= next_beat_ns_;
    pulse.beat = beating_ && is_due;
    if (is_due) next_beat_ns_ = now_ns + period_ns_ / beats_per_period;
    int64_t due_ns = next_beat_ns_;
    for (auto at = watched_.begin(); at != watched_.end();) {
        auto& [peer, watch] = *at;
        const int64_t silent_ns = now_ns - watch.heard_ns;
        if (silent_ns >= period_ns_ && watch.overdue) {
            pulse.silent.push_back({peer, silent_ns / 1'000'000});
            at = watched_.erase(at);
            continue;
        }
        watch.overdue = silent_ns >= period_ns_;
        due_ns = std::min(due_ns, watch.overdue ? now_ns + period_ns_ / second_looks_per_period
                                                : watch.heard_ns + period_ns_);
        ++at;
    }
    due_ns_ = due_ns;
    return pulse;
}

bool Heartbeat::note_running(int64_t now_ns) {
    // Either thread may be the first that runs again, and sees alone that neither did.
    if (did_not_run(now_ns)) begin_doubts(now_ns);
    ran_ns_ = now_ns;
    const int64_t due_ns = due_ns_;
    return beating_ && due_ns != never_ns && now_ns - due_ns > period_ns_ / checks_per_period;
}

void Heartbeat::begin_doubts(int64_t now_ns) {
    doubts_until_ns_ = now_ns + doubtful_periods * period_ns_;
}

/// Neither the pulse's thread nor another one.
bool Heartbeat::did_not_run(int64_t now_ns) const {
    const int64_t due_ns = due_ns_;
    if (due_ns == never_ns) return false;
    return now_ns - std::max(due_ns, ran_ns_.load()) > period_ns_ / 2;
}

bool Heartbeat::doubts(int64_t now_ns) const {
    return beating_ && (did_not_run(now_ns) || now_ns < doubts_until_ns_);
}

}  // namespace tutti
