// Every algorithm of the catalog moves real data, for blocks of one length and of many: the
// collectives are written out here a second time, in the plainest way.
#include <functional>
#include <vector>

#include "collectives/catalog.h"
#include "engine/fabric.h"
#include "support/catch.h"
#include "support/layouts.h"
#include "support/limits.h"

using namespace tutti;
using test::Fabric;
using test::FabricRank;

namespace {

using Element = int32_t;
constexpr Element untouched = -77;

struct FamilyCase {
    const Algorithm* algorithm;
    Rank ranks = 1;
    Rank root = 0;
    uint32_t lanes = 1;
    std::size_t count = 0;
    bool mapped = true;
    bool in_place = false;
    bool uneven = false;
    std::size_t message_bytes = 512;
};

std::string describe(const FamilyCase& c) {
    return fmt::format("{} {} n={} root={} lanes={} count={} mapped={} in_place={} uneven={}",
                       collective_name(c.algorithm->collective), c.algorithm->name, c.ranks, c.root,
                       c.lanes, c.count, c.mapped, c.in_place, c.uneven);
}

/// The plain collective: what each rank has, and what it must have afterwards.
class Plain {
public:
    explicit Plain(const FamilyCase& c) : c_(c), cut_(traits_of(c.algorithm->collective).cut) {}

    /// Elements of the block that goes from one rank to another; a whole message has no ranks.
    std::size_t length(Rank source, Rank destination) const {
        if (!c_.uneven) return c_.count;
        const auto key =
            cut_ == Cut::pairs ? source * 5 + destination * 3
            : collective() == Collective::allgather || collective() == Collective::gather
                ? source
                : destination;
        return key % 3 == 1 ? 0 : c_.count * static_cast<std::size_t>(1 + key % 4) / 2;
    }

    bool has_input(Rank rank) const {
        const bool gives_all =
            collective() == Collective::broadcast || collective() == Collective::scatter;
        return !gives_all || rank == c_.root;
    }
    bool has_output(Rank rank) const {
        const bool to_root =
            collective() == Collective::reduce || collective() == Collective::gather;
        return (!to_root || rank == c_.root) && !(collective() == Collective::exscan && rank == 0);
    }
    /// The ranks at the other end of each block of the rank's buffer; itself if it is its own
    /// block.
    std::vector<std::pair<Rank, Rank>> input_blocks(Rank me) const {
        const bool spreads = collective() == Collective::scatter ||
                             collective() == Collective::reduce_scatter ||
                             collective() == Collective::alltoall;
        std::vector<std::pair<Rank, Rank>> list;
        for (Rank r = 0; r < (spreads ? c_.ranks : 1); ++r) list.emplace_back(me, spreads ? r : me);
        return list;
    }
    std::vector<std::pair<Rank, Rank>> output_blocks(Rank me) const {
        const bool collects = collective() == Collective::allgather ||
                              collective() == Collective::gather ||
                              collective() == Collective::alltoall;
        const Rank from = collective() == Collective::scatter ? c_.root : me;
        std::vector<std::pair<Rank, Rank>> list;
        for (Rank r = 0; r < (collects ? c_.ranks : 1); ++r)
            list.emplace_back(collects ? r : from, me);
        return list;
    }

