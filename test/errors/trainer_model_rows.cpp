// Models, options and devices that tutti_parallelize refuses.
#include <functional>
#include <stdexcept>

#include "errors/areas.h"
#include "errors/jobs.h"
#include "errors/thrown.h"
#include "trainer/net.h"

namespace errors_test::trainer_models {
namespace {

const net::Shape shape;

/// A change to a model that works.
struct Row {
    const char* what;
    const char* names;
    std::function<void(tutti::TrainerSpec&)> change;
    tutti_status status = TUTTI_ERR_INVALID;
};

void build_all(Ledger& ledger, const std::vector<Row>& rows) {
    for (const Row& row : rows)
        take_thrown(ledger, row.what, {row.status, row.names}, [&] {
            tutti::TrainerSpec spec = net::spec<float>(shape, 2);
            row.change(spec);
            const tutti::Trainer trainer(std::move(spec));
        });
}

using Options = tutti_trainer_options;
using Model = tutti::Model;

std::function<void(tutti::TrainerSpec&)> options(const std::function<void(Options&)>& change) {
    return [change](tutti::TrainerSpec& spec) { change(spec.options); };
}

/// more declares what is wrong, before the forward builder.
std::function<void(tutti::TrainerSpec&)> forward(const std::function<void(Model&)>& more) {
    return [more](tutti::TrainerSpec& spec) {
        spec.forward = [more, known = spec.forward](Model& m, double scale) {
            more(m);
            return known(m, scale);
        };
    };
}

std::function<void(tutti::TrainerSpec&)> update(const std::function<void(Model&)>& builder) {
    return [builder](tutti::TrainerSpec& spec) {
        spec.update = [builder](Model& m, double) { builder(m); };
    };
}

void declare(Model& m, const std::function<void(tutti_buffer_spec&)>& change) {
    tutti_buffer_spec spec = TUTTI_BUFFER_SPEC_INIT;
    spec.name = "odd";
    spec.dimensions = 1;
    spec.shape[0] = 4;
    change(spec);
    tutti_buffer made = -1;
    tutti::detail::check_trainer(tutti_model_buffer(m.get(), &spec, &made));
}

const auto nothing = [](const tutti::Step&) {};

std::vector<Row> option_rows() {
    return {
        {"no micro-batches", "micro_batches", options([](Options& o) { o.micro_batches = 0; })},
        {"negative threads", "threads", options([](Options& o) { o.threads = -1; })},
        {"options of another size", "struct_size", options([](Options& o) { o.struct_size = 3; })},
        {"more rings than there are", "rings", options([](Options& o) { o.rings = 99; })},
        {"negative collectives at once", "max_in_flight",
         options([](Options& o) { o.max_in_flight = -1; })},
        {"negative local steps", "local_steps", options([](Options& o) { o.local_steps = -1; })},
        {"uneven samples with local steps", "options.uneven",
         options([](Options& o) { o.uneven = o.local_steps = 1; })},
        {"uneven samples with a scaled rate", "options.uneven", options([](Options& o) {
             o.uneven = 1;
             o.scale = TUTTI_SCALE_LEARNING_RATE;
         })},
        {"external gradients of micro-batches", "external_autograd", options([](Options& o) {
             o.external_autograd = 1;
             o.micro_batches = 2;
         })},
        {"no devices", "devices", [](tutti::TrainerSpec& spec) { spec.devices = 0; }},
        {"no forward builder", "forward", [](tutti::TrainerSpec& spec) { spec.forward = {}; }},
    };
}

std::vector<Row> buffer_rows() {
    return {
        {"a name with a blank", "a b", update([](Model& m) { m.state<float>("a b", {1}); })},
        {"a buffer without a name", "buffer",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.name = nullptr; }); })},
        {"a buffer that is declared twice", "'device_0/v'", update([](Model& m) {
             m.state<float>("v", {1});
             m.state<float>("v", {1});
         })},
        {"a buffer with the counter's name", "iteration",
         update([](Model& m) { m.state<double>("iteration", {1}); })},
        {"a buffer of no kind", "odd", forward([](Model& m) {
             declare(m, [](tutti_buffer_spec& s) { s.kind = static_cast<tutti_buffer_kind>(7); });
         })},
        {"a buffer of no dtype", "odd",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.dtype = 99; }); })},
        {"a buffer of many dimensions", "odd",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.dimensions = 20; }); })},
        {"a buffer of a negative extent", "odd",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.shape[0] = -4; }); })},
        {"a buffer of half an element", "odd",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.bytes = 3; }); })},
        {"a buffer of two sizes", "odd",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.bytes = 400; }); })},
    };
}

