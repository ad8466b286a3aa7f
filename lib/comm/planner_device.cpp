// Plans for device memory: by the device's library with a fingerprint beside it, or through the
// host's.
#include <cstring>

#include "comm/extent.h"
#include "comm/planner.h"
#include "engine/beside.h"

namespace tutti {
namespace {

constexpr std::string_view library_name = "nccl", staged_name = "staged";
// In Tag::plan: a call on device memory is another than one on the host's.
constexpr uint64_t library_mark = uint64_t{0xd5} << 40;

IntrinsicShape::Blocks listed(const BlockList& list) {
    Blocks blocks = to_blocks(list);
    return {std::move(blocks.counts), std::move(blocks.displacements)};
}

/// What the operation writes of the output.
std::vector<StageRequest::Piece> results_of(const Call& call, const Extent& out) {
    const std::size_t bytes = dtype_bytes(call.dtype);
    std::vector<StageRequest::Piece> pieces;
    if (!out.used) return pieces;
    if (!out.row || !call.uneven) return {{0, out.length * bytes}};
    const Blocks blocks = to_blocks(call.output);
    for (std::size_t i = 0; i < blocks.counts.size(); ++i)
        pieces.push_back({blocks.displacements[i] * bytes, blocks.counts[i] * bytes});
    return pieces;
}

}  // namespace

Result<IntrinsicShape> Planner::device_shape(const Call& call) const {
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
                    "a device's library knows no operators of the program's own but pre-multiplied "
                    "sums whose scalar has the data's type");
    shape.op = Op::sum;
    shape.factor = op.scalar;
    return shape;
}

Result<Path> Planner::path_of(const Call& call, bool in_place, DeviceWay way) const {
    const bool library = call.algorithm.empty() || call.algorithm == library_name;
    if (!library && call.algorithm != staged_name)
        return fail(Code::unsupported,
                    "rank {}: {} on device memory is done by '{}' or '{}', not by '{}'",
                    place_.rank, collective_name(call.collective), library_name, staged_name,
                    call.algorithm);
    if (way == DeviceWay::staged || !library) return Path::staged;
    auto served = device_shape(call).and_then(
        [&](const IntrinsicShape& shape) { return device_.group->serves(shape); });
    // It has nowhere to keep what it overwrites, and the others do not know that it would need it.
    if (served && call.collective == Collective::alltoall && in_place)
        return fail(Code::unsupported,
                    "rank {}: an alltoall in place on device memory: use separate buffers, or the "
                    "algorithm '{}' on every rank",
                    place_.rank, staged_name);
    if (served) return Path::library;
    if (call.algorithm.empty()) return Path::staged;
    return tl::unexpected(annotate(served.error(), call));
}

Result<std::unique_ptr<Plan>> Planner::make_library(const Call& call, uint32_t stream) {
    TUTTI_ASSIGN(const IntrinsicShape shape, device_shape(call));
    TUTTI_ASSIGN(const Reduction reduction, this->reduction(call));
    TUTTI_ASSIGN(auto on_device, device_.group->bind(shape));
    Call nothing;
    nothing.collective = Collective::barrier;
    TUTTI_ASSIGN(auto fingerprint, make_host(nothing, stream));
    auto plan = std::make_unique<Plan>(call, stream);
    make_tag(*plan, Choice{}, reduction);
    plan->tag.plan ^= library_mark;
    plan->operation = beside(std::move(on_device), std::move(fingerprint->operation));
    return plan;
}

// To the other ranks it is the same call as on host memory.
Result<std::unique_ptr<Plan>> Planner::make_staged(const Call& call, uint32_t stream) {
    Call host = call;
    host.path = Path::host;
    host.algorithm = {};
    TUTTI_ASSIGN(auto inner, make_host(host, stream));
    const Extent in = extent_of(call, place_.rank, place_.size, Space::input);
    const Extent out = extent_of(call, place_.rank, place_.size, Space::output);
    const std::size_t bytes = dtype_bytes(call.dtype);
    StageRequest request;
    if (in.used) request.in_bytes = in.length * bytes;
    if (out.used) request.out_bytes = out.length * bytes;
    request.results = results_of(call, out);
    auto plan = std::make_unique<Plan>(call, stream);
    plan->tag = inner->tag;
    TUTTI_ASSIGN(plan->operation, stage(device_.staging, std::move(request),
                                        std::move(inner->operation), std::move(inner->in_place)));
    return plan;
}

}  // namespace tutti
