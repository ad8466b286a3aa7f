#include "trainer/base/boundary.h"
#include "trainer/base/structs.h"
#include "trainer/sharded/fc.h"

using namespace tutti::trainer;           // NOLINT: the C functions are its face
using namespace tutti::trainer::sharded;  // NOLINT

namespace {

Result<> check_math(const tutti_fc_math* math) {
    if (!math) return null_argument("tutti_sharded_fc_create", "spec.math");
    if (math->struct_size < sizeof *math || !math->alloc || !math->free || !math->copy ||
        !math->gemm || !math->add_bias || !math->row_max || !math->pick || !math->exponentials ||
        !math->gradient || !math->column_sums)
        return fail(TUTTI_ERR_INVALID, "tutti_sharded_fc_create: spec.math lacks a function")
            .advice("copy the struct of tutti_fc_math_host() and give it a gemm");
    if ((math->to_host == nullptr) != (math->from_host == nullptr))
        return fail(TUTTI_ERR_INVALID,
                    "tutti_sharded_fc_create: spec.math has only one of to_host and from_host")
            .advice("give both or neither");
    return {};
}

}  // namespace

extern "C" {

tutti_status tutti_shard_range(int64_t classes, int shards, int shard, int64_t* first,
                               int64_t* count) {
    return guard([&]() -> Result<> {
        if (!first || !count) return null_argument("tutti_shard_range", first ? "count" : "first");
        TRAINER_ASSIGN(const ClassRange range, range_of(classes, shards, shard));
        *first = range.first;
        *count = range.count;
        return {};
    });
}

tutti_status tutti_shard_index(const int64_t* labels, size_t count, int64_t classes, int shards,
                               int shard, int64_t ignore, int64_t* out) {
    return guard([&]() -> Result<> {
        if (count > 0 && (!labels || !out))
            return null_argument("tutti_shard_index", labels ? "out" : "labels");
        TRAINER_ASSIGN(const ClassRange range, range_of(classes, shards, shard));
        for (size_t i = 0; i < count; ++i)
            if (labels[i] != ignore && (labels[i] < 0 || labels[i] >= classes))
                return fail(TUTTI_ERR_INVALID,
                            "tutti_shard_index: label {} at {} is out of range: there are {} "
                            "classes",
                            labels[i], i, classes)
                    .advice("pass labels from 0 to {}, or {} to ignore a sample", classes - 1,
                            ignore);
        for (size_t i = 0; i < count; ++i) {
            const bool own = labels[i] != ignore && labels[i] >= range.first &&
                             labels[i] < range.first + range.count;
            out[i] = own ? labels[i] - range.first : ignore;
        }
        return {};
    });
}

tutti_status tutti_sharded_fc_create(const tutti_sharded_fc_spec* spec, tutti_sharded_fc** layer) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_sharded_fc_create";
        if (!spec || !layer) return null_argument(function, spec ? "layer" : "spec");
        const tutti_sharded_fc_spec defaults = TUTTI_SHARDED_FC_SPEC_INIT;
        TRAINER_ASSIGN(const tutti_sharded_fc_spec known,
                       read_struct("tutti_sharded_fc_create: spec", spec, defaults,
                                   "TUTTI_SHARDED_FC_SPEC_INIT"));
        TRAINER_TRY(check_math(known.math));
        if (known.features == 0)
            return fail(TUTTI_ERR_INVALID, "{}: spec.features is 0", function)
                .advice("set spec.features to 1 or more");
        const int ranks = known.comm ? tutti_comm_size(known.comm) : 1;
        const int rank = known.comm ? tutti_comm_rank(known.comm) : 0;
        TRAINER_ASSIGN(const ClassRange range, range_of(known.classes, ranks, rank));
        *layer = new tutti_sharded_fc(known, *known.math, range);
        return {};
    });
}

void tutti_sharded_fc_destroy(tutti_sharded_fc* layer) {
    delete layer;
}

tutti_status tutti_sharded_fc_forward(tutti_sharded_fc* layer, const float* x,
                                      const int64_t* labels, size_t batch, const float* weight,
                                      const float* bias, double* loss) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_sharded_fc_forward";
        if (!layer || !loss) return null_argument(function, layer ? "loss" : "layer");
        TRAINER_ASSIGN(*loss, layer->forward(x, labels, batch, weight, bias));
        return {};
    });
}

tutti_status tutti_sharded_fc_backward(tutti_sharded_fc* layer, double loss_scale,
                                       const float* weight, float* dx, float* dweight,
                                       float* dbias) {
    return guard([&]() -> Result<> {
        if (!layer) return null_argument("tutti_sharded_fc_backward", "layer");
        return layer->backward(loss_scale, weight, dx, dweight, dbias);
    });
}
}
