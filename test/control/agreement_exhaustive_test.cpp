// All orders of messages, calls, deaths, detections, accusations and deadlines of a few ranks. Each
// state that has not been seen yet is checked; a state in which nothing is on its way any more must
// end all calls.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <unordered_set>

#include "control/agreement_world.h"
#include "support/sanitized.h"

namespace {

using namespace agreement_world;

struct Bounds {
    Rank size = 3;
    Rank arity = tree_arity;
    int deaths = 0;
    int leaves = 0;
    int accusations = 0;
    /// If there are any, no rank makes another accusation.
    std::vector<Accusation> possible = {};
    int duplicates = 0;
    int deadlines = 0;
    /// The ranks that call at any moment; the others call at once.
    Rank late_from = 0;
    std::size_t max_states = 400'000;
};

struct Node {
    World world;
    int deaths = 0, leaves = 0, accusations = 0, duplicates = 0, deadlines = 0;
};

void put_decision(ByteWriter& out, const std::optional<Decision>& decision, Rank size) {
    AgreementMessage message(size);
    message.role = AgreementMessage::Role::decision;
    message.decision = decision;
    out.put_text(as_text(message.encode()));
}

/// All that decides how the rank goes on. The texts of timeouts do not.
void put_state(ByteWriter& out, const AgreementState& state, Rank size) {
    AgreementMessage all(size);
    all.known = state.known;
    all.proposal = state.proposal;
    if (state.merged) all.merged = *state.merged;
    all.contributed = state.contributed;
    all.accepted = state.accepted;
    all.since = state.since;
    all.gave_up = state.gave_up;
    out.put_text(as_text(all.encode()));
    all.gave_up = state.own_give_up;
    out.put_text(as_text(all.encode()));
    put_decision(out, state.decision, size);
    put_decision(out, state.outcome, size);
    out.put(state.call.has_value()).put(state.merged.has_value()).put(state.sent_to);
    const Ballot first = state.first.value_or(Ballot{~0U, ~0U});
    out.put(first.epoch).put(first.place);
    if (state.sent) out.put_text(as_text(state.sent->encode()));
    state.askers.encode(out);
}

/// 128 bits: two states with one key would hide one of them.
std::string hash_of(const Bytes& bytes) {
    uint64_t low = 0xcbf29ce484222325, high = 0x9e3779b97f4a7c15;
    for (const std::byte byte : bytes) {
        low = (low ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
        high = (high + std::to_integer<uint64_t>(byte)) * 0xbf58476d1ce4e5b9;
        high ^= high >> 29;
    }
    return std::string(as_text(ByteWriter().put(low).put(high).take()));
}

const std::string& key_of(Envelope& e) {
    if (!e.key.empty()) return e.key;
    AgreementMessage message = *e.message;
    message.missing = RankSet(message.missing.size());
    e.key = hash_of(ByteWriter().put(e.from).put(e.to).put_text(as_text(message.encode())).take());
    return e.key;
}

const std::string& key_of(Slot& slot) {
    if (slot.key.empty()) {
        ByteWriter out;
        const AgreementState& state = slot.agreement->state();
        put_state(out, state, state.contributed.size());
        slot.key = hash_of(out.take());
    }
    return slot.key;
}

std::string key_of(Node& node) {
    ByteWriter out;
    World& world = node.world;
    world.dead.encode(out);
    world.left.encode(out);
    world.called.encode(out);
    out.put(node.deaths).put(node.leaves).put(node.accusations).put(node.duplicates);
    out.put(node.deadlines);
    for (Rank rank = 0; rank < world.size; ++rank) {
        if (world.dead.contains(rank) && !world.left.contains(rank)) continue;
        world.learned[static_cast<std::size_t>(rank)].encode(out);
        out.put_text(key_of(world.ranks[static_cast<std::size_t>(rank)]));
    }
    std::vector<std::string_view> messages;
    for (Envelope& e : world.wire) messages.push_back(key_of(e));
    std::sort(messages.begin(), messages.end());
    for (const std::string_view message : messages) out.put_text(message);
    return hash_of(out.take());
}

class Explorer {
public:
    explicit Explorer(const Bounds& bounds) : bounds_(bounds) {
        Node start{World(bounds.size, bounds.arity)};
        for (Rank rank = 0; rank < bounds.late_from; ++rank) start.world.call(rank);
        add(std::move(start));
        while (!open_.empty()) {
            const Node node = std::move(open_.back());
            open_.pop_back();
            expand(node);
        }
    }
    std::size_t states() const { return seen_.size(); }
    std::size_t ends() const { return ends_; }
    int ticks() const { return ticks_; }

private:
    void add(Node node) {
        if (!seen_.insert(key_of(node)).second) return;
        REQUIRE(seen_.size() <= bounds_.max_states);
        const std::string fault = node.world.fault();
        if (!fault.empty()) FAIL(fault);
        open_.push_back(std::move(node));
    }
    void expand(const Node& node) {
        const World& world = node.world;
        bool is_quiet = world.called.includes(world.alive());
        std::vector<std::string_view> tried;
        for (std::size_t i = 0; i < world.wire.size(); ++i) {
            if (!world.dead.contains(world.wire[i].from)) is_quiet = false;
            const std::string& key = world.wire[i].key;
            if (std::find(tried.begin(), tried.end(), key) != tried.end()) continue;
            tried.push_back(key);
            Node next = node;
            next.world.deliver(i);
            add(std::move(next));
            if (node.duplicates == bounds_.duplicates) continue;
            next = node;
            next.world.deliver(i, true);
            ++next.duplicates;
            add(std::move(next));
        }
        for (const Rank rank : world.alive().ranks()) {
            if (!world.called.contains(rank)) {
                Node next = node;
                next.world.call(rank);
                add(std::move(next));
                is_quiet = false;
            }
            for (const Rank of : world.dead.ranks()) {
                if (world.learned[static_cast<std::size_t>(rank)].contains(of)) continue;
                Node next = node;
                next.world.learn(rank, of);
                add(std::move(next));
                is_quiet = false;
            }
            fail(node, rank);
        }
        if (is_quiet) finish(node);
    }
    void fail(const Node& node, Rank rank) {
        const World& world = node.world;
        if (node.deaths < bounds_.deaths && world.alive().count() > 1) {
            Node next = node;
            next.world.kill(rank);
            ++next.deaths;
            add(std::move(next));
        }
        if (node.leaves < bounds_.leaves && world[rank].outcome() && world.alive().count() > 1) {
            Node next = node;
            next.world.leave(rank);
            ++next.leaves;
            add(std::move(next));
        }
        if (node.deadlines < bounds_.deadlines && world.called.contains(rank) &&
            !world[rank].outcome()) {
            Node next = node;
            next.world.give_up(rank);
            ++next.deadlines;
            add(std::move(next));
        }
        for (Rank accused = 0; accused < bounds_.size; ++accused) {
            if (node.accusations == bounds_.accusations || !may_accuse(rank, accused)) continue;
            Node next = node;
            next.world.accuse(rank, accused);
            ++next.accusations;
            add(std::move(next));
        }
    }
    bool may_accuse(Rank rank, Rank accused) const {
        const auto& possible = bounds_.possible;
        if (possible.empty()) return accused != rank;
        return std::find(possible.begin(), possible.end(), Accusation{rank, accused}) !=
               possible.end();
    }
    /// Nothing is on its way but messages of the dead, which do not arrive now.
    void finish(const Node& node) {
        Node end = node;
        end.world.ticks_needed = 0;
        if (!end.world.ends()) FAIL("a call does not end");
        const std::string fault = end.world.fault();
        if (!fault.empty()) FAIL("at the end: " << fault);
        ticks_ = std::max(ticks_, end.world.ticks_needed);
        ++ends_;
        if (node.accusations > 0) return;
        check_codes(end.world);
        // No message is lost but those of the dead, so nothing needs to be sent again.
        if (end.world.ticks_needed > 0) FAIL("a call waits for a message that is sent again");
    }
    /// Without accusations the ranks that waited to the end have one result, a success unless a
    /// rank gave up.
    static void check_codes(const World& world) {
        std::optional<Code> code;
        for (const Rank rank : world.alive().without(world.gave_up).ranks()) {
            const Code its = world[rank].outcome()->code;
            if (world.gave_up.empty() && its != Code::ok) FAIL("a call fails without a reason");
            if (code && *code != its) FAIL("one rank succeeds, another one fails");
            code = its;
        }
    }

    const Bounds bounds_;
    std::vector<Node> open_;
    std::unordered_set<std::string> seen_;
    std::size_t ends_ = 0;
    int ticks_ = 0;
};

// A sanitizer sees nothing in the large spaces that it does not see in the small ones.
enum class Space : uint8_t { small, large };

void explore(const char* what, const Bounds& bounds, Space space = Space::small) {
    if (tutti::test::sanitized && space == Space::large) return;
    const auto begin = std::chrono::steady_clock::now();
    const Explorer explorer(bounds);
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::steady_clock::now() - begin)
                        .count();
    std::printf("%s: %zu states, %zu ends, at most %d ticks, %lld ms\n", what, explorer.states(),
                explorer.ends(), explorer.ticks(), static_cast<long long>(ms));
    CHECK(explorer.ends() > 0);
}

}  // namespace

