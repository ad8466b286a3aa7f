// Plans for device memory over hosts: a device's library does what concerns one host, and ranks of
// the same number on their hosts exchange their shares over tutti's wire.
#include "comm/planner.h"
#include "engine/across.h"

namespace tutti {
namespace {

constexpr uint32_t tile_slots = 3;
// What one operation puts on a stream must fit there before anything of it has run.
constexpr uint32_t most_tiles = 64, least_tiles = 4, most_copies = 512;
// In Tag::plan, as in planner_device.cpp.
constexpr uint64_t across_mark = uint64_t{0xd7} << 40;

/// The ranks with this rank's number on each host, by host.
class Counterparts final : public ChannelProvider {
public:
    Counterparts(ChannelTable& channels, const Hosts& hosts, Rank local)
        : channels_(channels), hosts_(hosts), local_(local) {}
    Result<OpenSender> sender(Rank host, uint16_t lane, Deadline deadline) override {
        return channels_.sender(hosts_.member(host, local_), lane, deadline);
    }
    ReceiverSlot* receiver(Rank host, uint16_t lane) override {
        return channels_.receiver(hosts_.member(host, local_), lane);
    }

private:
    ChannelTable& channels_;
    const Hosts& hosts_;
    const Rank local_;
};

/// What is left to do between hosts: contributions are multiplied already.
Call between_hosts(const Call& call) {
    Call wire = call;
    wire.path = Path::host;
    wire.algorithm = {};
    if (is_user_op(call.op)) wire.op = Op::sum;
    return wire;
}

/// How a host's ranks add up: what divides a sum comes last, between the hosts.
Op inside_op(Op op) {
    return op == Op::avg ? Op::sum : op;
}

}  // namespace

Result<> Planner::check_across(const Call& call) const {
    switch (call.collective) {
        case Collective::allreduce:
        case Collective::broadcast:
        case Collective::allgather:
        case Collective::reduce_scatter:
            break;
        default:
            return fail(Code::unsupported, "there is no hierarchical way for it");
    }
    if (call.uneven)
        return fail(Code::unsupported, "blocks of different lengths have no hierarchical way");
    TUTTI_ASSIGN(IntrinsicShape shape, device_shape(call));
    // NCCL's average of integers is another than the host's, whoever divides.
    TUTTI_TRY(device_.group->serves(shape));
    return {};
}

Result<std::unique_ptr<Plan>> Planner::make_across(const Call& call, uint32_t stream) {
    const Rank local = hosts_->local_of(place_.rank), host = hosts_->host_of(place_.rank);
    const Rank hosts = hosts_->count(), locals = hosts_->size_of(host);
    const bool whole = traits_of(call.collective).cut == Cut::whole;
    const std::size_t bytes = dtype_bytes(call.dtype);
    Plan wire(between_hosts(call), stream);
    TUTTI_ASSIGN(const Reduction reduction, this->reduction(wire.call));

    // The same choice for all shares, which differ by a rest.
    const std::size_t even = whole ? call.count / static_cast<std::size_t>(locals) : call.count;
    Terrain between = terrain_;
    between.ranks = hosts;
    between.one_host = false;
    between.hosts = {};
    between.intrinsic = {};
    Question asked = question(wire.call);
    asked.bytes =
        std::max<std::size_t>(1, even * bytes * (whole ? 1 : static_cast<std::size_t>(hosts)));
    const auto choice = select(asked, between);
    if (!choice) return tl::unexpected(annotate(choice.error(), call));

    ScheduleRequest wanted;
    wanted.ranks = hosts;
    wanted.rank = host;
    wanted.root = hosts_->host_of(call.root);
    wanted.lanes = choice->lanes;
    auto request = schedule_request(wire, *choice, reduction.reducer, wanted);
    if (whole) request.count = share_of(call.count, local, locals);
    // Blocks are gathered one by one.
    const auto ranks = static_cast<uint32_t>(place_.size);
    request.window = {tile_slots, config_.device_tile_bytes,
                      whole ? most_tiles : std::clamp(most_copies / ranks, least_tiles, most_tiles),
                      even};
    Counterparts channels(channels_, *hosts_, local);
    TUTTI_ASSIGN(auto bound, bind(std::move(request), channels));

    AcrossRequest inside;
    inside.window = bound->window();
    TUTTI_ASSIGN(inside.shape, device_shape(call));
    inside.shape.stream = stream;
    inside.shape.op = inside_op(inside.shape.op);
    inside.shape.root = hosts_->local_of(call.root);
    inside.element_bytes = bytes;
    inside.local = local;
    inside.locals = locals;
    inside.hosts = hosts;
    inside.on_root_host = host == wanted.root;
    for (Rank l = 0; !whole && l < locals; ++l)
        for (Rank h = 0; h < hosts; ++h) inside.by_place.push_back(hosts_->member(h, l));
    inside.group = device_.group;

    TUTTI_ASSIGN(auto fingerprint, make_fingerprint(stream));
    auto plan = std::make_unique<Plan>(call, stream);
    TUTTI_ASSIGN(const Reduction whole_reduction, this->reduction(call));
    make_tag(*plan, *choice, whole_reduction);
    plan->tag.plan ^= across_mark ^ config_.device_tile_bytes;
    TiledRequest tiles;
    tiles.area = device_.staging;
    tiles.first = std::move(fingerprint);
    tiles.element_bytes = bytes;
    tiles.in_place = whole;
    tiles.wire = std::move(bound);
    TUTTI_ASSIGN(tiles.around, across(std::move(inside), device_.staging->context));
    TUTTI_ASSIGN(plan->operation, tile(std::move(tiles)));
    return plan;
}

}  // namespace tutti
