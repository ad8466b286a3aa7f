// Losses and detours as state machines: a job of them, whose messages a queue carries. No sockets.
#include "control/loss_table.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "control/detour_queue.h"
#include "control/tree.h"
#include "control/tree_message.h"
#include "support/catch.h"

using namespace tutti;

namespace {

Bytes loss_of(Rank peer) {
    return TreeMessage{.topic = TreeMessage::Topic::loss, .lost = peer, .cause = "ended"}.encode();
}

/// Every rank's view of the job, and the messages under way between them.
class QueuedJob {
public:
    explicit QueuedJob(Rank size) : size_(size), detours_(static_cast<std::size_t>(size)) {
        for (Rank rank = 0; rank < size; ++rank) losses_.emplace_back(rank, size);
    }

    LossTable& losses(Rank rank) { return losses_[static_cast<std::size_t>(rank)]; }
    bool there(Rank rank) const { return ended_.count(rank) == 0; }

    /// Messages to it are not read any more; its own are still under way.
    void kill(Rank rank) {
        ended_.insert(rank);
        for (const Rank neighbour : neighbours(rank)) wire_.push_back({rank, neighbour, {}});
    }
    void leave(Rank rank) {
        const Bytes leaving = TreeMessage{.topic = TreeMessage::Topic::leaving}.encode();
        for (const Rank neighbour : neighbours(rank)) wire_.push_back({rank, neighbour, leaving});
        kill(rank);
    }

