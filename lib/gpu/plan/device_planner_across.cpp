// Plans for device memory over hosts: the device library works within a host, and ranks with the
// same local rank exchange their shares between hosts over tutti's transports.
#include <numeric>

#include "gpu/plan/device_planner.h"

namespace tutti {
namespace {

constexpr uint32_t share_slots = 3;
// Per operation: the stream must have room for all of its work before any of it runs.
constexpr uint32_t most_share_tiles = 64, least_share_tiles = 4, most_copies = 512;
// In Tag::plan, as in device_planner.cpp.
constexpr uint64_t across_mark = uint64_t{0xd7} << 40;

// The advice if the hierarchical algorithm cannot do a call.
constexpr std::string_view other_algorithm = "leave out the algorithm, or name 'staged'";

// With more stripes, the cost of their messages would exceed the gain.
constexpr Rank most_stripes = 32;
// On hosts of different sizes, two ranks may share several stripes. Each stripe gets a lane,
// numbered above the streams' lanes and below those of messages.
constexpr uint16_t first_stripe_lane = 0x1000;

/// The number of stripes that every host's ranks can share evenly, else the largest host's ranks.
Stripes stripes_over(const Hosts& hosts) {
    Rank count = 1;
    for (Rank h = 0; h < hosts.count(); ++h) {
        count = std::lcm(count, hosts.size_of(h));
        if (count > most_stripes) return {hosts.shape().largest};
    }
    return {count};
}

bool is_even(const Hosts& hosts) {
    return hosts.shape().smallest == hosts.shape().largest;
}

/// The ranks that carry a stripe, by host.
class Carriers final : public ChannelProvider {
public:
    Carriers(ChannelTable& channels, const Hosts& hosts, Stripes stripes, Rank stripe, Rank own)
        : channels_(channels), hosts_(hosts), stripes_(stripes), stripe_(stripe), own_(own) {}
    Result<OpenSender> sender(Rank host, uint16_t lane, Deadline deadline) override {
        return channels_.sender(carrier(host), lane_to(host, lane), deadline);
    }
    ReceiverSlot* receiver(Rank host, uint16_t lane) override {
        return channels_.receiver(carrier(host), lane_to(host, lane));
    }

private:
    Rank carrier(Rank host) const {
        return hosts_.member(host, stripes_.carrier(stripe_, hosts_.size_of(host)));
    }
    // On hosts of one size, two ranks share one stripe; on others, each stripe has its own lane.
    uint16_t lane_to(Rank host, uint16_t lane) const {
        const Rank locals = hosts_.size_of(host);
        const Rank theirs = stripes_.first(stripes_.carrier(stripe_, locals), locals);
        return static_cast<uint16_t>(lane + stripe_ - std::max(own_, theirs));
    }

