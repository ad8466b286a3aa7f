// Arguments that the C++ faces refuse, before the C interface sees them.
#include <array>
#include <limits>
#include <vector>

#include "errors/areas.h"
#include "errors/thrown.h"
#include "trainer/net.h"
#include "tutti/checkpoint.hpp"
#include "tutti/trainer_parallel.hpp"
#include "tutti/tutti.hpp"

namespace errors_test::faces {
namespace {

using Floats = std::vector<float>;

void refuse_buffers(Ledger& ledger, tutti::Communicator& comm) {
    Floats four(4), six(6);
    const std::array<std::size_t, 1> counts = {4};
    const std::array<std::size_t, 2> too_many = {4, 4};
    const auto take = [&](const char* row, const char* names, const std::function<void()>& work) {
        take_thrown(ledger, row, {.names = names}, work);
    };
    take("ranges of two sizes", "elements", [&] { comm.allreduce(four, six); });
    take("counts for other ranks", "counts", [&] { comm.allgatherv(four, four, too_many); });
    take("a range for other counts", "elements", [&] { comm.allgatherv(six, four, counts); });
    take("memory without end", "elements",
         [&] { comm.allocate<float>(std::numeric_limits<std::size_t>::max()); });
    tutti::Plan plan = comm.plan_allreduce<float>(4);
    take("a plan's buffers of another size", "plan", [&] { plan.run(six); });
}

void refuse_training(Ledger& ledger) {
    tutti::Trainer trainer(net::spec<float>({}, 1));
    trainer.init_sync();
    const std::array<int64_t, 3> samples = {1, 2, 3};
    take_thrown(ledger, "samples of other devices", {.names = "samples"},
                [&] { trainer.step(samples); });
    take_thrown(ledger, "rows of another length", {.names = "layer1/w"},
                [&] { trainer.sparse_pull<float>("layer1/w", 5, {0}, 100); });
    take_thrown(ledger, "a value of another shape", {.names = "value"}, [] {
        tutti::Value::array(Floats{1, 2}, {3});
    });
    take_thrown(ledger, "a value of another type", {.names = "value"}, [] {
        const tutti::Value value = tutti::Value::array(Floats{1, 2}, {2});
        (void)value.elements<double>();
    });
}

}  // namespace

void provoke_faces(Ledger& ledger) {
    tutti::Communicator comm;
    refuse_buffers(ledger, comm);
    refuse_training(ledger);
}

}  // namespace errors_test::faces
