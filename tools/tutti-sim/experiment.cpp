#include "experiment.h"

#include "engine/layout.h"
#include "transport/mapped/mapped_channel.h"

namespace tutti::sim {
namespace {

Result<Reducer> reducer_of(const Experiment& e) {
    if (!traits_of(e.collective).reduces) return Reducer::mover(dtype_bytes(e.dtype));
    return Reducer::make(e.dtype, Op::sum);
}

std::size_t row_of(const Experiment& e) {
    return traits_of(e.collective).cut == Cut::whole ? 1 : static_cast<std::size_t>(e.ranks);
}

// The elements of the message or of each block, rounded down to the same number for every rank.
std::size_t count_of(const Experiment& e) {
    return e.bytes / dtype_bytes(e.dtype) / row_of(e);
}

std::size_t rounded_bytes(const Experiment& e) {
    return count_of(e) * dtype_bytes(e.dtype) * row_of(e);
}

LayoutRequest layout_of(const Experiment& e, const Choice& choice, const Schedule& schedule,
                        const Reducer& reducer) {
    LayoutRequest l;
    l.collective = e.collective;
    l.ranks = e.ranks;
    l.root = e.root;
    l.count = count_of(e);
    return cut_for(std::move(l), schedule, reducer, choice.message_bytes);
}

// The cost model's constants for a medium of the simulated network.
Constants constants_of(const Medium& medium, const Network& network) {
    constexpr double kib = 1024, us = 1e6;
    Constants constants{};
    at(constants, Term::hop) = medium.latency_us + 2 * medium.overhead_us;
    at(constants, Term::message) = medium.overhead_us;
    at(constants, Term::kib) = kib / medium.bytes_per_s * us;
    at(constants, Term::reduced_kib) = kib / network.reduce_bytes_per_s * us;
    return constants;
}

}  // namespace

Hosts hosts_of(const Experiment& e) {
    const Fabric fabric(e.network, e.ranks);
    std::vector<uint64_t> labels;
    for (Rank rank = 0; rank < e.ranks; ++rank)
        labels.push_back(static_cast<uint64_t>(fabric.host_of(rank)));
    return Hosts::by_label(labels);
}

Result<Choice> choose(const Experiment& e) {
    TUTTI_ASSIGN(const Reducer reducer, reducer_of(e));
    SelectionInput input;
    input.ranks = e.ranks;
    input.one_host = input.mapped = e.network.hosts == 1;
    input.hosts = hosts_of(e).shape();
    input.wire = "simulated";
    input.inner_constants = constants_of(e.network.memory, e.network);
    input.constants =
        input.one_host ? input.inner_constants : constants_of(e.network.wire, e.network);
    // Take the smallest limit of all transports, because the selection may use any of them.
    input.max_message_bytes = mapped_cell_bytes;
    Question question;
    question.collective = e.collective;
    question.bytes = rounded_bytes(e);
    question.widening = reducer.widening();
    question.wanted = e.algorithm;
    return select(question, input);
}

Result<Outcome> run(const Experiment& e) {
    TUTTI_ASSIGN(Choice choice, choose(e));
    if (e.lanes != 0) choice.lanes = e.lanes;
    TUTTI_ASSIGN(const Reducer reducer, reducer_of(e));
    const Hosts hosts = hosts_of(e);
    SimulationRequest request;
    request.ranks = e.ranks;
    request.network = e.network;
    request.record = e.record;
    request.schedule = [&](Rank rank) {
        return choice.algorithm->make({e.ranks, rank, e.root, choice.lanes, &hosts});
    };
    const LayoutRequest cut = layout_of(e, choice, request.schedule(0), reducer);
    const Layout layout(cut);  // blocks of one length: the same for every rank
    request.data.tiles = layout.tiles();
    request.data.in_pieces = traits_of(e.collective).cut != Cut::whole;
    request.data.elements = [&](const Schedule& schedule, const Step& step, uint32_t tile) {
        const Region& extent = step.extent();
        uint64_t count = 0;
        for (uint32_t i = 0; i < step.chunks; ++i)
            count += layout.piece(extent.space, tile, schedule.chunk_at(extent.chunk, i)).count;
        return count;
    };
    for (const auto& [form, width] : {std::pair{Form::raw, Width::raw},
                                      {Form::partial, Width::partial},
                                      {Form::final, Width::final}})
        request.data.element_bytes[static_cast<std::size_t>(form)] =
            static_cast<uint32_t>(reducer.bytes(width));
    TUTTI_ASSIGN(Report report, simulate(request));
    return Outcome{std::move(choice), rounded_bytes(e), std::move(report)};
}

}  // namespace tutti::sim
