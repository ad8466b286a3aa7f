// two_devices: the smallest program that trains on two devices: one process, a line through points.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <exception>

#include "tutti/trainer.hpp"

namespace {

constexpr double true_slope = 3, true_offset = -1;
constexpr int64_t samples = 8;  // of each device and step
constexpr int steps = 300;

// Each device has points of its own: x from 0 to 1 in its own steps.
void build_input(tutti::Model& m) {
    const tutti_buffer x = m.input<double>("x", {samples}), y = m.input<double>("y", {samples});
    const int device = m.device(), devices = m.replicas();
    m.operation("read", {}, {x, y}, [=](const tutti::Step& s) {
        for (int64_t i = 0; i < samples; ++i) {
            const double at =
                static_cast<double>(i * devices + device) / static_cast<double>(samples * devices);
            s.data<double>(x)[i] = at;
            s.data<double>(y)[i] = true_slope * at + true_offset;
        }
    });
}

// The mean square error of w[0] x + w[1], in one operation.
tutti::Losses build_forward(tutti::Model& m, double loss_scale) {
    const tutti_buffer x = m.find("x"), y = m.find("y");
    const tutti_buffer w = m.parameter<double>("w", {2});
    const tutti_buffer loss = m.activation<double>("loss", {1});
    const double scale = loss_scale / samples;
    m.operation(
        "line", {x, y, w}, {loss},
        [=](const tutti::Step& s) {
            const double* line = s.data<double>(w);
            double sum = 0;
            for (int64_t i = 0; i < samples; ++i)
                sum += std::pow(line[0] * s.data<double>(x)[i] + line[1] - s.data<double>(y)[i], 2);
            *s.data<double>(loss) = scale * sum;
        },
        [=](const tutti::Step& s) {
            const double* line = s.data<double>(w);
            double* gradient = s.gradient<double>(w);
            for (int64_t i = 0; i < samples; ++i) {
                const double at = s.data<double>(x)[i];
                const double error = line[0] * at + line[1] - s.data<double>(y)[i];
                gradient[0] += *s.gradient<double>(loss) * scale * 2 * error * at;
                gradient[1] += *s.gradient<double>(loss) * scale * 2 * error;
            }
        });
    return {loss};
}

void build_update(tutti::Model& m, double lr_scale) {
    const tutti_buffer w = m.find("w"), g = m.gradient(w), lr = m.learning_rate(0.5);
    m.operation("sgd", {w, g, lr}, {w}, [=](const tutti::Step& s) {
        for (int i = 0; i < 2; ++i)
            s.data<double>(w)[i] -= lr_scale * *s.data<double>(lr) * s.data<double>(g)[i];
    });
}

int train(bool dag) {
    tutti::TrainerSpec spec;
    spec.devices = 2;
    spec.input = build_input;
    spec.forward = build_forward;
    spec.update = build_update;
    spec.options.execution = dag ? TUTTI_EXECUTION_DAG : TUTTI_EXECUTION_SERIAL;
    tutti::Trainer trainer(std::move(spec));
    trainer.init_sync();
    for (int i = 0; i < steps; ++i) trainer.step();
    const auto first = trainer.read<double>(0, "w"), second = trainer.read<double>(1, "w");
    fmt::print("two_devices: {:.6f} x {:+.6f} on device 0, {:.6f} x {:+.6f} on device 1\n",
               first[0], first[1], second[0], second[1]);
    const bool learnt =
        std::fabs(first[0] - true_slope) < 1e-3 && std::fabs(first[1] - true_offset) < 1e-3;
    return first == second && learnt ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::string execution = "serial";
        CLI::App app("Fits a line on two devices.", "two_devices");
        app.add_option("--execution", execution,
                       "order of execution: serial or dag (default serial)")
            ->check(CLI::IsMember({"serial", "dag"}));
        CLI11_PARSE(app, argc, argv);
        return train(execution == "dag");
    } catch (const std::exception& error) {
        fmt::print(stderr, "two_devices: {}\n", error.what());
        return 1;
    }
}