    /// Until nothing is under way: connections come about and messages arrive in any order, but
    /// between two ranks in that of their sending.
    void run(uint32_t seed) {
        std::mt19937 random(seed);
        for (int steps = 0;; ++steps) {
            REQUIRE(steps < 100'000);
            std::vector<Rank> calling;
            for (Rank rank = 0; rank < size_; ++rank)
                if (there(rank) && queue(rank).next() != nobody) calling.push_back(rank);
            if (wire_.empty() && calling.empty()) return;
            if (wire_.empty() || (!calling.empty() && random() % 2 == 0))
                call(calling[random() % calling.size()]);
            else
                deliver(random());
        }
    }

private:
    struct Message {
        Rank from, to;
        Bytes bytes;  // none: the connection ended
    };

    DetourQueue& queue(Rank rank) { return detours_[static_cast<std::size_t>(rank)]; }
    std::vector<Rank> neighbours(Rank rank) const {
        std::vector<Rank> ranks = tree_children(rank, size_);
        if (rank != 0) ranks.push_back(tree_parent(rank));
        return ranks;
    }
    bool linked(Rank a, Rank b) const {
        return tree_parent(a) == b || tree_parent(b) == a || links_.count(std::minmax(a, b)) > 0;
    }

    void lose(Rank rank, Rank peer, Rank from) {
        if (!losses(rank).mark_lost(peer, "ended")) return;
        for (const Rank neighbour : neighbours(rank))
            if (neighbour != from) wire_.push_back({rank, neighbour, loss_of(peer)});
        tell_next(rank, peer);
    }

    void tell_next(Rank rank, Rank peer) {
        const auto tell = losses(rank).for_next(peer);
        for (const Rank lost : tell.lost)
            if (linked(rank, tell.next) && there(tell.next))
                wire_.push_back({rank, tell.next, loss_of(lost)});
            else
                queue(rank).add(tell.next, loss_of(lost));
    }

    void call(Rank rank) {
        const Rank to = queue(rank).next();
        if (there(to)) {
            links_.insert(std::minmax(rank, to));
            for (Bytes& message : queue(rank).take(to))
                wire_.push_back({rank, to, std::move(message)});
            return;
        }
        queue(rank).close(to);
        losses(rank).cut_off(to);
        losses(rank).note_unreachable(to);
        tell_next(rank, nobody);
    }

    void deliver(std::size_t pick) {
        const Message& picked = wire_[pick % wire_.size()];
        const auto first = std::find_if(wire_.begin(), wire_.end(), [&](const Message& m) {
            return m.from == picked.from && m.to == picked.to;
        });
        const Message message = std::move(*first);
        wire_.erase(first);
        if (!there(message.to)) return;
        if (message.bytes.empty()) return lose(message.to, message.from, nobody);
        const auto decoded = TreeMessage::decode(message.bytes, size_);
        REQUIRE(decoded);
        if (decoded->topic == TreeMessage::Topic::loss) {
            if (decoded->lost != message.to) lose(message.to, decoded->lost, message.from);
            return;
        }
        losses(message.to).note_leaving(message.from);
        tell_next(message.to, nobody);
    }

    const Rank size_;
    std::vector<LossTable> losses_;
    std::vector<DetourQueue> detours_;
    std::set<Rank> ended_;
    std::set<std::pair<Rank, Rank>> links_;  // detours
    std::deque<Message> wire_;
};

}  // namespace

TEST_CASE("losses: every rank that is there hears of them, whichever end with it") {
    const uint32_t first = GENERATE(take(1, random(0u, 1u << 30)));
    for (uint32_t seed = first; seed < first + 60; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const Rank size = static_cast<Rank>(2 + random() % 39);
        QueuedJob job(size);
        std::vector<Rank> ranks;
        for (Rank rank = 0; rank < size; ++rank) ranks.push_back(rank);
        std::shuffle(ranks.begin(), ranks.end(), random);
        const std::size_t ends = random() % ranks.size(), leaves = random() % (ends + 1);
        for (std::size_t i = 0; i < ends; ++i)
            i < leaves ? job.leave(ranks[i]) : job.kill(ranks[i]);
        job.run(seed);

        // A rank is known as lost if one of its neighbours in the tree has seen it end.
        std::set<Rank> seen;
        for (std::size_t i = leaves; i < ends; ++i)
            for (std::size_t there = ends; there < ranks.size(); ++there)
                if (tree_parent(ranks[i]) == ranks[there] || tree_parent(ranks[there]) == ranks[i])
                    seen.insert(ranks[i]);
        for (std::size_t there = ends; there < ranks.size(); ++there) {
            CAPTURE(ranks[there]);
            std::set<Rank> known;
            for (const auto& [rank, cause] : job.losses(ranks[there]).lost()) known.insert(rank);
            CHECK(known == seen);
        }
    }
}

TEST_CASE("losses: a rank that leaves in order is not lost, and one that is lost is so once") {
    LossTable losses(0, 4);
    losses.note_leaving(1);
    CHECK_FALSE(losses.mark_lost(1, "its connection ended"));
    CHECK(losses.mark_lost(2, "its process ended"));
    CHECK_FALSE(losses.mark_lost(2, "another rank said so"));
    CHECK(losses.lost() == std::map<Rank, std::string>{{2, "its process ended"}});
    CHECK((losses.is_gone(1) && losses.is_gone(2) && !losses.is_gone(3)));
    losses.stop_waiting_for(3);
    CHECK(losses.not_waited_for() == std::set<Rank>{2, 3});
}

TEST_CASE("losses: the next rank is not gone nor cut off, and is told of all") {
    LossTable losses(2, 5);
    CHECK(losses.for_next(nobody).next == nobody);
    REQUIRE(losses.mark_lost(0, "ended"));
    auto tell = losses.for_next(0);
    CHECK((tell.next == 3 && tell.lost == std::vector<Rank>{0}));
    REQUIRE(losses.mark_lost(1, "ended"));
    tell = losses.for_next(1);
    CHECK((tell.next == 3 && tell.lost == std::vector<Rank>{1}));
    // Its host does not answer: that is no end, but there is another next rank.
    losses.cut_off(3);
    CHECK_FALSE(losses.is_gone(3));
    tell = losses.for_next(nobody);
    CHECK((tell.next == 4 && tell.lost == std::vector<Rank>{0, 1}));
    CHECK(losses.for_next(nobody).lost.empty());
    losses.cut_off(4);
    CHECK(losses.note_unreachable(4));
    CHECK_FALSE(losses.note_unreachable(4));
    CHECK(losses.unreachable() == std::set<Rank>{4});
    CHECK(losses.for_next(nobody).next == nobody);
}

TEST_CASE("losses: the end of a detour is looked into a few times, of a rank that is there") {
    LossTable losses(0, 3);
    for (int ends = 0; ends < 3; ++ends) CHECK(losses.detour_ended(1));
    CHECK_FALSE(losses.detour_ended(1));
    losses.note_leaving(2);
    CHECK_FALSE(losses.detour_ended(2));
}

TEST_CASE("detours: messages keep their order, and are dropped where there is no way") {
    DetourQueue detours;
    Bytes first = loss_of(1), second = loss_of(2);
    CHECK_FALSE(detours.add_behind_others(4, first));
    CHECK(detours.next() == nobody);
    CHECK(detours.add(4, first));
    CHECK(detours.add_behind_others(4, second));
    CHECK(detours.next() == 4);
    CHECK(detours.take(4) == std::vector<Bytes>{loss_of(1), loss_of(2)});
    CHECK(detours.take(4).empty());
    CHECK(detours.next() == nobody);
    detours.request(3);
    CHECK(detours.next() == 3);
    detours.close(3);
    CHECK(detours.next() == nobody);
    CHECK_FALSE(detours.add(3, loss_of(1)));
}

TEST_CASE("tree: the next rank on the way is a child with the other below it, or the parent") {
    for (const Rank size : {2, 9, 10, 100, 700})
        for (Rank from = 0; from < size; from += 1 + size / 50)
            for (Rank to = 0; to < size; ++to) {
                Rank at = from;
                for (int hops = 0; at != to; ++hops) {
                    REQUIRE(hops < 8);
                    const Rank next = tree_next_hop(at, to);
                    REQUIRE((tree_parent(at) == next || tree_parent(next) == at));
                    at = next;
                }
            }
}
