// The parts of the C API that need no communicator: version, errors, catalogs, settings.
#include <optional>
#include <string>

#include "base/version.h"
#include "capi/boundary.h"
#include "collectives/catalog.h"
#include "job/known_names.h"
#include "rendezvous/callback_store.h"
#include "transport/flat/flat_exchange.h"
#include "transports/catalog.h"

namespace {

struct LastError {
    std::string text;
    int rank = -1;
};
thread_local LastError last_error;

// The catalogs' names are literals, so data() ends in a zero byte.
const char* c_string(std::string_view literal) {
    return literal.data();
}

struct Listed {
    std::string_view name, summary;
};

// The catalog's algorithms, then the flat exchange, which transports do without a schedule.
std::optional<Listed> algorithm_at(std::string_view collective, int index) {
    bool flat = false;
    for (const tutti::Algorithm& a : tutti::algorithms()) {
        if (tutti::collective_name(a.collective) != collective) continue;
        if (index-- == 0) return Listed{a.name, a.summary};
        flat = !tutti::flat_reference(a.collective).empty();
    }
    if (flat && index == 0) return Listed{tutti::flat_name, tutti::flat_summary};
    return {};
}

std::shared_ptr<tutti::Store> make_host_store(const tutti_config& config) {
    const tutti_store_callbacks& c = config.callbacks;
    return tutti::make_callback_store({c.set, c.get, c.add}, config.user, config.values.job);
}

}  // namespace

namespace tutti {

tutti_status keep(const Error& error) {
    last_error.text = error_text(error);
    last_error.rank = error.rank;
    return to_c(error.code);
}

namespace {

// Converts between float32 and a narrower float, as the kernels do into and out of an accumulator.
Result<> convert(const void* in, tutti_dtype in_dtype, void* out, tutti_dtype out_dtype,
                 std::size_t count) {
    if (count > 0 && (!in || !out)) return null_argument("tutti_convert", in ? "out" : "in");
    const char *from = tutti_dtype_name(in_dtype), *to = tutti_dtype_name(out_dtype);
    if (!from || !to)
        return fail(Code::invalid, "tutti_convert: unknown dtype {}", from ? out_dtype : in_dtype)
            .advice("give a dtype from 0 to {} (tutti_dtype_name names them)", dtype_count - 1);
    const bool same = in_dtype == out_dtype;
    const bool widens = out_dtype == TUTTI_FLOAT32;
    const auto narrow = static_cast<Dtype>(widens ? in_dtype : out_dtype);
    if (!same &&
        (!is_float(narrow) || dtype_bytes(narrow) > 2 || (!widens && in_dtype != TUTTI_FLOAT32)))
        return fail(Code::unsupported, "tutti_convert: cannot convert from {} to {}", from, to)
            .advice("convert between float32 and a float of 16 or 8 bits");
    const ReduceArgs args{.dst = out, .a = in, .count = count};
    if (same) {
        Reducer::mover(dtype_bytes(narrow)).move(Width::raw, Width::final, false)(args);
        return {};
    }
    const auto reducer = Reducer::make(narrow, Op::sum);
    if (!reducer) return tl::unexpected<Error>(reducer.error());
    const ReduceFn move = widens ? reducer->move(Width::raw, Width::partial, false)
                                 : reducer->move(Width::partial, Width::final, false);
    move(args);
    return {};
}

}  // namespace

static_assert(static_cast<int>(Code::mismatch) == TUTTI_ERR_MISMATCH);
static_assert(static_cast<int>(Code::auth) == TUTTI_ERR_AUTH);
static_assert(static_cast<int>(last_code) == TUTTI_ERR_REVOKED);
static_assert(static_cast<int>(Dtype::bfloat16) == TUTTI_BFLOAT16);
static_assert(static_cast<int>(Dtype::float8_e5m2) == TUTTI_FLOAT8_E5M2);
static_assert(static_cast<int>(Op::avg) == TUTTI_AVG && static_cast<int>(Op::bxor) == TUTTI_BXOR);

}  // namespace tutti

