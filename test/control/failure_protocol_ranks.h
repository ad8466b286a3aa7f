// The ranks of a communicator that agree without a network: every rank's words go into one queue.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "control/failure_protocol.h"
#include "support/catch.h"

namespace agreement_test {

using namespace tutti;

struct Envelope {
    Rank from, to;
    ControlMessage message;
};

enum class NextCall : uint8_t { proceed, wait, refused };

class Member final : public FailureProtocolHost {
public:
    Member(Rank rank, Rank size, std::deque<Envelope>& wire, const int64_t& clock_ns)
        : rank_(rank), wire_(wire), clock_ns_(clock_ns), failure_protocol(rank, size, 0, *this) {}
    int64_t clock_ns() const override { return clock_ns_; }
    void send_control(Rank to, const ControlMessage& message) override {
        wire_.push_back({rank_, to, message});
    }
    const Recorder& recorder() const override { return recorder_; }
    void call(const Tag& tag) { recorder_.begin(tag, 0, 0); }
    std::optional<Rank> blocked_on() override { return blocked; }
    void apply_verdicts() override {}
    void resume(uint64_t sequence) override { resumed = sequence; }
    int64_t grace_ns(Rank lost) const override {
        return lost == ended_here ? 1'000'000 : FailureProtocolHost::grace_ns(lost);
    }

    /// The next call, as its issuer sees it.
    NextCall next_call(uint64_t number = 6) {
        const auto decision = failure_protocol.admit(number);
        if (!decision) return NextCall::refused;
        return *decision == FailureProtocol::CallDecision::wait ? NextCall::wait
                                                                : NextCall::proceed;
    }

private:
    const Rank rank_;
    std::deque<Envelope>& wire_;
    const int64_t& clock_ns_;
    Recorder recorder_;

public:
    FailureProtocol failure_protocol;
    uint64_t resumed = 0;
    std::optional<Rank> blocked;  // its program waits, and for whom
    Rank ended_here = nobody;     // its host's kernel has reported that rank's end
};

struct Ranks {
    explicit Ranks(Rank size) {
        for (Rank r = 0; r < size; ++r)
            all.push_back(std::make_unique<Member>(r, size, wire, clock_ns));
    }
    Member& operator[](Rank rank) { return *all[static_cast<std::size_t>(rank)]; }
    /// The rank leaves after its last operation. Messages that are on their way to it are dropped.
    void leave(Rank rank, uint64_t last) {
        (*this)[rank].failure_protocol.send_bye(last);
        gone.insert(rank);
    }
    std::vector<Rank> present() const {
        std::vector<Rank> ranks;
        for (std::size_t r = 0; r < all.size(); ++r)
            if (gone.count(static_cast<Rank>(r)) == 0) ranks.push_back(static_cast<Rank>(r));
        return ranks;
    }
    void deliver(std::size_t most = SIZE_MAX) {
        for (; !wire.empty() && most > 0; wire.pop_front(), --most) {
            const Envelope e = wire.front();
            if (gone.count(e.to) == 0)
                (*this)[e.to].failure_protocol.receive(e.from, e.message);
            else if (tells_of_ends && gone.count(e.from) == 0)
                (*this)[e.from].failure_protocol.unreachable(e.to);
        }
    }
    /// Time passes only here.
    void pause(int64_t for_ms) { clock_ns += for_ms * 1'000'000; }

    int64_t clock_ns = 1'000'000'000'000;
    std::deque<Envelope> wire;
    std::set<Rank> gone;
    /// A rank that writes to a rank that is gone learns that it is unreachable.
    bool tells_of_ends = false;
    std::vector<std::unique_ptr<Member>> all;
};

inline Tag numbered(uint64_t epoch, uint64_t number) {
    Tag tag;
    tag.sequence = epoch << Tag::epoch_shift | number;
    return tag;
}

}  // namespace agreement_test
