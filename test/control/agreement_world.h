// Ranks that run one agreement without a network: a world's messages arrive in any order, its ranks
// die at any moment, and what a rank knows of deaths is an event of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/agreement/agreement.h"
#include "support/catch.h"

namespace agreement_world {

using namespace tutti;

// Copies of a world share what has not changed; `key` is for the explorer of states.
struct Envelope {
    Rank from, to;
    std::shared_ptr<const AgreementMessage> message;
    std::string key = {};
};
struct Slot {
    std::shared_ptr<const Agreement> agreement;
    std::string key = {};
};

/// A rank's call: its bit is missing in its bits, and its id is its rank.
inline AgreementCall call_of(Rank rank, Rank size) {
    AgreementCall call;
    call.kind = AgreementCall::Kind::shrink;
    call.leavers = RankSet(size);
    call.bits = ~(uint64_t{1} << rank);
    call.first_free_id = static_cast<uint32_t>(rank);
    call.payload = Bytes(1, std::byte{static_cast<unsigned char>(rank)});
    return call;
}

class World {
public:
    World(Rank world_size, Rank arity)
        : size(world_size), dead(size), left(size), called(size), gave_up(size) {
        for (Rank rank = 0; rank < size; ++rank) {
            ranks.push_back({std::make_shared<Agreement>(AgreementMember{rank, size, arity},
                                                         uint64_t{1} << 16, Knowledge(size))});
            learned.emplace_back(size);
        }
    }

    const Agreement& operator[](Rank rank) const {
        return *ranks[static_cast<std::size_t>(rank)].agreement;
    }
    /// Changes a rank's agreement; its messages are under way then.
    void change(Rank rank, auto how) {
        auto changed = std::make_shared<Agreement>((*this)[rank]);
        AgreementOutputs out;
        how(*changed, out);
        ranks[static_cast<std::size_t>(rank)] = {std::move(changed)};
        sent[static_cast<std::size_t>(rank)] += out.size();
        for (AgreementOutput& one : out)
            if (!dead.contains(one.to))
                wire.push_back({rank, one.to,
                                std::make_shared<const AgreementMessage>(std::move(one.message))});
    }

    void call(Rank rank) { call(rank, call_of(rank, size)); }
    void call(Rank rank, const AgreementCall& call) {
        called.insert(rank);
        change(rank, [&](Agreement& a, auto& out) { a.call(call, now_ns, out); });
    }
    void call_all() {
        for (const Rank rank : alive().ranks())
            if (!called.contains(rank)) call(rank);
    }
    /// Its messages stay on their way: a caller may deliver some of them and drop the others.
    void kill(Rank rank) {
        dead.insert(rank);
        std::erase_if(wire, [&](const Envelope& e) { return e.to == rank; });
    }
    /// The rank's call has ended, and it says goodbye in order. For the rest it is as good as dead.
    void leave(Rank rank) {
        kill(rank);
        left.insert(rank);
    }
    /// The kernel reports a death; a goodbye arrives with its rank's last words.
    void learn(Rank rank, Rank of) {
        learned[static_cast<std::size_t>(rank)].insert(of);
        Knowledge facts(size);
        if (!left.contains(of)) {
            facts.dead.insert(of);
        } else {
            facts.left.insert(of);
            if (const auto words = (*this)[of].decision_message())
                change(rank, [&](Agreement& a, auto& out) { a.receive(of, *words, out); });
        }
        learn(rank, facts);
    }
    void accuse(Rank rank, Rank accused) {
        Knowledge facts(size);
        facts.accuse(rank, accused);
        learn(rank, facts);
    }
    void learn(Rank rank, const Knowledge& facts) {
        change(rank, [&](Agreement& a, auto& out) { a.learn(facts, out); });
    }
    void give_up(Rank rank) {
        gave_up.insert(rank);
        change(rank,
               [](Agreement& a, auto& out) { a.give_up(Code::timeout, "it took too long", out); });
    }
    void deliver(std::size_t which, bool keep = false) {
        const Envelope e = wire[which];
        if (!keep) wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(which));
        change(e.to, [&](Agreement& a, auto& out) { a.receive(e.from, *e.message, out); });
        ++delivered;
    }
    void learn_all() {
        for (const Rank rank : alive().ranks())
            for (const Rank of : dead.ranks())
                if (!learned[static_cast<std::size_t>(rank)].contains(of)) learn(rank, of);
    }
    /// In order, and those of the dead never.
    void deliver_all() {
        std::erase_if(wire, [&](const Envelope& e) { return dead.contains(e.from); });
        while (!wire.empty()) deliver(0);
    }
    /// Time passes only here: each waiting rank sends again.
    void tick() {
        now_ns += tick_ns;
        for (const Rank rank : alive().ranks())
            change(rank, [&](Agreement& a, auto& out) { a.resend(now_ns, out); });
    }
    /// Deaths have stopped and all messages arrive: true if each living rank's call ends.
    bool ends(int ticks = 8) {
        call_all();
        learn_all();
        deliver_all();
        for (; !all_ended() && ticks > 0; --ticks, ++ticks_needed) {
            tick();
            deliver_all();
        }
        return all_ended();
    }
    /// The number of pauses so far.
    int64_t ticks() const { return (now_ns - began_ns) / tick_ns; }
    bool all_ended() const {
        for (const Rank rank : alive().ranks())
            if (!(*this)[rank].outcome()) return false;
        return true;
    }
    RankSet alive() const { return RankSet::all(size).without(dead); }

    /// Empty, or the broken invariant. Holds in each state.
    std::string fault() const {
        std::optional<Decision> common;
        RankSet returned = alive();
        returned.merge(left);
        for (const Rank rank : returned.ranks()) {
            const auto& outcome = (*this)[rank].outcome();
            if (!outcome || outcome->code != Code::ok) continue;
            if (common && !same(*common, *outcome)) return "two ranks succeed differently";
            common = outcome;
            if (!called.contains(rank)) return "a rank that has not called succeeds";
            if (outcome->gone.contains(rank)) return "a rank that is excluded succeeds";
            if (!dead.includes(outcome->gone.without(outcome->silent)))
                return "a rank is excluded that is not dead";
            if (2 * (size - outcome->silent.count()) < size) return "a majority is excluded";
            for (Rank other = 0; other < size; ++other) {
                const bool counted = (outcome->bits >> other & 1) == 0;
                if (counted && !called.contains(other)) return "a bit is cleared by no call";
                if (!counted && !outcome->gone.contains(other)) return "a member's bit is ignored";
            }
        }
        return "";
    }
    static bool same(const Decision& a, const Decision& b) {
        return a.bits == b.bits && a.first_free_id == b.first_free_id && a.gone == b.gone &&
               a.silent == b.silent && a.payload == b.payload;
    }

    Rank size;
    RankSet dead, left, called, gave_up;
    std::vector<RankSet> learned;
    std::vector<Slot> ranks;
    std::vector<Envelope> wire;
    static constexpr int64_t began_ns = 1'000'000'000'000, tick_ns = 2'000'000'000;
    int64_t now_ns = began_ns;
    std::size_t delivered = 0;
    std::vector<std::size_t> sent = std::vector<std::size_t>(static_cast<std::size_t>(size));
    int ticks_needed = 0;
};

}  // namespace agreement_world
