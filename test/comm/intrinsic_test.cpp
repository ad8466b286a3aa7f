// Compares transports' intrinsics, bit for bit, with the schedules that they replace, on the same
// communicator.
#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "comm/job.h"
#include "support/numbers.h"
#include "transport/endpoints.h"

using namespace comm_test;

namespace {

const std::string wanted = [] {
    const char* set = std::getenv("TUTTI_TEST_TRANSPORTS");
    return std::string(set ? set : "shm");
}();

/// Sums, products and averages of a few of these are exact before the last rounding, whatever the
/// order, and overflow narrow types; some are as small as any type has.
std::vector<double> numbers(std::size_t count, Rank rank) {
    std::minstd_rand random(static_cast<uint32_t>(rank + 1));
    std::vector<double> out(count);
    for (double& number : out) {
        const auto mantissa = static_cast<double>(random() % 17) - 8;
        const auto exponent = static_cast<int>(random() % 12) - 6;
        number = std::ldexp(mantissa, exponent);
    }
    return out;
}

std::vector<std::byte> input_of(Dtype dtype, std::size_t count, Rank rank) {
    auto values = numbers(count, rank);
    // At the same place on all ranks: of those at most one is no number.
    if (is_float(dtype) && count > 4) {
        values[1] = rank == 0 ? std::numeric_limits<double>::infinity() : -1;
        values[2] = rank % 2 == 0 ? -0.0 : 0.0;
        values[3] = -0.0;
    }
    return test::encoded(dtype, values);
}

std::string text_of(const Call& call, std::string_view intrinsic, std::string_view reference) {
    return fmt::format("{} {} {} of {}, {} and {}", collective_name(call.collective),
                       dtype_name(call.dtype), op_name(call.op), call.count, intrinsic, reference);
}

/// The call once each way.
std::string compare(Communicator& comm, Call call, std::string_view intrinsic,
                    std::string_view reference) {
    const auto input = input_of(call.dtype, call.count, comm.rank());
    std::vector<std::byte> results[2] = {input, input};
    for (const bool as_schedule : {false, true}) {
        auto& result = results[as_schedule ? 1 : 0];
        call.algorithm = as_schedule ? reference : intrinsic;
        const void* from = call.collective == Collective::broadcast ? result.data() : input.data();
        if (auto done = comm.calls().run(call, from, result.data()); !done)
            return done.error().message;
    }
    if (results[0] == results[1]) return "";
    const std::size_t bytes = dtype_bytes(call.dtype);
    std::size_t at = 0;
    while (results[0][at] == results[1][at]) ++at;
    return fmt::format("{}: element {} differs", text_of(call, intrinsic, reference), at / bytes);
}

std::string compare_all(Communicator& comm, Collective collective, std::size_t most_bytes,
                        std::string_view intrinsic, std::string_view reference) {
    Call call;
    call.collective = collective;
    for (int32_t dtype = 0; dtype < dtype_count; ++dtype)
        for (int32_t op = 0; op < op_count; ++op) {
            call.dtype = static_cast<Dtype>(dtype);
            call.op = static_cast<Op>(op);
            if (!Reducer::make(call.dtype, call.op)) continue;
            for (const std::size_t count : {1ul, 7ul, 40ul, most_bytes / dtype_bytes(call.dtype)})
                for (call.root = 0; call.root < comm.size(); ++call.root) {
                    call.count = std::min(count, most_bytes / dtype_bytes(call.dtype));
                    const auto problem = compare(comm, call, intrinsic, reference);
                    if (!problem.empty()) return problem;
                    if (collective != Collective::broadcast) break;
                }
            if (collective == Collective::broadcast) break;
        }
    return "";
}

}  // namespace

TEST_CASE("intrinsics: equal the schedules that they name") {
    int compared = 0;
    for (const TransportKind& kind : transports()) {
        if (wanted.find(kind.name) == std::string::npos) continue;
        const test::TestEndpoint endpoint({kind.name.data(), kind.make}, 0, 1);
        const IntrinsicProvider* const provider = endpoint.transport->intrinsics();
        REQUIRE(provider);
        for (const Rank ranks : {2, 3, 5}) {
            INFO(kind.name << " ranks " << ranks);
            Job job{ranks, std::string(kind.name)};
            expect_no_problem(run(job, [&](Communicator& comm, Rank) -> std::string {
                for (const auto collective : {Collective::allreduce, Collective::broadcast}) {
                    const std::string_view reference = provider->reference(collective);
                    if (reference.empty()) continue;
                    const std::size_t most = comm.planner().selection_input().intrinsic_bytes;
                    if (most == 0) return "there are no intrinsics";
                    auto problem = compare_all(comm, collective, most, provider->name(), reference);
                    if (!problem.empty()) return problem;
                }
                return "";
            }));
        }
        ++compared;
    }
    REQUIRE(compared > 0);
}

TEST_CASE("intrinsics: a mismatch may be over before a rank's first call") {
    Job job{3, "shm"};
    std::atomic<int> begun{0};
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        // Rank 0 is the first that ends the mismatch; then the others may begin their next calls.
        if (rank == 0 && !eventually([&] { return begun == 2; })) return "the mismatch never ended";
        std::vector<float> x(1000, 1.0f);
        const auto done = comm.calls().run(sum_of(rank == 1 ? 500 : 1000), x.data(), x.data());
        if (done || done.error().code != Code::mismatch) return "the mismatch was not noticed";
        const auto next = comm.calls().start(sum_of(1000), 0, -1, x.data(), x.data());
        ++begun;
        if (!next) return next.error().message;
        comm.progress().wait(**next, -1);
        return (*next)->code == Code::ok ? "" : (*next)->error.message;
    }));
}
