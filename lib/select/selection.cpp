#include "select/selection.h"

#include <algorithm>
#include <bit>

#include "collectives/catalog.h"
#include "select/distance.h"

namespace tutti {
namespace {

// On a wire a second lane uses the time in which the first waits for answers; mapped memory has no
// such time.
constexpr std::size_t second_lane_bytes = 1024 * 1024;
constexpr std::size_t least_pipeline_bytes = 8 * 1024;
constexpr std::size_t least_far_piece_bytes = 32 * 1024;
constexpr std::size_t hierarchy_tiles = 4;  // so that one tile is on the wire while another is in
                                            // shared memory

// The number of contributions that every rank reads in the flat exchange; < 0: the exchange does
// not support the collective.
double flat_reads(Collective collective, const SelectionInput& t) {
    switch (collective) {
        case Collective::allreduce:
            return t.ranks - 1;
        case Collective::broadcast:
            return t.intrinsic_sends ? -1 : 1;
        case Collective::barrier:
            return 0;
        default:
            return -1;
    }
}

bool intrinsic_fits(const Question& q, const SelectionInput& t) {
    return !t.intrinsic.empty() && !q.uneven && q.bytes <= t.intrinsic_bytes &&
           flat_reads(q.collective, t) >= 0;
}

// Empty, or the reason why the algorithm cannot serve the call.
std::string refusal(const Algorithm& a, const Question& q, const SelectionInput& t) {
    if (q.uneven && a.even_only)
        return "its blocks pass through ranks that do not know their lengths";
    if (q.ordered && a.reorders)
        return "contributions meet in another order than the ranks', and the operator is not "
               "commutative";
    return a.unsupported ? a.unsupported(t.ranks, t.hosts) : std::string();
}

std::string names_of(const Question& q, const SelectionInput& input) {
    std::string names;
    for (const Algorithm& a : algorithms())
        if (a.collective == q.collective && refusal(a, q, input).empty())
            names += fmt::format("{}{}", names.empty() ? "" : ", ", a.name);
    if (!input.intrinsic.empty() && flat_reads(q.collective, input) >= 0)
        names += fmt::format(", {}", input.intrinsic);
    return names;
}

// Tiles follow each other through several ranks: with smaller ones all ranks are busy sooner.
bool is_pipeline(std::string_view name) {
    return name == "chain" || name == "double_binary_tree";
}

Load load_of(const Question& q, const SelectionInput& t) {
    return {.ranks = t.ranks,
            .bytes = q.bytes,
            .crowding = std::max(1.0, t.crowding),
            .widening = q.widening};
}

// With two levels a tile is cut into pieces for all stripes and hosts; several tiles overlap.
std::size_t two_level_message_bytes(Collective collective, const Choice& choice, std::size_t bytes,
                                    const SelectionInput& t) {
    if (traits_of(collective).cut != Cut::whole) return t.max_message_bytes;
    const Rank pieces = collective == Collective::allreduce ? t.hosts.hosts : 2;
    const auto messages = hierarchy_tiles * static_cast<std::size_t>(t.hosts.largest * pieces);
    const std::size_t piece = std::bit_ceil(bytes / choice.lanes / messages + 1);
    return std::clamp(piece, std::min(least_pipeline_bytes, t.max_message_bytes),
                      t.max_message_bytes);
}

// Each stripe of the data has a carrier on every host, which has added its host's part before: all
// messages between hosts hold partial results.
Cost of_a_stripe(Cost cost, Rank stripes) {
    cost.partial = cost.reduced;
    for (double* bytes : {&cost.path, &cost.busy, &cost.partial, &cost.reduced, &cost.share})
        *bytes /= stripes;
    return cost;
}

// The cost if every rank sends its contribution to all other ranks at once.
Cost cost_of_sending(Rank ranks) {
    const double others = ranks - 1;
    return {.hops = 1,
            .messages = others,
            .path = others,
            .busy = others,
            .reduced = others,
            .peers = others,
            .share = others};
}

Choice intrinsic_choice(const Question& q, const SelectionInput& t) {
    Choice choice;
    choice.name = t.intrinsic;
    if (t.intrinsic_sends) {
        choice.terms = schedule_terms(cost_of_sending(t.ranks), load_of(q, t), t.intrinsic_bytes);
    } else {
        // A broadcast's readers wait for one rank.
        const double waits =
            q.collective == Collective::broadcast ? 1.0 / std::max<Rank>(1, t.ranks - 1) : 1.0;
        choice.terms = flat_terms(load_of(q, t), flat_reads(q.collective, t), waits);
    }
    choice.predicted_us = time_us(choice.terms, t.constants);
    return choice;
}

// Whether hosts are far apart and no two ranks share a host, so that all messages travel far.
bool is_far(const SelectionInput& t) {
    return t.far_message_bytes > 0 && (t.ranks == 2 || t.hosts.largest == 1);
}

// Messages of two-level algorithms also go through shared memory, whose cells bound them: over a
// long distance more lanes carry as much as longer messages would. Trees stream, and have two lanes
// per requested lane already.
uint32_t lanes_of(const Algorithm& algorithm, const Question& q, const SelectionInput& t) {
    const uint32_t lanes = !t.mapped && q.bytes >= second_lane_bytes ? 2 : 1;
    const bool streams =
        q.collective == Collective::broadcast || q.collective == Collective::reduce;
    if (lanes == 1 || t.far_message_bytes == 0 || !algorithm.inner_cost || streams) return lanes;
    const auto pieces = static_cast<std::size_t>(std::max<Rank>(1, t.ranks));
    const auto most = std::clamp<std::size_t>(q.bytes / pieces / least_far_piece_bytes, lanes,
                                              max_lanes_per_stream);
    const double others = bytes_on_the_way(t.constants) / static_cast<double>(t.max_message_bytes);
    return std::clamp(static_cast<uint32_t>(std::min(others, 100.0)) + 1, lanes,
                      static_cast<uint32_t>(most));
}

struct MessageBounds {
    std::size_t least, most;
};

// Between hosts that are far apart, messages are large enough to keep the wire busy.
MessageBounds message_bounds(const Choice& choice, const SelectionInput& t) {
    if (!is_far(t)) return {least_pipeline_bytes, t.max_message_bytes};
    const std::size_t window = window_message_bytes({.lanes = choice.lanes,
                                                     .credits = t.credits,
                                                     .streams = is_pipeline(choice.name),
                                                     .least = t.max_message_bytes,
                                                     .most = t.far_message_bytes},
                                                    t.constants);
    return {window, is_pipeline(choice.name) ? t.far_message_bytes : window};
}

// A lane waits once for messages to arrive, and again in each of its later tiles if bounds keep
// messages too short for the other lanes to fill that time.
double waits_of(const Choice& choice, const Cost& cost, const SelectionInput& t) {
    if (t.far_message_bytes == 0 || cost.hops < 1) return 1;
    const auto message = static_cast<double>(choice.message_bytes);
    const double way = bytes_on_the_way(t.constants), lanes = choice.lanes;
    const double tiles = at(choice.terms, Term::message) / std::max(cost.messages, 1.0);
    if (!is_pipeline(choice.name))
        return message * (lanes - 1) >= way ? 1 : std::max(1.0, tiles / lanes);
    // Half of the credits return after a round trip.
    const double half = lanes * t.credits / 2;
    return message * half >= 2 * way ? 1 : 1 + 2 * tiles / half / cost.hops;
}

Choice schedule_choice(const Algorithm& algorithm, const Question& q, const SelectionInput& t) {
    Choice choice;
    choice.algorithm = &algorithm;
    choice.name = algorithm.name;
    choice.lanes = lanes_of(algorithm, q, t);
    const MessageBounds bounds = message_bounds(choice, t);
    choice.message_bytes = bounds.most;
    if (!algorithm.cost) return choice;
    const Load load = load_of(q, t);
    if (algorithm.inner_cost) {
        choice.message_bytes = two_level_message_bytes(q.collective, choice, q.bytes, t);
        const Cost within = algorithm.inner_cost(t.hosts.largest);
        const Terms terms = schedule_terms(within, load, choice.message_bytes);
        choice.inner_us = time_us(terms, t.inner_constants);
    }
    const Rank stripes = algorithm.one_stripe ? 1 : t.hosts.largest;
    const Cost cost = algorithm.inner_cost ? of_a_stripe(algorithm.cost(t.hosts.hosts), stripes)
                                           : algorithm.cost(t.ranks);
    if (is_pipeline(choice.name) && t.ranks > 1)
        choice.message_bytes =
            pipeline_message_bytes(cost, load, t.constants, bounds.least, bounds.most);
    choice.terms = schedule_terms(cost, load, choice.message_bytes);
    at(choice.terms, Term::hop) *= waits_of(choice, cost, t);
    choice.predicted_us = time_us(choice.terms, t.constants) + choice.inner_us;
    return choice;
}

Result<Choice> named(std::string_view name, const Question& q, const SelectionInput& t) {
    if (!t.intrinsic.empty() && name == t.intrinsic && flat_reads(q.collective, t) >= 0) {
        if (intrinsic_fits(q, t)) return intrinsic_choice(q, t);
        return fail(Code::unsupported, "algorithm {} takes at most {} bytes, not {}", name,
                    t.intrinsic_bytes, q.bytes)
            .advice("use one of {}", names_of(q, t));
    }
    const Algorithm* algorithm = find_algorithm(q.collective, name);
    if (!algorithm)
        return fail(Code::unsupported, "there is no algorithm '{}' for {} on these ranks", name,
                    collective_name(q.collective))
            .advice("use one of {}", names_of(q, t));
    if (const std::string why = refusal(*algorithm, q, t); !why.empty())
        return fail(Code::unsupported, "algorithm {} cannot run on these {} ranks: {}", name,
                    t.ranks, why)
            .advice("use one of {}", names_of(q, t));
    return schedule_choice(*algorithm, q, t);
}

bool fits(const TuningRule& rule, const Question& q, const SelectionInput& t) {
    return rule.collective == q.collective && rule.wire == t.wire && rule.least_ranks <= t.ranks &&
           t.ranks <= rule.most_ranks && rule.least_bytes <= q.bytes &&
           q.bytes <= rule.most_bytes && (rule.widening == 0 || rule.widening == q.widening);
}

// nullptr if there is none.
const TuningRule* rule_for(const Question& q, const SelectionInput& t) {
    if (!t.tuning) return nullptr;
    for (const TuningRule& rule : t.tuning->rules)
        if (fits(rule, q, t) && named(rule.algorithm, q, t)) return &rule;
    return nullptr;
}

}  // namespace

std::vector<Choice> candidates(const Question& q, const SelectionInput& t) {
    std::vector<Choice> list;
    if (intrinsic_fits(q, t)) list.push_back(intrinsic_choice(q, t));
    for (const Algorithm& a : algorithms())
        if (a.collective == q.collective && refusal(a, q, t).empty())
            list.push_back(schedule_choice(a, q, t));
    std::stable_sort(list.begin(), list.end(), [](const Choice& a, const Choice& b) {
        const bool known_a = !a.algorithm || a.algorithm->cost;
        const bool known_b = !b.algorithm || b.algorithm->cost;
        return known_a != known_b ? known_a : known_a && a.predicted_us < b.predicted_us;
    });
    return list;
}

Result<Choice> select(const Question& q, const SelectionInput& t) {
    const auto because = [](Choice choice, std::string reason) {
        choice.reason = std::move(reason);
        return choice;
    };
    if (!q.wanted.empty()) {
        TUTTI_ASSIGN(Choice choice, named(q.wanted, q, t));
        return because(std::move(choice), "the call asks for it");
    }
    // An environment's preference applies if the algorithm fits; a call's own choice is mandatory.
    if (!q.preferred.empty())
        if (auto choice = named(q.preferred, q, t))
            return because(*std::move(choice), "TUTTI_ALGO asks for it");
    if (const TuningRule* rule = rule_for(q, t))
        if (auto choice = named(rule->algorithm, q, t))
            return because(*std::move(choice), fmt::format("line {} of the tuning file {}",
                                                           rule->line, t.tuning->file));
    std::vector<Choice> list = candidates(q, t);
    if (list.empty())
        return fail(Code::unsupported, "there is no algorithm for {} on {} ranks",
                    collective_name(q.collective), t.ranks)
            .advice("use another number of ranks (tutti-info lists the algorithms)");
    return because(std::move(list.front()), "the cost model expects it to be the fastest");
}

}  // namespace tutti
