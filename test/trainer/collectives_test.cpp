// Rows 8 and 18: collectives as operations of a model, and their gradients by finite differences.
#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

using ranks::require;

constexpr int devices = 2;
constexpr int64_t per_replica = 3;

struct Case {
    const char* name;
    tutti_collective_kind kind;
    tutti_op op = TUTTI_SUM;
    int root = 0;
    tutti_backward_convention backward = TUTTI_BACKWARD_SUM;
};

constexpr Case cases[] = {
    {"sum", TUTTI_COLLECTIVE_ALLREDUCE},
    {"average", TUTTI_COLLECTIVE_ALLREDUCE, TUTTI_AVG},
    {"sum of one loss", TUTTI_COLLECTIVE_ALLREDUCE, TUTTI_SUM, 0, TUTTI_BACKWARD_COPY},
    {"broadcast", TUTTI_COLLECTIVE_BROADCAST, TUTTI_SUM, 1},
    {"reduce", TUTTI_COLLECTIVE_REDUCE, TUTTI_SUM, 1},
    {"allgather", TUTTI_COLLECTIVE_ALLGATHER},
    {"reduce-scatter", TUTTI_COLLECTIVE_REDUCE_SCATTER},
    {"reduce-scatter of averages", TUTTI_COLLECTIVE_REDUCE_SCATTER, TUTTI_AVG},
};

/// loss = sum of a[i] y[i]² with y = collective(p); p is each replica's own, a too, unless all
/// compute one and the same loss. If only the root has y, the others' losses are zero.
tutti::TrainerSpec through(const Case& c, tutti_comm* comm) {
    tutti::TrainerSpec spec;
    spec.devices = devices;
    spec.comm = comm;
    spec.forward = [=](tutti::Model& m, double) {
        const bool scatters = c.kind == TUTTI_COLLECTIVE_REDUCE_SCATTER;
        const int64_t in = scatters ? per_replica * m.replicas() : per_replica;
        const int64_t out =
            c.kind == TUTTI_COLLECTIVE_ALLGATHER ? per_replica * m.replicas() : per_replica;
        const tutti_buffer p = m.parameter<double>("p", {in}, TUTTI_DISTRIBUTED);
        const tutti_buffer y = m.activation<double>("y", {out});
        const tutti_buffer loss = m.activation<double>("loss", {1});
        tutti_collective_spec more = TUTTI_COLLECTIVE_SPEC_INIT;
        more.op = c.op;
        more.root = c.root;
        more.backward = c.backward;
        m.collective("exchange", c.kind, p, y, more);
        const uint64_t own = c.backward == TUTTI_BACKWARD_COPY ? 0 : 100 * m.replica();
        const bool counts = c.kind != TUTTI_COLLECTIVE_REDUCE || m.replica() == c.root;
        m.operation(
            "squares", {y}, {loss},
            [=](const tutti::Step& s) {
                double sum = 0;
                for (int64_t i = 0; counts && i < out; ++i)
                    sum += net::noise(own + i) * s.data<double>(y)[i] * s.data<double>(y)[i];
                *s.data<double>(loss) = sum;
            },
            [=](const tutti::Step& s) {
                for (int64_t i = 0; counts && i < out; ++i)
                    s.gradient<double>(y)[i] +=
                        *s.gradient<double>(loss) * 2 * net::noise(own + i) * s.data<double>(y)[i];
            });
        return tutti::Losses{loss};
    };
    spec.update = [](tutti::Model& m, double) { m.iteration(); };
    return spec;
}

double total_loss(tutti::Trainer& trainer, tutti_comm* comm, const Case& c) {
    trainer.step();
    double sum = 0;
    for (int d = 0; d < devices; ++d) sum += trainer.read<double>(d, "loss")[0];
    require(tutti_allreduce(comm, &sum, &sum, 1, TUTTI_FLOAT64, TUTTI_SUM) == TUTTI_OK, "sum");
    const int losses = c.backward == TUTTI_BACKWARD_COPY ? devices * tutti_comm_size(comm) : 1;
    return sum / losses;
}

void check_gradients(const Case& c, tutti_comm* comm,
                     const std::vector<tutti_device*>& own_devices = {}) {
    constexpr double step = 1e-5;
    tutti::TrainerSpec spec = through(c, comm);
    spec.own_devices = own_devices;
    tutti::Trainer trainer(std::move(spec));
    const int rank = tutti_comm_rank(comm), replicas = devices * tutti_comm_size(comm);
    std::vector<std::vector<double>> values;
    for (int d = 0; d < devices; ++d) {
        values.push_back(trainer.read<double>(d, "p"));
        for (std::size_t i = 0; i < values.back().size(); ++i)
            values.back()[i] = net::noise(500 + 100 * (rank * devices + d) + i);
        trainer.write(d, "p", values.back());
    }
    trainer.init_sync();
    total_loss(trainer, comm, c);
    std::vector<std::vector<double>> gradients;
    for (int d = 0; d < devices; ++d) gradients.push_back(trainer.read<double>(d, "p_grad"));
    double largest = 0;
    for (int replica = 0; replica < replicas; ++replica)
        for (std::size_t i = 0; i < values[0].size(); ++i) {
            const int d = replica % devices;
            const bool here = replica / devices == rank;
            double losses[2];
            for (int side : {0, 1}) {
                auto moved = values[d];
                moved[i] += side ? step : -step;
                if (here) trainer.write(d, "p", moved);
                losses[side] = total_loss(trainer, comm, c);
                if (here) trainer.write(d, "p", values[d]);
            }
            const double expected = (losses[1] - losses[0]) / (2 * step);
            largest = std::max(largest, std::fabs(expected));
            if (here)
                require(std::fabs(gradients[d][i] - expected) < 1e-6,
                        std::string(c.name) + ": " + std::to_string(gradients[d][i]) + " is not " +
                            std::to_string(expected));
        }
    require(largest > 1e-3, "every gradient is zero");
}

}  // namespace

