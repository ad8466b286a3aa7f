// Tests the choice of an algorithm, its reason, and the syntax of tuning files.
#include "select/selection.h"

#include "collectives/catalog.h"
#include "select/units.h"
#include "support/catch.h"

using namespace tutti;

namespace {

SelectionInput input_of(Rank ranks, const char* wire = "tcp", double crowding = 1) {
    SelectionInput t;
    t.ranks = ranks;
    t.max_message_bytes = 128 * kib;
    t.wire = wire;
    t.crowding = crowding;
    t.constants = default_constants(wire, {});
    if (t.wire == "shm") {
        t.one_host = t.mapped = true;
        t.intrinsic = "flat";
        t.intrinsic_bytes = 64 * kib;
    }
    return t;
}

Result<Tuning> parse(std::string_view text) {
    return parse_tuning(text, "f.tuning", "4 x Fast CPU");
}

void expect_error(std::string_view text, std::initializer_list<const char*> words) {
    const auto parsed = parse(text);
    INFO(text);
    REQUIRE_FALSE(parsed);
    const std::string message = error_text(parsed.error());
    INFO(message);
    for (const char* word : words) REQUIRE(message.find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("selection: an unknown name is refused with a list of those that exist") {
    SelectionInput input = input_of(4);
    Question q{.collective = Collective::allreduce, .bytes = 8};
    q.wanted = "magic";
    const auto unknown = select(q, input);
    REQUIRE_FALSE(unknown);
    REQUIRE(unknown.error().advice.find("ring, recursive_doubling") != std::string::npos);
    input = input_of(4, "shm");
    q.wanted = "flat";
    REQUIRE(select(q, input)->name == "flat");
    q.bytes = mib;
    REQUIRE_FALSE(select(q, input));
    q.collective = Collective::reduce;  // flat has none
    q.bytes = 8;
    REQUIRE_FALSE(select(q, input));
}

TEST_CASE(
    "selection: a library over sockets is taken for what tcp is, others for what they state") {
    Capabilities c;
    c.latency_us = 1;
    c.bandwidth_gbs = 25;
    for (const auto& [library, like] : {std::pair{"ucx", "tcp"}, {"shm+ofi", "shm+tcp"}}) {
        c.sockets = true;
        REQUIRE(default_constants(library, c) == default_constants(like, {}));
        // Within a host it goes another way.
        REQUIRE(at(default_constants(library, c, true), Term::hop) == 1);
        c.sockets = false;
        REQUIRE(at(default_constants(library, c), Term::hop) == 1);
    }
}

TEST_CASE("selection: has a choice for every collective, size and kind of blocks") {
    for (const char* wire : {"shm", "tcp", "shm+tcp", "another"})
        for (Rank ranks : {1, 2, 3, 8, 100, 100'000})
            for (int c = 0; c < collective_count; ++c)
                for (std::size_t bytes : {0ul, 8ul, 4096ul, 1ul << 20, 1ul << 30, 1ul << 40})
                    for (const auto& [uneven, ordered] :
                         {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
                        const auto collective = static_cast<Collective>(c);
                        if (uneven && traits_of(collective).cut == Cut::whole) continue;
                        if (ordered && !traits_of(collective).reduces) continue;
                        Question q{.collective = collective, .bytes = bytes};
                        q.uneven = uneven;
                        q.ordered = ordered;
                        SelectionInput input = input_of(ranks, wire);
                        input.hosts = Hosts::in_blocks(ranks, ranks > 4 ? 2 : ranks).shape();
                        const auto choice = select(q, input);
                        INFO(collective_name(collective)
                             << " ranks " << ranks << " bytes " << bytes << " over " << wire);
                        REQUIRE(choice);
                        REQUIRE_FALSE(choice->reason.empty());
                        REQUIRE((choice->algorithm != nullptr || choice->name == "flat"));
                        if (choice->algorithm && ordered) REQUIRE(!choice->algorithm->reorders);
                    }
}

TEST_CASE("selection: 16-bit sums are sent as they were given where that is less to send") {
    const auto predicted = [](uint32_t widening, std::string_view name) {
        const Question q{.bytes = 16 * mib, .widening = widening, .wanted = name};
        return select(q, input_of(4))->predicted_us;
    };
    REQUIRE(predicted(2, "direct") == predicted(1, "direct"));
    REQUIRE(predicted(2, "ring") > 1.2 * predicted(1, "ring"));
    REQUIRE(predicted(4, "ring") > 1.2 * predicted(2, "ring"));
    for (const auto& [widening, ranks, name] :
         {std::tuple{1u, 4, "ring"}, {2u, 4, "direct"}, {2u, 2, "ring"}}) {
        const Question q{.bytes = 16 * mib, .widening = widening};
        REQUIRE(select(q, input_of(ranks))->name == name);
    }
    // Hosts add what they have first: all that goes between them is partial.
    SelectionInput input = input_of(4, "shm+tcp");
    input.hosts = Hosts::in_blocks(4, 2).shape();
    const auto across = [&](uint32_t widening) {
        const Question q{.bytes = 16 * mib, .widening = widening, .wanted = "hierarchical"};
        return select(q, input)->predicted_us;
    };
    REQUIRE(across(2) > 1.1 * across(1));
}

TEST_CASE("selection: refuses to reorder what does not commute, and says which do not") {
    Question q{.collective = Collective::allreduce, .bytes = 8};
    q.ordered = true;
    q.wanted = "ring";
    const auto refused = select(q, input_of(4));
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().code == Code::unsupported);
    REQUIRE(refused.error().message.find("not commutative") != std::string::npos);
    REQUIRE(refused.error().advice.find("one of recursive_doubling, rabenseifner, direct") !=
            std::string::npos);
}

TEST_CASE("selection: several hosts of several ranks get two levels for large messages") {
    const Hosts hosts = Hosts::in_blocks(8, 2);
    SelectionInput input = input_of(8, "shm+tcp");
    input.hosts = hosts.shape();
    for (const auto collective :
         {Collective::allreduce, Collective::broadcast, Collective::reduce}) {
        const auto choice = select({.collective = collective, .bytes = 64 * mib}, input);
        INFO(choice->name);
        REQUIRE(choice->name.starts_with("hierarchical"));
        // Small enough messages that one tile is on the wire while another is in memory.
        const Schedule s = choice->algorithm->make({8, 0, 0, choice->lanes, &hosts});
        REQUIRE(64 * mib / (choice->message_bytes * s.chunks) >= 2);
        Question ordered{.collective = collective, .bytes = 64 * mib};
        ordered.ordered = collective != Collective::broadcast;
        const auto in_order = select(ordered, input);
        REQUIRE(in_order);
        REQUIRE((!ordered.ordered || !in_order->algorithm->reorders));
    }
    Question q{.collective = Collective::allreduce, .bytes = 8};
    q.wanted = "hierarchical";
    input.hosts = Hosts::in_blocks(8, 8).shape();
    const auto refused = select(q, input);
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().code == Code::unsupported);
    REQUIRE(refused.error().message.find("all ranks are on one host") != std::string::npos);
    REQUIRE(refused.error().advice.find("hierarchical_doubling") == std::string::npos);
}

TEST_CASE("selection: never takes more lanes than a stream has") {
    for (const Algorithm& a : algorithms())
        for (Rank ranks : {2, 3, 8, 17})
            for (std::size_t bytes : {8ul, mib, 64 * mib, 1024 * mib}) {
                const Hosts hosts = Hosts::in_blocks(ranks, (ranks + 1) / 2);
                SelectionInput input = input_of(ranks);
                input.hosts = hosts.shape();
                if (a.unsupported && !a.unsupported(ranks, input.hosts).empty()) continue;
                const auto choice =
                    select({.collective = a.collective, .bytes = bytes, .wanted = a.name}, input);
                INFO(collective_name(a.collective) << " " << a.name);
                REQUIRE(choice);
                for (Rank rank = 0; rank < ranks; ++rank)
                    REQUIRE(a.make({ranks, rank, 0, choice->lanes, &hosts}).lanes.size() <=
                            max_lanes_per_stream);
                REQUIRE(choice->message_bytes <= 128 * kib);
                REQUIRE(choice->message_bytes >= 8 * kib);
            }
}

TEST_CASE("selection: few rounds for small messages, few bytes for large ones") {
    const auto chosen = [](Collective collective, std::size_t bytes, Rank ranks) {
        return std::string(
            select({.collective = collective, .bytes = bytes}, input_of(ranks))->name);
    };
    for (Rank ranks : {16, 64, 256}) {
        REQUIRE(chosen(Collective::allreduce, 8, ranks) != "ring");
        REQUIRE(chosen(Collective::allreduce, 64 * mib, ranks) != "recursive_doubling");
        REQUIRE(chosen(Collective::allgather, 8, ranks) == "bruck");
        REQUIRE(chosen(Collective::alltoall, 8, ranks) == "bruck");
        REQUIRE(chosen(Collective::alltoall, 1024 * mib, ranks) == "pairwise");
        REQUIRE(chosen(Collective::broadcast, 8, ranks) != "chain");
    }
    REQUIRE(chosen(Collective::broadcast, 1024 * mib, 64) != "binomial");
    REQUIRE(chosen(Collective::barrier, 0, 64) == "dissemination");
    REQUIRE(select({.collective = Collective::barrier}, input_of(2, "shm"))->name == "flat");
    // There, roots that differ are noticed in the next call, crowded or not.
    for (Rank ranks : {2, 3, 4, 8})
        REQUIRE(select({.collective = Collective::broadcast, .bytes = 400},
                       input_of(ranks, "shm", std::max(1.0, ranks / 2.0)))
                    ->name == "flat");
}

// One round of a message to everyone: worth it where a message costs less than a round.
TEST_CASE("selection: a flat exchange that sends is chosen for few ranks, or on a fast network") {
    SelectionInput fast = input_of(2, "ucx"), sockets = input_of(2);
    fast.constants = default_constants("ucx", {{.latency_us = 2, .bandwidth_gbs = 10}});
    for (SelectionInput* input : {&fast, &sockets}) {
        input->intrinsic = "flat";
        input->intrinsic_bytes = 448;
        input->intrinsic_sends = true;
    }
    const auto chosen = [](Collective collective, std::size_t bytes, SelectionInput input,
                           Rank ranks) {
        input.ranks = ranks;
        return select({.collective = collective, .bytes = bytes}, input)->name;
    };
    for (const auto& [collective, bytes] :
         {std::pair(Collective::allreduce, 8), {Collective::barrier, 0}}) {
        REQUIRE(chosen(collective, bytes, fast, 2) == "flat");
        REQUIRE(chosen(collective, bytes, fast, 4) == "flat");
        REQUIRE(chosen(collective, bytes, sockets, 2) == "flat");
        REQUIRE(chosen(collective, bytes, sockets, 4) != "flat");
    }
    REQUIRE(chosen(Collective::allreduce, 449, fast, 2) != "flat");
    REQUIRE(chosen(Collective::broadcast, 8, fast, 2) != "flat");
    Question q{.collective = Collective::broadcast, .bytes = 8};
    q.wanted = "flat";
    const auto refused = select(q, fast);
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().advice.find("binomial") != std::string::npos);
}

TEST_CASE("selection: the predicted time never falls as messages or crowds grow") {
    for (const Algorithm& a : algorithms())
        for (Rank ranks : {2, 5, 8}) {
            SelectionInput input = input_of(ranks);
            input.hosts = Hosts::in_blocks(ranks, (ranks + 1) / 2).shape();
            if (a.unsupported && !a.unsupported(ranks, input.hosts).empty()) continue;
            double before = 0;
            for (std::size_t bytes = 8; bytes <= 64 * mib; bytes *= 8) {
                const Question q{.collective = a.collective, .bytes = bytes, .wanted = a.name};
                input.crowding = 1;
                const double us = select(q, input)->predicted_us;
                INFO(collective_name(a.collective) << " " << a.name << " " << bytes);
                REQUIRE(us > 0);
                REQUIRE(us >= before);
                input.crowding = 4;
                REQUIRE(select(q, input)->predicted_us >= us);
                before = us;
            }
        }
}

TEST_CASE(
    "selection: the call wins over the environment, that over the file, that over the model") {
    const auto tuning = parse(
        "choose allreduce tcp ranks=4 bytes=0..1M circulant\n"
        "choose allreduce tcp ranks=2..8 bytes=0..1M direct\n");
    REQUIRE(tuning);
    SelectionInput input = input_of(4);
    input.tuning = &*tuning;
    Question q{.collective = Collective::allreduce, .bytes = 64 * mib};
    REQUIRE(select(q, input)->reason.find("model") != std::string::npos);
    q.bytes = 100;
    REQUIRE(select(q, input)->name == "circulant");  // the first rule that fits
    REQUIRE(select(q, input)->reason.find("line 1 of the tuning file f.tuning") !=
            std::string::npos);
    input.ranks = 5;
    REQUIRE(select(q, input)->name == "direct");
    q.preferred = "flat";  // does not fit here
    REQUIRE(select(q, input)->name == "direct");
    q.preferred = "rabenseifner";
    REQUIRE(select(q, input)->name == "rabenseifner");
    q.wanted = "ring";
    REQUIRE(select(q, input)->name == "ring");
    input.wire = "shm";
    q.wanted = q.preferred = "";
    REQUIRE(select(q, input)->reason.find("model") != std::string::npos);
}

TEST_CASE("selection: a rule may be for sums of one width alone") {
    const auto tuning = parse(
        "choose allreduce tcp ranks=4 bytes=0..* sums=2 rabenseifner\n"
        "choose allreduce tcp ranks=4 bytes=0..1K circulant\n");
    REQUIRE(tuning);
    SelectionInput input = input_of(4);
    input.tuning = &*tuning;
    for (const auto& [widening, bytes, name] : {std::tuple{1u, 1 * mib, "ring"},
                                                {2u, 1 * mib, "rabenseifner"},
                                                {1u, 1 * kib, "circulant"},
                                                {2u, 1 * kib, "rabenseifner"},
                                                {4u, 1 * kib, "circulant"}})
        REQUIRE(select({.bytes = bytes, .widening = widening}, input)->name == name);
}

TEST_CASE("selection: a rule whose algorithm cannot serve the call is passed over") {
    REQUIRE_FALSE(parse("choose alltoall tcp ranks=0..* bytes=0..* brock\n"));
    const auto rule = parse("choose alltoall tcp ranks=0..* bytes=0..* bruck\n");
    REQUIRE(rule);
    SelectionInput input = input_of(4);
    input.tuning = &*rule;
    REQUIRE(select({.collective = Collective::alltoall, .bytes = mib}, input)->name == "bruck");
    REQUIRE(
        select({.collective = Collective::alltoall, .bytes = mib, .uneven = true}, input)->name ==
        "pairwise");
}

TEST_CASE("tuning: what is for other machines does not count, but must be right") {
    const auto tuning = parse(
        "# by hand\n"
        "machine 2 x Slow CPU\n"
        "choose broadcast shm ranks=2 bytes=8 chain\n"
        "machine 4 x Fast CPU\n"
        "choose broadcast shm ranks=2 bytes=0..64K flat  # here\n"
        "machine *\n"
        "constants tcp hop_us=7.5 kib_us=0.25\r\n");
    REQUIRE(tuning);
    REQUIRE(tuning->rules.size() == 1);
    REQUIRE(tuning->rules[0].algorithm == "flat");
    REQUIRE(tuning->rules[0].most_bytes == 64 * kib);
    REQUIRE(tuning->rules[0].line == 5);
    REQUIRE(tuning->constants_of("shm") == nullptr);
    REQUIRE(at(*tuning->constants_of("tcp"), Term::hop) == 7.5);
    expect_error("machine 2 x Slow CPU\nchoose broadcast shm ranks=2 bytes=8 chian\n",
                 {"f.tuning:2", "'chian'", "flat, binomial"});
}

TEST_CASE("tuning: a malformed file is refused with its line and what would be right") {
    expect_error("\n\nchose allreduce", {"f.tuning:3", "'chose'", "choose COLLECTIVE", "machine"});
    expect_error("choose allreduce tcp", {"f.tuning:1", "3 words instead of 6 or 7"});
    expect_error("choose allsum tcp ranks=2 bytes=8 ring", {"'allsum'", "allreduce, broadcast"});
    expect_error("choose allreduce tcp ranks=2 bytes=8 magic",
                 {"f.tuning:1", "'magic'", "flat, ring, recursive_doubling"});
    expect_error("choose allreduce tcp rank=2 bytes=8 ring", {"'rank=2'", "ranks=2..8"});
    expect_error("choose allreduce tcp ranks=two bytes=8 ring", {"'ranks=two'"});
    expect_error("choose allreduce tcp ranks=2 bytes=8X ring", {"'bytes=8X'", "bytes=64K..*"});
    expect_error("choose allreduce tcp ranks=8..2 bytes=8 ring", {"'ranks=8..2' is empty"});
    for (const char* sums : {"sums=3", "sums=", "sum=2", "sums=1..2"})
        expect_error(fmt::format("choose allreduce tcp ranks=2 bytes=8 {} ring", sums),
                     {sums, "sums=1", "sums=4"});
    expect_error("constants tcp", {"2 words instead of 3 or more"});
    expect_error("constants tcp hop_ms=1", {"'hop_ms'", "start_us, hop_us"});
    for (const char* value : {"", "x", "-1", "nan", "1e999", "1 x"})
        expect_error(std::string("constants tcp hop_us=") + value, {"f.tuning:1"});
    expect_error("machine", {"f.tuning:1", "the machine has no name"});
    REQUIRE_FALSE(load_tuning("/nonexistent/file"));
    REQUIRE(load_tuning("")->rules.empty());
}

TEST_CASE("tuning: the fingerprint tells different files apart, not comments and line numbers") {
    const auto a = parse("choose allreduce tcp ranks=2 bytes=8 ring");
    const auto b = parse("# the same\n\nchoose  allreduce tcp ranks=2..2 bytes=8..8 ring");
    const auto c = parse("choose allreduce tcp ranks=2 bytes=8 direct");
    const auto d = parse("choose allreduce tcp ranks=2 bytes=8 sums=1 ring");
    REQUIRE(a->fingerprint() == b->fingerprint());
    REQUIRE(a->fingerprint() != c->fingerprint());
    REQUIRE(a->fingerprint() != d->fingerprint());
    REQUIRE(parse("# nothing")->fingerprint() == "none");
}

TEST_CASE("tuning: what is for all machines is one file on different machines") {
    const auto on = [](std::string_view machine, std::string_view text) {
        return parse_tuning(text, "f.tuning", machine)->fingerprint();
    };
    constexpr std::string_view all = "machine *\nchoose allreduce tcp ranks=2 bytes=8 ring\n";
    REQUIRE(on("2 x Old CPU", all) == on("4 x Fast CPU", all));
    const std::string some =
        "machine 4 x Fast CPU\nchoose reduce tcp ranks=2 bytes=8 chain\n" + std::string(all);
    REQUIRE(on("2 x Old CPU", some) != on("4 x Fast CPU", some));
    REQUIRE(on("4 x Fast CPU", some).find("4 x Fast CPU") != std::string::npos);
}

TEST_CASE("tuning: flat is no algorithm of what has no flat exchange") {
    expect_error("choose reduce tcp ranks=2 bytes=8 flat", {"f.tuning:1", "'flat'", "binomial"});
    REQUIRE(parse("choose allreduce shm ranks=2 bytes=8 flat"));
}