std::vector<Row> related_buffer_rows() {
    return {
        {"a gradient of nothing", "odd", forward([](Model& m) {
             declare(m, [](tutti_buffer_spec& s) {
                 s.kind = TUTTI_GRADIENT;
                 s.gradient_of = 4711;
             });
         })},
        {"a gradient of another size", "odd", forward([](Model& m) {
             const tutti_buffer of = m.parameter<float>("p", {3});
             declare(m, [of](tutti_buffer_spec& s) {
                 s.kind = TUTTI_GRADIENT;
                 s.gradient_of = of;
             });
         })},
        {"rows of a buffer that is no shard", "total_rows",
         forward([](Model& m) { declare(m, [](tutti_buffer_spec& s) { s.total_rows = 8; }); })},
        {"a shard of other rows", "'device_0/odd'",
         forward([](Model& m) { m.shard<float>("odd", {4}, 100); })},
        {"a sparse table of integers", "sparse", forward([](Model& m) {
             m.sparse_parameter<int64_t>("table", {4, 2}, 1);
         })},
        {"a parameter that the update builder declares", "'p'",
         update([](Model& m) { m.parameter<float>("p", {1}); })},
        {"a parameter of integers", "'device_0/p'",
         forward([](Model& m) { m.parameter<int32_t>("p", {1}); })},
        {"a buffer that there is not", "missing", update([](Model& m) { m.find("missing"); })},
        {"a gradient that there is not", "'device_0/x'",
         update([](Model& m) { m.gradient(m.find("x")); })},
        {"the shape of no buffer", "tutti_model_info", update([](Model& m) { m.shape(4711); })},
        {"the rows of no sparse table", "tutti_model_sparse",
         update([](Model& m) { m.sparse(m.find("x")); })},
        {"a learning rate in the forward builder", "learning_rate",
         forward([](Model& m) { m.learning_rate(1); })},
        {"a scope that is left but not entered", "tutti_model_leave",
         forward([](Model& m) { m.leave(); })},
        {"a parameter of one device only", "'p'", forward([](Model& m) {
             if (m.device() == 0) m.parameter<float>("p", {2});
         })},
        {"a parameter of two shapes", "'device_1/p'",
         forward([](Model& m) { m.parameter<float>("p", {2 + m.device()}); })},
    };
}

std::vector<Row> operation_rows() {
    return {
        {"an operation without a function", "'device_0/idle'",
         forward([](Model& m) { m.operation("idle", {}, {}, {}); })},
        {"an operation that reads no buffer", "'device_0/read'",
         forward([](Model& m) { m.operation("read", {4711}, {}, nothing); })},
        {"an operation without a name", "operation",
         forward([](Model& m) { m.operation("", {}, {}, nothing); })},
        {"an operation that reads another device's buffer", "spy", forward([](Model& m) {
             if (m.device() == 1) m.operation("spy", {m.find("device_0/x")}, {}, nothing);
         })},
        {"a collective of one buffer", "sum", forward([](Model& m) {
             const tutti_buffer x = m.activation<float>("y", {4});
             m.collective("sum", TUTTI_COLLECTIVE_ALLREDUCE, x, x);
         })},
        {"a collective of no kind", "sum", forward([](Model& m) {
             m.collective("sum", static_cast<tutti_collective_kind>(7),
                          m.activation<float>("y", {4}), m.activation<float>("z", {4}));
         })},
        {"a collective of other sizes", "gather", forward([](Model& m) {
             m.collective("gather", TUTTI_COLLECTIVE_ALLGATHER, m.activation<float>("y", {4}),
                          m.activation<float>("z", {5}));
         })},
        {"a collective with no root", "cast", forward([](Model& m) {
             tutti_collective_spec more = TUTTI_COLLECTIVE_SPEC_INIT;
             more.root = 9;
             m.collective("cast", TUTTI_COLLECTIVE_BROADCAST, m.activation<float>("y", {4}),
                          m.activation<float>("z", {4}), more);
         })},
        {"a collective of one device", "lone", forward([](Model& m) {
             if (m.device() == 0)
                 m.collective("lone", TUTTI_COLLECTIVE_ALLREDUCE, m.activation<float>("y", {4}),
                              m.activation<float>("z", {4}));
         })},
        {"a copy of another size", "copy", forward([](Model& m) {
             m.copy("copy", m.activation<float>("y", {4}), m.activation<float>("z", {5}));
         })},
        {"a loss that is no buffer", "4711",
         [](tutti::TrainerSpec& spec) {
             spec.forward = [](Model&, double) { return tutti::Losses{4711}; };
         }},
        {"a loss that is an input", "'device_0/x'",
         [](tutti::TrainerSpec& spec) {
             spec.forward = [](Model& m, double) { return tutti::Losses{m.find("x")}; };
         }},
        {"a loss of no parameter", "'device_0/alone'",
         [](tutti::TrainerSpec& spec) {
             spec.forward = [](Model& m, double) {
                 return tutti::Losses{m.activation<float>("alone", {1})};
             };
         }},
        {"no losses", "device_1",
         [](tutti::TrainerSpec& spec) {
             spec.forward = [known = spec.forward](Model& m, double scale) {
                 const tutti::Losses losses = known(m, scale);
                 return m.device() == 1 ? tutti::Losses{} : losses;
             };
         }},
        {"a builder that throws", "update builder",
         update([](Model&) { throw std::runtime_error("out of cheese"); }), TUTTI_ERR_SYSTEM},
    };
}