TEST_CASE("agreement, all orders: ranks call at any moment") {
    explore("3 ranks, star", {.size = 3});
    explore("3 ranks, chain", {.size = 3, .arity = 1});
    explore("4 ranks, binary", {.size = 4, .arity = 2});
    explore("3 ranks, chain, 1 duplicate", {.size = 3, .arity = 1, .duplicates = 1});
}

TEST_CASE("agreement, all orders: ranks die at any moment") {
    explore("2 ranks, 1 death", {.size = 2, .deaths = 1});
    explore("3 ranks, star, 2 deaths", {.size = 3, .deaths = 2, .late_from = 3});
    explore("3 ranks, chain, late, 2 deaths", {.size = 3, .arity = 1, .deaths = 2});
    explore("3 ranks, chain, 1 death, 1 duplicate",
            {.size = 3, .arity = 1, .deaths = 1, .duplicates = 1, .late_from = 3});
    explore("4 ranks, star, 1 death", {.size = 4, .deaths = 1, .late_from = 4});
    explore("4 ranks, binary, 2 deaths", {.size = 4, .arity = 2, .deaths = 2, .late_from = 4},
            Space::large);
    explore("5 ranks, chain, 1 death", {.size = 5, .arity = 1, .deaths = 1, .late_from = 5},
            Space::large);
    explore("5 ranks, binary, 1 death", {.size = 5, .arity = 2, .deaths = 1, .late_from = 5},
            Space::large);
}

