// Our own declarations against NCCL's header, where a machine has it.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "support/catch.h"
#include "transports/nccl/library.h"
#include "transports/nccl/types.h"

using namespace tutti;

#define TUTTI_SAME_OFFSET(ours, theirs) \
    static_assert(offsetof(nccl::CommConfig, ours) == offsetof(ncclConfig_t, theirs))
TUTTI_SAME_OFFSET(size, size);
TUTTI_SAME_OFFSET(magic, magic);
TUTTI_SAME_OFFSET(version, version);
TUTTI_SAME_OFFSET(blocking, blocking);
TUTTI_SAME_OFFSET(cga_cluster_size, cgaClusterSize);
TUTTI_SAME_OFFSET(min_ctas, minCTAs);
TUTTI_SAME_OFFSET(net_name, netName);
TUTTI_SAME_OFFSET(split_share, splitShare);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(nccl::success == ncclSuccess && nccl::remote_error == ncclRemoteError &&
              nccl::in_progress == ncclInProgress);

TEST_CASE("nccl: our numbers for types and operators are its header's") {
    const auto number = [](Dtype dtype, Op op) {
        IntrinsicShape shape;
        shape.dtype = dtype;
        shape.op = op;
        return *nccl::elements_of(shape, {NCCL_VERSION_CODE, 90});
    };
    const std::pair<Dtype, ncclDataType_t> types[] = {
        {Dtype::int8, ncclInt8},       {Dtype::uint8, ncclUint8},
        {Dtype::int32, ncclInt32},     {Dtype::uint32, ncclUint32},
        {Dtype::int64, ncclInt64},     {Dtype::uint64, ncclUint64},
        {Dtype::float16, ncclFloat16}, {Dtype::bfloat16, ncclBfloat16},
        {Dtype::float32, ncclFloat32}, {Dtype::float64, ncclFloat64}};
    for (const auto& [ours, theirs] : types) REQUIRE(number(ours, Op::sum).dtype == theirs);
    const std::pair<Op, ncclRedOp_t> ops[] = {{Op::sum, ncclSum},
                                              {Op::prod, ncclProd},
                                              {Op::max, ncclMax},
                                              {Op::min, ncclMin},
                                              {Op::avg, ncclAvg}};
    for (const auto& [ours, theirs] : ops) REQUIRE(number(Dtype::float32, ours).op == theirs);
    REQUIRE(ncclScalarHostImmediate == 1);
    REQUIRE(NCCL_SPLIT_NOCOLOR == -1);
#if NCCL_VERSION_CODE >= 22700
    REQUIRE(NCCL_WIN_COLL_SYMMETRIC == 1);
#endif
}
