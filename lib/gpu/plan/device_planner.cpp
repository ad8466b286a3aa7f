#include "gpu/plan/device_planner.h"

#include <cstring>

#include "gpu/operations/beside.h"
#include "gpu/operations/tiled.h"
#include "plan/buffer_range.h"

namespace tutti {
namespace {

constexpr std::string_view library_name = "nccl", staged_name = "staged",
                           across_name = "hierarchical";
// In Tag::plan: distinguishes a call on device memory from one on host memory.
constexpr uint64_t library_mark = uint64_t{0xd5} << 40;

// One slot each for the copy in, the wire and the copy out, so that none waits for the others.
constexpr uint32_t tile_slots = 3;
// Per operation: the stream must have room for all of its work before any of it runs.
constexpr uint32_t most_tiles = 64;

/// Collectives whose tile is the same range of every buffer.
bool has_tiles(Collective collective) {
    switch (collective) {
        case Collective::allreduce:
        case Collective::reduce:
        case Collective::broadcast:
        case Collective::scan:
        case Collective::exscan:
        case Collective::allgather:
        case Collective::reduce_scatter:
            return true;
        default:
            return false;
    }
}

IntrinsicShape::UnevenBlocks listed(const BlockList& list) {
    BlockLayout blocks = to_blocks(list);
    return {std::move(blocks.counts), std::move(blocks.displacements)};
}

/// The byte ranges of the output that the operation writes.
std::vector<StageRequest::ResultBytes> results_of(const Call& call, const BufferRange& out) {
    const std::size_t bytes = dtype_bytes(call.dtype);
    std::vector<StageRequest::ResultBytes> pieces;
    if (!out.used) return pieces;
    if (!out.row || !call.uneven) return {{0, out.length * bytes}};
    const BlockLayout blocks = to_blocks(call.output);
    for (std::size_t i = 0; i < blocks.counts.size(); ++i)
        pieces.push_back({blocks.displacements[i] * bytes, blocks.counts[i] * bytes});
    return pieces;
}

}  // namespace

Result<IntrinsicShape> DevicePlanner::shape_of(const Call& call) const {
    IntrinsicShape shape;
    shape.collective = call.collective;
    shape.count = call.count;
    shape.dtype = call.dtype;
    shape.op = call.op;
    shape.root = call.root;
    shape.input = listed(call.input);
    shape.output = listed(call.output);
    if (!traits_of(call.collective).reduces || !is_user_op(call.op)) return shape;
    TUTTI_ASSIGN(const UserOperator op, find_operator(call.op));
    if (op.kind != UserOperator::Kind::premul_sum || op.scalar_dtype != call.dtype)
        return fail(Code::unsupported,
                    "NCCL takes an operator of the program's own only if it is a pre-multiplied "
                    "sum whose scalar has the data's dtype")
            .advice("leave out the algorithm, or name '{}'", staged_name);
    shape.op = Op::sum;
    shape.factor = op.scalar;
    return shape;
}

Result<Path> DevicePlanner::path_of(const Call& call, const Buffers& buffers,
                                    DeviceMode way) const {
    // The device copies asynchronously only between its own and pinned memory.
    const bool large = planner_.bytes_of(call) >= 2 * config_.device_tile_bytes;
    const Path staged =
        large && call.inputs == 0 && has_tiles(call.collective) && !call.uneven && !buffers.mixed
            ? Path::tiled
            : Path::staged;
    const std::string_view group_name = means_.of_host ? across_name : library_name;
    const bool library = call.algorithm.empty() || call.algorithm == group_name;
    if (!library && call.algorithm != staged_name)
        return fail(Code::unsupported, "{} on device memory has no algorithm '{}'",
                    collective_name(call.collective), call.algorithm)
            .advice("name '{}' or '{}', or leave out the algorithm", group_name, staged_name);
    if (way == DeviceMode::staged || !library || !means_.group) return staged;
    if (call.inputs > 0) {
        if (call.algorithm.empty()) return staged;
        return fail(Code::unsupported, "allreduce_multi on device memory has no algorithm '{}'",
                    call.algorithm)
            .advice("name '{}', or leave out the algorithm", staged_name);
    }
    if (means_.of_host) {
        const auto served = check_across(call);
        if (served) return Path::across;
        if (call.algorithm.empty()) return staged;
        return tl::unexpected(planner_.annotate(served.error(), call));
    }
    const auto shape = shape_of(call);
    const auto served = shape ? means_.group->serves(*shape) : tl::unexpected(shape.error());
    // NCCL has no space for blocks that it overwrites. Other ranks cannot know that this rank is in
    // place, so it fails instead of taking another path.
    if (served && call.collective == Collective::alltoall && buffers.in_place)
        return fail(Code::unsupported, "NCCL cannot do an alltoall in place")
            .advice("use separate buffers, or name the algorithm '{}' on every rank", staged_name);
    if (served) return Path::library;
    if (call.algorithm.empty()) return staged;
    return tl::unexpected(planner_.annotate(served.error(), call));
}

Result<std::unique_ptr<Plan>> DevicePlanner::make(const Call& call, uint32_t stream,
                                                  Deadline deadline) {
    planner_.begin(deadline);
    switch (call.path) {
        case Path::library:
            return make_library(call, stream);
        case Path::tiled:
            return make_tiled(call, stream);
        case Path::across:
            return make_across(call, stream);
        default:
            return make_staged(call, stream);
    }
}

// A barrier whose messages carry the tag of the call that it runs beside.
Result<std::unique_ptr<Operation>> DevicePlanner::make_fingerprint(uint32_t stream) {
    Call nothing;
    nothing.collective = Collective::barrier;
    TUTTI_ASSIGN(auto plan, planner_.make_host(nothing, stream));
    return std::move(plan->operation);
}

Result<std::unique_ptr<Plan>> DevicePlanner::make_library(const Call& call, uint32_t stream) {
    TUTTI_ASSIGN(IntrinsicShape shape, shape_of(call));
    shape.stream = stream;
    TUTTI_ASSIGN(const Reduction reduction, planner_.reduction(call));
    TUTTI_ASSIGN(auto on_device, means_.group->bind(shape));
    TUTTI_ASSIGN(auto fingerprint, make_fingerprint(stream));
    auto plan = std::make_unique<Plan>(call, stream);
    planner_.make_tag(*plan, Choice{}, reduction);
    plan->tag.plan ^= library_mark;
    plan->operation = beside(std::move(on_device), std::move(fingerprint));
    return plan;
}

// With fewer than two tiles, the buffer is staged as a whole. Other ranks see no difference: the
// messages are the same as on host memory.
Result<std::unique_ptr<Plan>> DevicePlanner::make_tiled(const Call& call, uint32_t stream) {
    Call host = call;
    host.path = Path::host;
    host.algorithm = {};
    auto plan = std::make_unique<Plan>(call, stream);
    const Plan as_host(host, stream);
    const auto choice = planner_.choose(host);
    if (!choice) return tl::unexpected(planner_.annotate(choice.error(), call));
    TUTTI_ASSIGN(const Reduction reduction, planner_.reduction(host));
    if (!choice->algorithm || reduction.prepared) return make_staged(call, stream);
    auto request = planner_.schedule_request(as_host, *choice, reduction.reducer,
                                             planner_.whole_schedule(host, *choice));
    request.window = {tile_slots, config_.device_tile_bytes, most_tiles};
    TUTTI_ASSIGN(auto wire, bind(std::move(request), channels_));
    if (wire->window().fills < 2) return make_staged(call, stream);
    DirectStagesRequest direct;
    direct.has_input = range_of(call, place().rank, place().size, Space::input).used;
    direct.has_output = range_of(call, place().rank, place().size, Space::output).used;
    direct.element_bytes = dtype_bytes(call.dtype);
    TiledRequest tiles;
    tiles.area = means_.staging;
    tiles.stages = direct_stages(wire->window(), direct);
    tiles.element_bytes = direct.element_bytes;
    tiles.in_place = wire->window().blocks(Space::input) == wire->window().blocks(Space::output);
    tiles.wires.push_back(std::move(wire));
    planner_.make_tag(*plan, *choice, reduction);
    TUTTI_ASSIGN(auto tiled, tile(std::move(tiles)));
    plan->operation = std::move(tiled);
    return plan;
}

/// nullptr: the inputs are copied to the host one by one and added there.
Result<std::unique_ptr<DeviceFold>> DevicePlanner::fold_on_device(const Call& call) const {
    if (call.inputs < 2 || is_user_op(call.op) || !DeviceFold::built())
        return std::unique_ptr<DeviceFold>();
    TUTTI_ASSIGN(const device::Kernels* kernels, means_.staging->kernels());
    return DeviceFold::make(means_.staging->context, *kernels,
                            {call.dtype, call.op, call.count, call.inputs});
}

// The other ranks see the same messages as for a call on host memory.
Result<std::unique_ptr<Plan>> DevicePlanner::make_staged(const Call& call, uint32_t stream) {
    Call host = call;
    host.path = Path::host;
    host.algorithm = {};
    TUTTI_ASSIGN(auto fold, fold_on_device(call));
    TUTTI_ASSIGN(auto inner, planner_.make_host(host, stream, fold != nullptr));
    const BufferRange in = range_of(call, place().rank, place().size, Space::input);
    const BufferRange out = range_of(call, place().rank, place().size, Space::output);
    const std::size_t bytes = dtype_bytes(call.dtype);
    StageRequest request;
    if (in.used) request.in_bytes = in.length * bytes;
    if (out.used) request.out_bytes = out.length * bytes;
    request.in_on_host = call.on_host == OnHost::input;
    request.out_on_host = call.on_host == OnHost::output;
    request.results = results_of(call, out);
    if (fold) {
        request.in_bytes = fold->result_bytes();
        request.fold = std::move(fold);
    } else {
        request.inputs = static_cast<std::size_t>(call.inputs);
    }
    auto plan = std::make_unique<Plan>(call, stream);
    plan->tag = inner->tag;
    TUTTI_ASSIGN(auto staged,
                 stage(means_.staging, std::move(request), std::move(inner->operation)));
    plan->operation = std::move(staged);
    return plan;
}

}  // namespace tutti