TEST_CASE("agreement, all orders: ranks return and leave at any moment") {
    explore("3 ranks, star, 2 leave", {.size = 3, .leaves = 2, .late_from = 3});
    explore("3 ranks, star, 1 death, 1 leaves",
            {.size = 3, .deaths = 1, .leaves = 1, .late_from = 3});
    explore("3 ranks, chain, 1 death, 1 leaves",
            {.size = 3, .arity = 1, .deaths = 1, .leaves = 1, .late_from = 3});
}

TEST_CASE("agreement, all orders: a rank gives up at any moment") {
    explore("3 ranks, star, late, 1 deadline", {.size = 3, .deadlines = 1});
    explore("4 ranks, binary, 1 deadline", {.size = 4, .arity = 2, .deadlines = 1, .late_from = 4});
    explore("3 ranks, chain, 1 deadline, 1 death",
            {.size = 3, .arity = 1, .deaths = 1, .deadlines = 1, .late_from = 3});
}

TEST_CASE("agreement, all orders: ranks accuse living ranks at any moment") {
    explore("2 ranks, late, 2 accusations", {.size = 2, .accusations = 2});
    explore("2 ranks, 1 death, 2 accusations, 1 deadline",
            {.size = 2, .deaths = 1, .accusations = 2, .deadlines = 1, .late_from = 2});
    explore("3 ranks, star, 1 accusation", {.size = 3, .accusations = 1, .late_from = 3});
    explore("4 ranks, binary, 1 accusation",
            {.size = 4, .arity = 2, .accusations = 1, .late_from = 4});
    explore("3 ranks, star, 1 accusation, 1 leaves",
            {.size = 3, .leaves = 1, .accusations = 1, .late_from = 3}, Space::large);
    explore("3 ranks, chain, 1 accusation, 1 death",
            {.size = 3, .arity = 1, .deaths = 1, .accusations = 1, .late_from = 3}, Space::large);
    explore("3 ranks, star, 1 accusation, 1 death",
            {.size = 3, .deaths = 1, .accusations = 1, .late_from = 3}, Space::large);
    explore("3 ranks, chain, 1 accusation, 1 deadline",
            {.size = 3, .arity = 1, .accusations = 1, .deadlines = 1, .late_from = 3},
            Space::large);
    // The first exclusion is decided by ranks of which the second one excludes the root.
    for (const Rank arity : {1, 8})
        explore("3 ranks, 2 accusations",
                {.size = 3,
                 .arity = arity,
                 .accusations = 2,
                 .possible = {{1, 0}, {2, 1}},
                 .late_from = 3},
                Space::large);
    // A link is cut both ways.
    explore("3 ranks, star, 2 accusations",
            {.size = 3, .accusations = 2, .possible = {{0, 1}, {1, 0}}, .late_from = 3});
}