extern "C" {

const char* tutti_version(void) {
    return c_string(tutti::version());
}

const char* tutti_status_string(tutti_status status) {
    return c_string(tutti::code_name(static_cast<tutti::Code>(status)));
}

const char* tutti_last_error(void) {
    return last_error.text.c_str();
}
int tutti_last_error_rank(void) {
    return last_error.rank;
}

size_t tutti_dtype_size(tutti_dtype dtype) {
    return dtype < 0 || dtype >= tutti::dtype_count
               ? 0
               : tutti::dtype_bytes(static_cast<tutti::Dtype>(dtype));
}

tutti_status tutti_convert(const void* in, tutti_dtype in_dtype, void* out, tutti_dtype out_dtype,
                           size_t count) {
    return tutti::guard([&] { return tutti::convert(in, in_dtype, out, out_dtype, count); });
}

const char* tutti_dtype_name(tutti_dtype dtype) {
    return dtype < 0 || dtype >= tutti::dtype_count
               ? nullptr
               : c_string(tutti::dtype_name(static_cast<tutti::Dtype>(dtype)));
}

const char* tutti_op_name(tutti_op op) {
    if (op >= 0 && op < tutti::op_count)
        return c_string(tutti::op_name(static_cast<tutti::Op>(op)));
    const auto made = tutti::find_operator(static_cast<tutti::Op>(op));
    if (!made) return nullptr;
    return made->kind == tutti::UserOperator::Kind::premul_sum ? "pre-multiplied sum"
                                                               : "user operator";
}

const char* tutti_algorithm_name(const char* collective, int index) {
    if (!collective) return nullptr;
    const auto algorithm = algorithm_at(collective, index);
    return algorithm ? c_string(algorithm->name) : nullptr;
}

const char* tutti_algorithm_summary(const char* collective, const char* algorithm) {
    if (!collective || !algorithm) return nullptr;
    for (int i = 0; const auto a = algorithm_at(collective, i); ++i)
        if (a->name == algorithm) return c_string(a->summary);
    return nullptr;
}

const char* tutti_transport_name(int index) {
    const auto kinds = tutti::transports();
    if (index < 0 || static_cast<size_t>(index) >= kinds.size()) return nullptr;
    return c_string(kinds[static_cast<size_t>(index)].name);
}

tutti_status tutti_config_create(tutti_config** config) {
    return tutti::guard([&]() -> tutti::Result<> {
        if (!config) return tutti::null_argument("tutti_config_create", "config");
        TUTTI_ASSIGN(tutti::Config values, tutti::config_of_process());
        *config = new tutti_config{std::move(values)};
        return {};
    });
}

tutti_status tutti_config_set(tutti_config* config, const char* key, const char* value) {
    return tutti::guard([&]() -> tutti::Result<> {
        if (!config) return tutti::null_argument("tutti_config_set", "config");
        if (!key) return tutti::null_argument("tutti_config_set", "key");
        if (!value) return tutti::null_argument("tutti_config_set", "value");
        return tutti::set_known(config->values, key, value);
    });
}

tutti_status tutti_config_set_store(tutti_config* config, const tutti_store_callbacks* callbacks,
                                    void* user) {
    return tutti::guard([&]() -> tutti::Result<> {
        if (!config) return tutti::null_argument("tutti_config_set_store", "config");
        if (!callbacks) return tutti::null_argument("tutti_config_set_store", "callbacks");
        if (callbacks->struct_size < sizeof(tutti_store_callbacks))
            return tutti::fail(tutti::Code::invalid,
                               "tutti_config_set_store: callbacks.struct_size is {}, which is too "
                               "small",
                               callbacks->struct_size)
                .advice("set it to sizeof(tutti_store_callbacks), which is {}",
                        sizeof(tutti_store_callbacks));
        if (!callbacks->set || !callbacks->get || !callbacks->add)
            return tutti::null_argument("tutti_config_set_store", "one of set, get and add");
        config->callbacks = *callbacks;
        config->user = user;
        config->make_store = make_host_store;
        return {};
    });
}

void tutti_config_destroy(tutti_config* config) {
    delete config;
}

}  // extern "C"