    ChannelTable& channels_;
    const Hosts& hosts_;
    const Stripes stripes_;
    const Rank stripe_, own_;  // own: the first stripe that this rank carries
};

/// The call between hosts. A pre-multiplied sum is plain there: each host has multiplied already.
Call between_hosts(const Call& call) {
    Call wire = call;
    wire.path = Path::host;
    wire.algorithm = {};
    if (is_user_op(call.op)) wire.op = Op::sum;
    return wire;
}

/// The operator within a host: avg divides last, between the hosts.
Op inside_op(Op op) {
    return op == Op::avg ? Op::sum : op;
}

}  // namespace

Result<> DevicePlanner::check_across(const Call& call) const {
    switch (call.collective) {
        case Collective::allreduce:
        case Collective::broadcast:
        case Collective::allgather:
        case Collective::reduce_scatter:
            break;
        default:
            return fail(Code::unsupported, "this collective has no hierarchical algorithm")
                .advice("{}", other_algorithm);
    }
    if (call.uneven)
        return fail(Code::unsupported,
                    "the hierarchical algorithm cannot move blocks of different lengths")
            .advice("{}", other_algorithm);
    if (traits_of(call.collective).cut != Cut::whole && !is_even(host_map()))
        return fail(Code::unsupported,
                    "the hierarchical algorithm cannot move blocks where hosts have different "
                    "numbers of ranks ({} to {})",
                    host_map().shape().smallest, host_map().shape().largest)
            .advice("{}", other_algorithm);
    TUTTI_ASSIGN(IntrinsicShape shape, shape_of(call));
    // NCCL averages integers differently from the host, so ask NCCL whether it serves the call.
    TUTTI_TRY(means_.group->serves(shape));
    return {};
}

Result<Choice> DevicePlanner::choose_between_hosts(const Call& wire, std::size_t bytes) const {
    SelectionInput between = planner_.selection_input();
    between.ranks = host_map().count();
    between.one_host = false;
    between.hosts = {};
    between.intrinsic = {};
    Question asked = planner_.question(wire);
    asked.bytes = std::max<std::size_t>(1, bytes);
    return select(asked, between);
}

/// Binds this rank's schedule over the wire for one of its stripes.
Result<std::unique_ptr<BoundSchedule>> DevicePlanner::bind_stripe(const Plan& wire,
                                                                  const Choice& choice,
                                                                  const Reducer& reducer,
                                                                  Stripes stripes, Rank stripe) {
    const Rank local = host_map().local_of(place().rank), host = host_map().host_of(place().rank);
    const auto locals = static_cast<std::size_t>(host_map().size_of(host));
    const bool whole = traits_of(wire.call.collective).cut == Cut::whole;
    ScheduleRequest wanted;
    wanted.ranks = host_map().count();
    wanted.rank = host;
    wanted.root = host_map().host_of(wire.call.root);
    wanted.lanes = choice.lanes;
    auto request = planner_.schedule_request(wire, choice, reducer, wanted);
    const std::size_t share = whole ? stripes.share(wire.call.count) : wire.call.count;
    if (whole) request.count = share + (stripe == 0 ? stripes.remainder(wire.call.count) : 0);
    if (!is_even(host_map()))
        request.first_lane = static_cast<uint16_t>(first_stripe_lane + wire.stream * most_stripes);
    // The same on all ranks of a host. Blocks are gathered one by one.
    const auto ranks = static_cast<uint32_t>(place().size);
    request.window = {
        share_slots,
        whole ? config_.device_tile_bytes * locals / static_cast<std::size_t>(stripes.count)
              : config_.device_tile_bytes,
        whole ? most_share_tiles
              : std::clamp(most_copies / ranks, least_share_tiles, most_share_tiles),
        share};
    Carriers channels(channels_, host_map(), stripes, stripe,
                      stripes.first(local, host_map().size_of(host)));
    return bind(std::move(request), channels);
}

Result<std::unique_ptr<Plan>> DevicePlanner::make_across(const Call& call, uint32_t stream) {
    const Rank local = host_map().local_of(place().rank), host = host_map().host_of(place().rank);
    const Rank hosts = host_map().count(), locals = host_map().size_of(host);
    const bool whole = traits_of(call.collective).cut == Cut::whole;
    const std::size_t bytes = dtype_bytes(call.dtype);
    const Stripes stripes = stripes_over(host_map());
    Plan wire(between_hosts(call), stream);
    TUTTI_ASSIGN(const Reduction reduction, planner_.reduction(wire.call));

    // One choice for all stripes, which differ only by the remainder.
    auto choice = choose_between_hosts(
        wire.call,
        bytes * (whole ? stripes.share(call.count) : call.count * static_cast<std::size_t>(hosts)));
    if (!choice) return tl::unexpected(planner_.annotate(choice.error(), call));
    if (!is_even(host_map())) choice->lanes = 1;
    TiledRequest tiles;
    for (Rank s = stripes.first(local, locals); s < stripes.first(local + 1, locals); ++s) {
        TUTTI_ASSIGN(auto bound, bind_stripe(wire, *choice, reduction.reducer, stripes, s));
        tiles.wires.push_back(std::move(bound));
    }

    AcrossRequest inside;
    inside.window = tiles.wires.front()->window();
    inside.stripes = stripes;
    TUTTI_ASSIGN(inside.shape, shape_of(call));
    inside.shape.stream = stream;
    inside.shape.op = inside_op(inside.shape.op);
    inside.shape.root = host_map().local_of(call.root);
    inside.element_bytes = bytes;
    inside.local = local;
    inside.locals = locals;
    inside.hosts = hosts;
    inside.on_root_host = host == host_map().host_of(call.root);
    for (Rank l = 0; !whole && l < locals; ++l)
        for (Rank h = 0; h < hosts; ++h) inside.by_place.push_back(host_map().member(h, l));
    inside.group = means_.group;

    TUTTI_ASSIGN(tiles.first, make_fingerprint(stream));
    auto plan = std::make_unique<Plan>(call, stream);
    TUTTI_ASSIGN(const Reduction whole_reduction, planner_.reduction(call));
    planner_.make_tag(*plan, *choice, whole_reduction);
    plan->tag.plan ^= across_mark ^ config_.device_tile_bytes;
    tiles.area = means_.staging;
    tiles.element_bytes = bytes;
    tiles.in_place = whole;
    TUTTI_ASSIGN(tiles.stages, across(std::move(inside), means_.staging->context));
    TUTTI_ASSIGN(auto tiled, tile(std::move(tiles)));
    plan->operation = std::move(tiled);
    return plan;
}

}  // namespace tutti