void refuse_variables(Ledger& ledger) {
    const auto build = [] { const tutti::Trainer trainer(net::spec<float>(shape, 1)); };
    {
        const Variable variable("TUTTI_EXECUTION", "parallel");
        take_thrown(ledger, "an execution that there is not", {.names = "TUTTI_EXECUTION"}, build);
    }
    const Variable variable("TUTTI_TRAINER_THREADS", "many");
    take_thrown(ledger, "threads that are no number", {.names = "TUTTI_TRAINER_THREADS"}, build);
}

tutti_status copy_nothing(void*, void*, const void*, size_t) {
    return TUTTI_OK;
}

void refuse_devices(Ledger& ledger) {
    tutti_device* device = nullptr;
    tutti_device_functions functions = TUTTI_DEVICE_FUNCTIONS_INIT;
    ledger.take_trainer("a device without functions",
                        tutti_device_create(&functions, nullptr, &device),
                        {.names = "functions.alloc"});
    functions.copy = copy_nothing;
    functions.struct_size = 1;
    ledger.take_trainer("a device's functions of another size",
                        tutti_device_create(&functions, nullptr, &device),
                        {.names = "struct_size"});
}

// The model or an option of rank 1 differs.
void differ(Ledger& ledger) {
    run_job(ledger, "different models", {}, [&](tutti_comm* comm, int rank) {
        const auto build = [&](const std::function<void(tutti::TrainerSpec&)>& change) {
            tutti::TrainerSpec spec = net::spec<float>(shape, 1, comm);
            if (rank == 1) change(spec);
            const tutti::Trainer trainer(std::move(spec));
        };
        const std::string on = " on rank " + std::to_string(rank);
        take_thrown(ledger, "different models" + on, {.names = "rank 1"}, [&] {
            build([](tutti::TrainerSpec& spec) {
                net::Shape other;
                other.widths = {3, 6, 1};
                spec.forward = net::spec<float>(other, 1).forward;
                spec.input = net::spec<float>(other, 1).input;
                spec.update = net::spec<float>(other, 1).update;
            });
        });
        take_thrown(ledger, "different options" + on, {.names = "rank 1"},
                    [&] { build(options([](Options& o) { o.micro_batches = 2; })); });
        take_thrown(ledger, "different numbers of devices" + on, {.names = "devices"},
                    [&] { build([](tutti::TrainerSpec& spec) { spec.devices = 2; }); });
        const bool fails = rank == 1;
        take_thrown(ledger, "a builder that fails on one rank" + on,
                    {fails ? TUTTI_ERR_SYSTEM : TUTTI_ERR_INVALID,
                     fails ? "update builder" : "rank 1", -1, fails ? -1 : 1},
                    [&] { build(update([](Model&) { throw std::runtime_error("no cheese"); })); });
    });
}

}  // namespace

void provoke_trainer_models(Ledger& ledger) {
    build_all(ledger, option_rows());
    build_all(ledger, buffer_rows());
    build_all(ledger, related_buffer_rows());
    build_all(ledger, operation_rows());
    refuse_variables(ledger);
    refuse_devices(ledger);
    differ(ledger);
}

}  // namespace errors_test::trainer_models
