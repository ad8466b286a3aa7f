// Calls on a trainer that are refused or fail, alone and among ranks.
#include <array>
#include <functional>
#include <stdexcept>

#include "errors/areas.h"
#include "errors/jobs.h"
#include "trainer/net.h"

namespace errors_test::trainer_calls {
namespace {

const net::Shape shape;

tutti::TrainerSpec external_spec() {
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.external_autograd = 1;
    tutti::TrainerSpec spec;
    spec.options = options;
    spec.forward = [](tutti::Model& m, double) {
        m.parameter<float>("p", {4});
        m.computed<float>("c", {4});
        return tutti::Losses{};
    };
    spec.update = [](tutti::Model&, double) {};
    return spec;
}

struct Row {
    const char* what;
    const char* names;
    tutti_status (*call)(tutti_trainer* trainer);
    tutti_status status = TUTTI_ERR_INVALID;
};

template <std::size_t N>
void take_all(Ledger& ledger, const tutti::Trainer& trainer, const Row (&rows)[N]) {
    for (const Row& row : rows)
        ledger.take_trainer(row.what, row.call(trainer.get()), {row.status, row.names});
}

constexpr Row before_sync[] = {
    {"a step before the first synchronisation", "tutti_trainer_step",
     [](tutti_trainer* t) { return tutti_trainer_step(t, nullptr, nullptr); }},
};

constexpr Row rows[] = {
    {"a step of external gradients that is not", "tutti_trainer_begin",
     [](tutti_trainer* t) { return tutti_trainer_begin(t); }},
    {"a gradient outside of a step", "layer1/w",
     [](tutti_trainer* t) { return tutti_trainer_grad_ready(t, 0, "layer1/w"); }},
    {"the end of no step", "tutti_trainer_finish",
     [](tutti_trainer* t) { return tutti_trainer_finish(t); }},
    {"a recovery that is not set", "recovery.recover",
     [](tutti_trainer* t) { return tutti_trainer_recover(t); }},
    {"tutti_trainer_admit without recover", "recovery.recover is not set",
     [](tutti_trainer* t) { return tutti_trainer_admit(t, 1); }},
    {"a buffer that there is not", "nowhere",
     [](tutti_trainer* t) {
         tutti_buffer_info info{};
         info.struct_size = sizeof info;
         return tutti_trainer_find(t, 0, "nowhere", &info);
     }},
    {"a device that there is not", "device 5",
     [](tutti_trainer* t) {
         tutti_buffer_info info{};
         info.struct_size = sizeof info;
         return tutti_trainer_find(t, 5, "layer1/w", &info);
     }},
    {"a description of no size", "tutti_trainer_find",
     [](tutti_trainer* t) {
         tutti_buffer_info info{};
         return tutti_trainer_find(t, 0, "layer1/w", &info);
     }},
    {"a buffer past the last", "tutti_trainer_buffer_info",
     [](tutti_trainer* t) {
         tutti_buffer_info info{};
         info.struct_size = sizeof info;
         return tutti_trainer_buffer_info(t, 0, 999, &info);
     }},
    {"a read of another size", "layer1/w",
     [](tutti_trainer* t) {
         char byte = 0;
         return tutti_trainer_read(t, 0, "layer1/w", &byte, 1);
     }},
    {"a write of another size", "layer1/w",
     [](tutti_trainer* t) {
         const char byte = 0;
         return tutti_trainer_write(t, 0, "layer1/w", &byte, 1);
     }},
    {"a scope that there is not", "device_7",
     [](tutti_trainer* t) {
         return tutti_trainer_param_count(t, "device_7") == -1 ? TUTTI_ERR_INVALID : TUTTI_OK;
     }},
    {"a parameter past the last", "999",
     [](tutti_trainer* t) {
         tutti_buffer_info info{};
         info.struct_size = sizeof info;
         return tutti_trainer_param(t, "", 999, &info);
     }},
    {"counters of no size", "tutti_trainer_count",
     [](tutti_trainer* t) {
         tutti_trainer_counters counters{};
         return tutti_trainer_count(t, &counters);
     }},
    {"the bytes of no parameter", "nowhere",
     [](tutti_trainer* t) {
         uint64_t bytes = 0;
         return tutti_trainer_reduced_bytes(t, "nowhere", &bytes);
     }},
    {"rows of no sharded table", "layer1/w",
     [](tutti_trainer* t) {
         const int64_t row = 0;
         float values[64];
         return tutti_trainer_sparse_pull(t, "layer1/w", 100, &row, 1, values);
     }},
    {"a checkpoint that there is not", "/nonexistent/model",
     [](tutti_trainer* t) { return tutti_trainer_load(t, "/nonexistent/model", nullptr); },
     TUTTI_ERR_SYSTEM},
    {"a checkpoint in no folder", "/nonexistent/model",
     [](tutti_trainer* t) { return tutti_trainer_save(t, "/nonexistent/model"); },
     TUTTI_ERR_SYSTEM},
};

constexpr Row external_rows[] = {
    {"a step with external gradients", "tutti_trainer_step",
     [](tutti_trainer* t) { return tutti_trainer_step(t, nullptr, nullptr); }},
    {"a step that begins twice", "tutti_trainer_begin",
     [](tutti_trainer* t) {
         tutti_trainer_begin(t);
         return tutti_trainer_begin(t);
     }},
    {"a gradient of no parameter", "'device_0/c'",
     [](tutti_trainer* t) { return tutti_trainer_grad_ready(t, 0, "c"); }},
    {"a gradient that is ready twice", "'p'",
     [](tutti_trainer* t) {
         tutti_trainer_grad_ready(t, 0, "p");
         return tutti_trainer_grad_ready(t, 0, "p");
     }},
};

void fail_in_steps(Ledger& ledger) {
    const auto failing = [](const char* name, const tutti::StepFunction& function) {
        tutti::TrainerSpec spec = net::spec<float>(shape, 1);
        spec.forward = [name = std::string(name), function, known = spec.forward](tutti::Model& m,
                                                                                  double scale) {
            m.operation(name, {m.find("x")}, {}, function);
            return known(m, scale);
        };
        return spec;
    };
    tutti::Trainer throwing(
        failing("bad", [](const tutti::Step&) { throw std::runtime_error("the disk is full"); }));
    throwing.init_sync();
    ledger.take_trainer("an operation that throws",
                        tutti_trainer_step(throwing.get(), nullptr, nullptr),
                        {TUTTI_ERR_SYSTEM, "'device_0/bad'"});
    tutti_buffer undeclared = -1;
    tutti::TrainerSpec spec =
        failing("greedy", [&](const tutti::Step& s) { (void)s.data<float>(undeclared); });
    spec.forward = [&, known = spec.forward](tutti::Model& m, double scale) {
        tutti::Losses losses = known(m, scale);
        undeclared = m.find("target");
        return losses;
    };
    tutti::Trainer greedy(std::move(spec));
    greedy.init_sync();
    ledger.take_trainer("an operation that takes what it did not declare",
                        tutti_trainer_step(greedy.get(), nullptr, nullptr),
                        {.names = "'device_0/greedy'"});
}

void give_bad_samples(Ledger& ledger) {
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    options.uneven = 1;
    tutti::Trainer trainer(net::spec<float>(shape, 1, nullptr, options));
    trainer.init_sync();
    ledger.take_trainer("uneven samples that are missing",
                        tutti_trainer_step(trainer.get(), nullptr, nullptr), {.names = "samples"});
    const int64_t negative = -3;
    ledger.take_trainer("negative samples", tutti_trainer_step(trainer.get(), &negative, nullptr),
                        {.names = "samples[0]"});
}

// Rank 1 calls something else, then leaves while rank 0 steps on.
void part_ways(Ledger& ledger) {
    run_job(ledger, "trainers that part ways", {}, [&](tutti_comm* comm, int rank) {
        tutti::Trainer trainer(net::spec<float>(shape, 1, comm));
        trainer.init_sync();
        if (rank == 1) return;
        ledger.take_trainer("a step that a rank has left",
                            tutti_trainer_step(trainer.get(), nullptr, nullptr),
                            {TUTTI_ERR_PEER_LOST, "tutti_trainer_step", -1, 1});
        ledger.take_trainer("a step after that",
                            tutti_trainer_step(trainer.get(), nullptr, nullptr),
                            {TUTTI_ERR_ABORTED, "tutti_trainer_step"});
    });
    run_job(ledger, "trainers that differ", {}, [&](tutti_comm* comm, int rank) {
        tutti::Trainer trainer(net::spec<float>(shape, 1, comm));
        trainer.init_sync();
        const tutti_status status = rank == 0
                                        ? tutti_trainer_epoch_barrier(trainer.get())
                                        : tutti_trainer_save(trainer.get(), "/nonexistent/model");
        ledger.take_trainer("a barrier and a save, on rank " + std::to_string(rank), status,
                            {TUTTI_ERR_MISMATCH, "tutti_trainer_", -1, 1 - rank});
    });
}

}  // namespace

void provoke_trainer_calls(Ledger& ledger) {
    tutti::Trainer trainer(net::spec<float>(shape, 1));
    take_all(ledger, trainer, before_sync);
    trainer.init_sync();
    take_all(ledger, trainer, rows);
    tutti::Trainer external(external_spec());
    external.init_sync();
    take_all(ledger, external, external_rows);
    fail_in_steps(ledger);
    give_bad_samples(ledger);
    part_ways(ledger);
}

}  // namespace errors_test::trainer_calls
