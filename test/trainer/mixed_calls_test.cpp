// Ranks that call different functions of one trainer: each hears what the others called.
#include "support/catch.h"
#include "trainer/ranks.h"
#include "tutti/checkpoint.hpp"  // beside trainer.hpp
#include "tutti/trainer.hpp"

namespace {

using ranks::require;

// If it averages every second step only, the first step's one collective is the broadcast of the
// statistics, which differs from a synchronisation's broadcast of the parameter only by its name.
tutti::TrainerSpec spec(tutti_comm* comm, int local_steps) {
    tutti::TrainerSpec spec;
    spec.comm = comm;
    spec.options.local_steps = local_steps;
    spec.forward = [](tutti::Model& m, double) {
        constexpr int64_t width = 4;
        const tutti_buffer p = m.parameter<float>("p", {width});
        const tutti_buffer mean = m.computed<float>("mean", {width});
        const tutti_buffer loss = m.activation<float>("loss", {1});
        m.operation(
            "sum", {p, mean}, {loss, mean},
            [=](const tutti::Step& s) { *s.data<float>(loss) = *s.data<float>(p); },
            [=](const tutti::Step& s) { *s.gradient<float>(p) += *s.gradient<float>(loss); });
        return tutti::Losses{loss};
    };
    spec.update = [](tutti::Model& m, double) {
        const tutti_buffer p = m.find("p"), g = m.gradient(p);
        m.operation("update", {p, g}, {p},
                    [=](const tutti::Step& s) { *s.data<float>(p) -= *s.data<float>(g); });
    };
    return spec;
}

struct Function {
    std::string name;  // as the other ranks print it
    std::function<void(tutti::Trainer&, const std::string& path)> call;
    bool ends_trainer = false;
};

const std::vector<Function>& functions() {
    static const std::vector<Function> all = {
        {"'trainer step'", [](auto& trainer, auto&) { trainer.step(); }, true},
        {"'trainer sync'", [](auto& trainer, auto&) { trainer.sync(); }},
        {"'epoch barrier'", [](auto& trainer, auto&) { trainer.epoch_barrier(); }},
        {"'checkpoint save'", [](auto& trainer, auto& path) { trainer.save(path); }},
    };
    return all;
}

void call_both(tutti::Communicator& comm, const Function& one, const Function& other, int odd,
               int local_steps, const std::string& path) {
    const std::string pair = one.name + " on rank " + std::to_string(odd) + ", " + other.name;
    tutti::Trainer trainer(spec(comm.get(), local_steps));
    trainer.init_sync();
    comm.barrier();  // a step that fails ends what others are behind with, too
    const Function& own = comm.rank() == odd ? one : other;
    // A step that only broadcasts ends where a rank lacks nothing for it.
    const bool may_pass = own.ends_trainer && local_steps > 0;
    try {
        own.call(trainer, path);
        require(may_pass, pair + ": no error");
    } catch (const tutti::Error& error) {
        const std::string text = error.what();
        require(error.status() == TUTTI_ERR_MISMATCH, pair + ": " + text);
        require(text.find(one.name) != text.npos, pair + ": " + text);
        require(text.find(other.name) != text.npos, pair + ": " + text);
    }
    comm.barrier();  // a trainer that is gone compares nothing
    if (one.ends_trainer || other.ends_trainer) return;
    trainer.sync();
    trainer.step();
}

}  // namespace

TEST_CASE("mixed calls: every rank of a trainer hears the names of both functions") {
    const int local_steps = GENERATE(0, 2);
    const ranks::Folder folder;
    const auto body = [&](tutti::Communicator& comm) {
        for (const Function& one : functions())
            for (const Function& other : functions())
                for (int odd = 0; odd < comm.size(); ++odd)
                    if (one.name != other.name)
                        call_both(comm, one, other, odd, local_steps, folder.file("state"));
    };
    ranks::on_ranks(3, body, 20000);
}