    static Element value(Rank source, Rank destination, std::size_t i) {
        return static_cast<Element>((source * 37 + destination * 5 + 7) * 10'000 +
                                    static_cast<Element>(i));
    }
    std::vector<Element> input(Rank me) const {
        std::vector<Element> data;
        for (const auto& [s, d] : input_blocks(me)) append(data, s, cut_ == Cut::whole ? 0 : d);
        return data;
    }
    std::vector<Element> expected(Rank me) const {
        std::vector<Element> data;
        if (!traits_of(collective()).reduces) {
            const Rank source = collective() == Collective::broadcast ? c_.root : nobody;
            for (const auto& [s, d] : output_blocks(me)) {
                const Rank from = source == nobody ? s : source;
                // An allgather's and a gather's blocks go to everyone alike.
                const bool own =
                    collective() == Collective::allgather || collective() == Collective::gather;
                append(data, from, cut_ == Cut::whole ? 0 : own ? from : d, length(from, d));
            }
            return data;
        }
        const Rank count = collective() == Collective::scan     ? me + 1
                           : collective() == Collective::exscan ? me
                                                                : c_.ranks;
        const std::size_t elements = cut_ == Cut::whole ? c_.count : length(me, me);
        data.assign(elements, 0);
        for (Rank r = 0; r < count; ++r)
            for (std::size_t i = 0; i < elements; ++i)
                data[i] += value(r, cut_ == Cut::whole ? 0 : me, i);
        return data;
    }
    BlockLayout layout(const std::vector<std::pair<Rank, Rank>>& blocks) const {
        BlockLayout b;
        if (!c_.uneven) return b;
        std::size_t at = 0;
        for (const auto& [s, d] : blocks) {
            b.counts.push_back(length(s, d));
            b.displacements.push_back(at);
            at += b.counts.back();
        }
        return b;
    }
    Collective collective() const { return c_.algorithm->collective; }

private:
    void append(std::vector<Element>& data, Rank source, Rank destination) const {
        append(data, source, destination,
               cut_ == Cut::whole ? c_.count : length(source, destination));
    }
    static void append(std::vector<Element>& data, Rank source, Rank destination,
                       std::size_t elements) {
        for (std::size_t i = 0; i < elements; ++i) data.push_back(value(source, destination, i));
    }
    const FamilyCase& c_;
    const Cut cut_;
};

/// One rank's buffers, laid out as its call would have them.
struct Buffers {
    std::vector<Element> memory, separate;
    Element* in = nullptr;
    Element* out = nullptr;
    std::size_t out_count = 0;
};

std::size_t own_offset(const Plain& plain, const std::vector<std::pair<Rank, Rank>>& blocks,
                       Rank me, bool by_source) {
    std::size_t at = 0;
    for (const auto& [s, d] : blocks) {
        if ((by_source ? s : d) == me) break;
        at += plain.length(s, d);
    }
    return at;
}

void lay_out(Buffers& b, const Plain& plain, const FamilyCase& c, Rank me) {
    const std::vector<Element> input =
        plain.has_input(me) ? plain.input(me) : std::vector<Element>();
    const std::size_t outputs = plain.has_output(me) ? plain.expected(me).size() : 0;
    b.out_count = outputs;
    const bool both = plain.has_input(me) && plain.has_output(me);
    const bool broadcast = plain.collective() == Collective::broadcast;
    if (!broadcast && !(c.in_place && both)) {
        b.separate = input;
        b.memory.assign(outputs + 1, untouched);
        b.in = b.separate.data();
        b.out = b.memory.data();
        return;
    }
    b.memory.assign(std::max(input.size(), outputs) + 1, untouched);
    b.in = b.out = b.memory.data();
    if (input.size() < outputs && plain.output_blocks(me).size() > 1)
        b.in += own_offset(plain, plain.output_blocks(me), me, true);
    if (input.size() > outputs && plain.input_blocks(me).size() > 1)
        b.out += own_offset(plain, plain.input_blocks(me), me, false);
    std::copy(input.begin(), input.end(), b.in);
}

std::unique_ptr<Operation> bind_rank(const FamilyCase& c, const Plain& plain, Fabric& fabric,
                                     Rank rank) {
    FabricRank channels(fabric, rank);
    const Collective collective = plain.collective();
    BindRequest request;
    request.collective = collective;
    request.ranks = c.ranks;
    request.rank = rank;
    request.root = c.root;
    const Hosts hosts = test::mixed_hosts(c.ranks);
    request.schedule = c.algorithm->make({c.ranks, rank, c.root, c.lanes, &hosts});
    request.count = c.uneven ? 0 : c.count;
    request.reducer = traits_of(collective).reduces ? *Reducer::make(Dtype::int32, Op::sum)
                                                    : Reducer::mover(sizeof(Element));
    request.message_bytes = c.message_bytes;
    if (c.uneven) {
        request.input = plain.layout(plain.input_blocks(rank));
        request.output = plain.layout(plain.output_blocks(rank));
        // All ranks of these two know all lengths, so the same lengths describe both buffers.
        if (collective == Collective::allgather) request.input = request.output;
        if (collective == Collective::reduce_scatter) request.output = request.input;
        request.tag_by_block =
            collective != Collective::allgather && collective != Collective::reduce_scatter;
    }
    auto bound = bind(std::move(request), channels);
    REQUIRE(bound);
    return std::move(*bound);
}

void run(const FamilyCase& c) {
    INFO(describe(c));
    const Plain plain(c);
    Fabric fabric(c.mapped);
    std::vector<std::unique_ptr<Operation>> operations;
    for (Rank rank = 0; rank < c.ranks; ++rank)
        operations.push_back(bind_rank(c, plain, fabric, rank));
    for (uint64_t round = 1; round <= 2; ++round) {
        std::vector<Buffers> buffers(operations.size());
        Tag tag;
        tag.sequence = round;
        for (std::size_t r = 0; r < buffers.size(); ++r) {
            lay_out(buffers[r], plain, c, static_cast<Rank>(r));
            operations[r]->start(tag, buffers[r].in, buffers[r].out);
        }
        REQUIRE(test::drive_all(operations) == Code::ok);
        for (std::size_t r = 0; r < buffers.size(); ++r) {
            const Buffers& b = buffers[r];
            INFO("rank " << r);
            if (plain.has_output(static_cast<Rank>(r)))
                REQUIRE(std::vector<Element>(b.out, b.out + b.out_count) ==
                        plain.expected(static_cast<Rank>(r)));
            REQUIRE(b.memory.back() == untouched);
            if (!b.separate.empty()) REQUIRE(b.separate == plain.input(static_cast<Rank>(r)));
        }
    }
}

std::vector<Rank> roots_of(const Algorithm& a, Rank ranks) {
    if (!traits_of(a.collective).rooted) return {0};
    return ranks < 3 ? std::vector<Rank>{0, ranks - 1} : std::vector<Rank>{0, 1, ranks - 1};
}

void for_each_case(const std::function<void(const FamilyCase&)>& run_one, bool uneven) {
    for (const Algorithm& a : algorithms()) {
        if (a.collective == Collective::barrier) continue;
        if (uneven && (a.even_only || traits_of(a.collective).cut == Cut::whole)) continue;
        for (Rank n : {1, 2, 3, 4, 5, 8, 11}) {
            if (n > test::max_ranks()) continue;
            // An algorithm of two levels has them from four ranks on; with one it must work too.
            if (a.unsupported && n > 3 && !a.unsupported(n, test::mixed_hosts(n).shape()).empty())
                continue;
            for (Rank root : roots_of(a, n))
                for (std::size_t count : {0ul, 1ul, 5ul, 700ul})
                    for (uint32_t lanes : {1u, 2u, 3u})
                        for (bool mapped : {true, false})
                            run_one({&a, n, root, lanes, count, mapped, false, uneven});
        }
    }
}

}  // namespace

TEST_CASE("family: every algorithm gives what the plain collective gives, on both data paths") {
    for_each_case(run, false);
}

TEST_CASE("family: every algorithm is right in place") {
    for_each_case(
        [](FamilyCase c) {
            c.in_place = true;
            run(c);
        },
        false);
}

TEST_CASE("family: blocks of different lengths, some of none") {
    for_each_case(run, true);
}

TEST_CASE("family: two ranks that disagree about a block's length are told") {
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::alltoall || a.even_only) continue;
        FamilyCase c{&a, 2, 0, 1, 6, true, false, true};
        const Plain plain(c);
        FamilyCase other = c;
        other.count = 8;
        const Plain different(other);
        Fabric fabric(true);
        std::vector<std::unique_ptr<Operation>> operations;
        operations.push_back(bind_rank(c, plain, fabric, 0));
        operations.push_back(bind_rank(other, different, fabric, 1));
        std::vector<Element> memory(100);
        Tag tag;
        tag.sequence = 1;
        for (auto& o : operations) o->start(tag, memory.data(), memory.data() + 50);
        REQUIRE(test::drive_all(operations) == Code::mismatch);
    }
}
