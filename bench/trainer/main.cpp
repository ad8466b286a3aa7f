// tutti-trainer-bench: the trainer layer's overhead over hand-written collectives, and the share of
// the communication that it hides. Run it with tutti-run -n 2 (overhead), or with ./overlap
// (overlap).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "bench/command_line.h"
#include "bench/complain.h"
#include "bench/median.h"
#include "tutti/trainer.hpp"
#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int warm_up_turns = 3;  // they bind the plans and touch the pages

struct Options {
    int layers = 16;
    std::size_t layer_bytes = std::size_t{1} << 20;
    double compute_ms = 300;               // overlap: of a step; a third of it is forward
    int rounds = 4;                        // overhead: passes over a layer's parameters, forward
    int turns = 201;                       // overhead: each has one step
    int blocks = 15, steps_per_block = 8;  // overlap
    bool dag = false;
    double at_least = 0;  // overlap: fail if a smaller share is hidden

    std::size_t count() const { return layer_bytes / sizeof(float); }
};

double milliseconds(Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

// Stands for a layer's arithmetic: reads parameters, writes as many values. Not inlined, so that
// one and the same code is measured in both places.
[[gnu::noinline]] void work(const float* in, float* out, std::size_t count, int rounds) {
    for (int r = 0; r < rounds; ++r)
        for (std::size_t i = 0; i < count; ++i) out[i] = out[i] * 0.5f + in[i] * 0.25f;
}

[[gnu::noinline]] void sgd(float* parameters, const float* gradient, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) parameters[i] -= 0.001f * gradient[i];
}

void sleep_ms(double ms) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

struct Layer {
    tutti_buffer w, y, values;
};

using LayerFunction = std::function<void(const tutti::Step&, const Layer&)>;

/// A chain of layers, each with parameters of its own.
tutti::TrainerSpec chain(const Options& o, tutti_comm* comm, const LayerFunction& forward,
                         const LayerFunction& backward, bool updates) {
    tutti::TrainerSpec spec;
    spec.comm = comm;
    spec.options.execution = o.dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
    spec.options.bucket_bytes = spec.options.first_bucket_bytes = o.layer_bytes;
    const auto count = static_cast<int64_t>(o.count());
    spec.forward = [=](tutti::Model& m, double) {
        tutti_buffer x = -1;
        for (int l = 0; l < o.layers; ++l) {
            const std::string name = "layer" + std::to_string(l);
            const Layer layer{m.parameter<float>(name, {count}),
                              m.activation<float>(name + ".y", {1}),
                              m.activation<float>(name + ".values", {count})};
            std::vector<tutti_buffer> reads = {layer.w};
            if (x >= 0) reads.push_back(x);
            m.operation(
                name, reads, {layer.y, layer.values},
                [=](const tutti::Step& s) { forward(s, layer); },
                [=](const tutti::Step& s) { backward(s, layer); });
            x = layer.y;
        }
        return tutti::Losses{x};
    };
    spec.update = [=](tutti::Model& m, double) {
        for (int l = 0; updates && l < o.layers; ++l) {
            const std::string name = "layer" + std::to_string(l);
            const tutti_buffer w = m.find(name), g = m.gradient(w);
            m.operation("update." + name, {w, g}, {w}, [=](const tutti::Step& s) {
                sgd(s.data<float>(w), s.data<float>(g), static_cast<std::size_t>(count));
            });
        }
    };
    return spec;
}

/// The same step without the trainer layer. It uses the trainer's own buffers, because the
/// addresses of buffers change the arithmetic's time by more than the measured overhead.
class ByHand {
public:
    ByHand(const Options& o, tutti_comm* comm, const tutti::Trainer& trainer) : o_(o), comm_(comm) {
        const auto at = [&](const std::string& name) {
            return static_cast<float*>(trainer.find(0, name).data);
        };
        for (int l = 0; l < o.layers; ++l) {
            const std::string name = "layer" + std::to_string(l);
            layers_.push_back({at(name), at(name + "_grad"), at(name + ".values")});
        }
    }

    void step() {
        const std::size_t n = o_.count();
        for (const Memory& l : layers_) work(l.parameters, l.values, n, o_.rounds);
        std::vector<tutti_request*> requests(layers_.size());
        std::size_t waited = layers_.size();
        const auto wait_oldest = [&] { tutti::check(tutti_wait(&requests[--waited], -1)); };
        for (std::size_t l = layers_.size(); l-- > 0;) {
            float* gradient = layers_[l].gradient;
            std::memset(gradient, 0, n * sizeof(float));
            work(layers_[l].parameters, gradient, n, 2 * o_.rounds);
            while (waited - l > 4) wait_oldest();  // the trainer layer has as many in flight
            tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
            opts.stream = static_cast<int>(l % 2);
            tutti::check(tutti_iallreduce(comm_, gradient, gradient, n, TUTTI_FLOAT32, TUTTI_SUM,
                                          &opts, &requests[l]));
        }
        while (waited > 0) wait_oldest();
        for (const Memory& l : layers_) sgd(l.parameters, l.gradient, n);
    }

private:
    struct Memory {
        float *parameters, *gradient, *values;
    };
    Options o_;
    tutti_comm* comm_;
    std::vector<Memory> layers_;
};

template <typename Step>
double step_ms(tutti::Communicator& comm, int steps, Step&& step) {
    comm.barrier();
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    return milliseconds(Clock::now() - start) / steps;
}