TEST_CASE("collectives: gradients agree with finite differences") {
    for (const Case& c : cases)
        for (int count : {1, 2}) {
            INFO(c.name << " on " << count << " ranks");
            expect::no_problem(
                ranks::run(count, [&](tutti_comm* comm, int) { check_gradients(c, comm); }));
        }
}

TEST_CASE("collectives: the same on devices whose memory nothing, or no device, else reaches") {
    for (const auto memory : {TUTTI_MEMORY_OWN, TUTTI_MEMORY_REACHABLE})
        for (const Case& c : cases)
            for (int count : {1, 2}) {
                INFO(c.name << " on " << count << " ranks");
                expect::no_problem(ranks::run(count, [&](tutti_comm* comm, int) {
                    const card::Cards cards(devices, memory);
                    check_gradients(c, comm, cards.devices);
                }));
            }
}

TEST_CASE("collectives: max, min and prod have no gradient and say so") {
    for (tutti_op op : {TUTTI_MAX, TUTTI_MIN, TUTTI_PROD}) {
        const Case c{"refused", TUTTI_COLLECTIVE_ALLREDUCE, op};
        expect::error([&] { tutti::Trainer(through(c, nullptr)); },
                      "'device_0/exchange' with operator " + std::string(tutti_op_name(op)) +
                          " has no gradient");
        tutti::TrainerSpec forward_only = through(c, nullptr);
        forward_only.update = {};
        tutti::Trainer trainer(std::move(forward_only));
        trainer.write<double>(0, "p", {1, 5, 3});
        trainer.write<double>(1, "p", {4, 2, 3});
    }
}

TEST_CASE("collectives: devices that declare different ones are an error naming both") {
    tutti::TrainerSpec spec;
    spec.devices = 2;
    spec.forward = [](tutti::Model& m, double) {
        const tutti_buffer p = m.parameter<float>("p", {4});
        const tutti_buffer y = m.activation<float>("y", {4});
        if (m.device() == 0)
            m.collective("here", TUTTI_COLLECTIVE_ALLREDUCE, p, y);
        else
            m.collective("there", TUTTI_COLLECTIVE_BROADCAST, p, y);
        return tutti::Losses{y};
    };
    expect::error([&] { const tutti::Trainer trainer(spec); },
                  "allreduce 'device_0/here' of 16 bytes and broadcast 'device_1/there'");
}

// The loss needs an allreduce, so does its gradient; the optimiser clips by the norm of all
// replicas' gradients of a shard. Compared with the same in plain loops.
TEST_CASE("collectives: one step uses them in forward, backward and optimiser together") {
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        const Case c{"sum", TUTTI_COLLECTIVE_ALLREDUCE};
        tutti::TrainerSpec spec = through(c, comm);
        spec.options.execution = TUTTI_EXECUTION_DAG;
        spec.update = [](tutti::Model& m, double) {
            const tutti_buffer p = m.find("p"), g = m.gradient(p);
            const tutti_buffer own = m.state<double>("square", {1});
            const tutti_buffer all = m.state<double>("squares", {1});
            m.operation("square", {g}, {own}, [=](const tutti::Step& s) {
                double sum = 0;
                for (int64_t i = 0; i < per_replica; ++i)
                    sum += s.data<double>(g)[i] * s.data<double>(g)[i];
                *s.data<double>(own) = sum;
            });
            m.collective("norm", TUTTI_COLLECTIVE_ALLREDUCE, own, all);
            m.operation("update", {p, g, all}, {p}, [=](const tutti::Step& s) {
                for (int64_t i = 0; i < per_replica; ++i)
                    s.data<double>(p)[i] -=
                        0.1 * s.data<double>(g)[i] / std::sqrt(*s.data<double>(all));
            });
        };
        tutti::Trainer trainer(std::move(spec));
        const int replicas = 2 * devices;
        std::vector<std::vector<double>> p(replicas, std::vector<double>(per_replica));
        for (int r = 0; r < replicas; ++r)
            for (int64_t i = 0; i < per_replica; ++i) p[r][i] = net::noise(40 * r + i);
        for (int d = 0; d < devices; ++d) trainer.write(d, "p", p[rank * devices + d]);
        trainer.init_sync();
        for (int step = 0; step < 5; ++step) {
            trainer.step();
            std::vector<double> g(per_replica);  // the same for every replica
            double norm = 0;
            for (int64_t i = 0; i < per_replica; ++i) {
                double y = 0;
                for (int r = 0; r < replicas; ++r) y += p[r][i];
                for (int r = 0; r < replicas; ++r) g[i] += 2 * net::noise(100 * r + i) * y;
                norm += replicas * g[i] * g[i];
            }
            for (auto& values : p)
                for (int64_t i = 0; i < per_replica; ++i) values[i] -= 0.1 * g[i] / std::sqrt(norm);
            for (int d = 0; d < devices; ++d)
                require(net::largest_difference(trainer.read<double>(d, "p"),
                                                p[rank * devices + d]) < 1e-12,
                        "not what plain loops compute");
        }
    }));
}