// Alternates single steps by hand and through the trainer layer, and changes their order in every
// turn, so that a disturbance affects both. The result is the median of the ratios.
int overhead(const Options& o) {
    tutti::Communicator comm;
    const std::size_t n = o.count();
    tutti::Trainer trainer(chain(
        o, comm.get(),
        [=](const tutti::Step& s, const Layer& l) {
            work(s.data<float>(l.w), s.data<float>(l.values), n, o.rounds);
        },
        [=](const tutti::Step& s, const Layer& l) {
            work(s.data<float>(l.w), s.gradient<float>(l.w), n, 2 * o.rounds);
        },
        true));
    trainer.init_sync();
    ByHand by_hand(o, comm.get(), trainer);
    std::vector<double> layer, hand, ratios;
    double with = 0, without = 0;
    const auto layer_turn = [&] { with = step_ms(comm, 1, [&] { trainer.step(); }); };
    const auto hand_turn = [&] { without = step_ms(comm, 1, [&] { by_hand.step(); }); };
    for (int turn = 0; turn < o.turns + warm_up_turns; ++turn) {
        if (turn % 2 == 0) layer_turn();
        hand_turn();
        if (turn % 2 != 0) layer_turn();
        if (turn < warm_up_turns) continue;
        layer.push_back(with);
        hand.push_back(without);
        ratios.push_back(with / without);
    }
    if (comm.rank() == 0)
        fmt::print(
            "overhead: {} layers of {} bytes, {}: by hand {:.3f} ms, layer {:.3f} ms a step, "
            "ratio {:.4f} (quartiles {:.4f} and {:.4f} of {} turns)\n",
            o.layers, o.layer_bytes, o.dag ? "dag" : "serial", bench::median(hand),
            bench::median(layer), bench::median(ratios), quantile(ratios, 0.25),
            quantile(ratios, 0.75), ratios.size());
    return 0;
}

double chain_ms(const Options& o, tutti::Communicator& comm, tutti_comm* of_trainer,
                double compute_ms) {
    const double each = compute_ms / 3 / o.layers;
    tutti::Trainer trainer(chain(
        o, of_trainer, [=](const tutti::Step&, const Layer&) { sleep_ms(each); },
        [=](const tutti::Step&, const Layer&) { sleep_ms(2 * each); }, false));
    trainer.init_sync();
    trainer.step();
    std::vector<double> times;
    for (int b = 0; b < o.blocks; ++b)
        times.push_back(step_ms(comm, o.steps_per_block, [&] { trainer.step(); }));
    return bench::median(times);
}

// The operations of the model sleep: as with a GPU that computes, the processor is free.
int overlap(const Options& o) {
    tutti::Communicator comm;
    const double compute = chain_ms(o, comm, nullptr, o.compute_ms);
    const double communication = chain_ms(o, comm, comm.get(), 0);
    const double both = chain_ms(o, comm, comm.get(), o.compute_ms);
    const double hidden = 1 - (both - compute) / communication;
    if (comm.rank() == 0)
        fmt::print(
            "overlap: {} layers of {} bytes, {}: compute {:.1f} ms, communication {:.1f} ms, "
            "step {:.1f} ms, hidden {:.3f}\n",
            o.layers, o.layer_bytes, o.dag ? "dag" : "serial", compute, communication, both,
            hidden);
    return hidden >= o.at_least ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Options o;
        CLI::App app(
            "Measures what a step of the trainer layer costs beside hand-written collectives, and "
            "how much of the communication it hides behind computation.",
            "tutti-trainer-bench");
        app.footer(
            "Examples:\n"
            "  tutti-run -n 2 tutti-trainer-bench overhead --execution dag\n"
            "  bench/trainer/overlap tutti-trainer-bench   (makes network namespaces)");
        std::string what = "overhead", execution = "serial";
        app.add_option("what", what, "measurement: overhead or overlap (default overhead)")
            ->check(CLI::IsMember({"overhead", "overlap"}));
        app.add_option("--layers", o.layers, "number of layers with parameters (default 16)");
        app.add_option("--layer-bytes", o.layer_bytes,
                       "bytes of parameters of each layer (default 1 MiB)");
        app.add_option("--compute-ms", o.compute_ms,
                       "overlap: computing time of a step in ms (default 300)");
        app.add_option("--rounds", o.rounds,
                       "overhead: passes of arithmetic in each step (default 4)");
        app.add_option("--turns", o.turns, "overhead: number of turns of one step (default 201)")
            ->check(command_line::positive);
        app.add_option("--blocks", o.blocks, "overlap: number of blocks (default 15)")
            ->check(command_line::positive);
        app.add_option("--steps", o.steps_per_block, "overlap: steps in a block (default 8)")
            ->check(command_line::positive);
        app.add_option(
            "--at-least", o.at_least,
            "overlap: fail if a smaller share of the communication is hidden (default 0)");
        app.add_option("--execution", execution,
                       "order of execution: serial or dag (default serial)")
            ->check(CLI::IsMember({"serial", "dag"}));
        if (const auto code = command_line::parse(app, argc, argv, [] {})) return *code;
        o.dag = execution == "dag";
        return what == "overlap" ? overlap(o) : overhead(o);
    } catch (const std::exception& error) {
        command_line::complain("tutti-trainer-bench", error.what());
        return 1;
    }
}
