// Row 8: sparse gradients come to what dense ones do; rows are pulled from sharded tables.
#include <functional>

#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

using ranks::require;

constexpr int64_t rows = 20, width = 3, picks = 6;

// The rows that a replica's micro-batch looks up: few, some twice, some shared with other replicas.
int64_t pick(const tutti::Step& s, int replica, int64_t i) {
    return (s.iteration() * 7 + s.micro_batch() * 5 + replica * 3 + i * i) % rows;
}

/// loss = scale × sum over picked rows of |row - target|²; plain SGD.
tutti::TrainerSpec lookup(bool sparse, int devices, tutti_comm* comm, int micro_batches) {
    tutti::TrainerSpec spec;
    spec.devices = devices;
    spec.comm = comm;
    spec.options.micro_batches = micro_batches;
    spec.forward = [=](tutti::Model& m, double scale) {
        const tutti::Shape shape = {rows, width};
        const auto list = sparse ? m.sparse_parameter<double>("table", shape, picks)
                                 : tutti::Model::Sparse{m.parameter<double>("table", shape)};
        const tutti_buffer table = list.parameter, loss = m.activation<double>("loss", {1});
        const int replica = m.replica();
        m.operation(
            "lookup", {table}, {loss}, [=](const tutti::Step& s) { *s.data<double>(loss) = 0; },
            [=](const tutti::Step& s) {
                for (int64_t i = 0; i < picks; ++i) {
                    const int64_t row = pick(s, replica, i);
                    double* g = s.gradient<double>(table) + row * width;
                    if (sparse) {
                        int64_t& count = *s.data<int64_t>(list.count);
                        s.data<int64_t>(list.rows)[count] = row;
                        g = s.data<double>(list.values) + count++ * width;
                        std::fill(g, g + width, 0.0);
                    }
                    for (int64_t k = 0; k < width; ++k)
                        g[k] += *s.gradient<double>(loss) * scale *
                                (s.data<double>(table)[row * width + k] -
                                 net::noise(static_cast<uint64_t>(replica + k)));
                }
            });
        return tutti::Losses{loss};
    };
    spec.update = [=](tutti::Model& m, double) {
        const tutti_buffer table = m.find("table");
        if (!sparse) {
            const tutti_buffer g = m.gradient(table);
            m.operation("sgd", {table, g}, {table}, [=](const tutti::Step& s) {
                for (int64_t i = 0; i < rows * width; ++i)
                    s.data<double>(table)[i] -= 0.3 * s.data<double>(g)[i];
            });
            return;
        }
        const auto list = m.sparse(table);
        m.operation("sgd", {table, list.values, list.rows, list.count}, {table},
                    [=](const tutti::Step& s) {
                        int64_t last = -1;
                        for (int64_t i = 0; i < *s.data<int64_t>(list.count); ++i) {
                            const int64_t row = s.data<int64_t>(list.rows)[i];
                            if (row <= last) throw std::runtime_error("rows are out of order");
                            last = row;
                            for (int64_t k = 0; k < width; ++k)
                                s.data<double>(table)[row * width + k] -=
                                    0.3 * s.data<double>(list.values)[i * width + k];
                        }
                    });
    };
    return spec;
}

std::vector<double> trained(bool sparse, int devices, tutti_comm* comm, int micro_batches,
                            const std::vector<tutti_device*>& own_devices = {},
                            int fixed_order = 0) {
    tutti::TrainerSpec spec = lookup(sparse, devices, comm, micro_batches);
    spec.own_devices = own_devices;
    spec.options.fixed_order = fixed_order;
    tutti::Trainer trainer(std::move(spec));
    trainer.init_sync();
    for (int i = 0; i < 10; ++i) trainer.step();
    const auto first = trainer.read<double>(0, "table");
    for (int d = 1; d < devices; ++d)
        require(trainer.read<double>(d, "table") == first, "devices differ");
    return first;
}

using Lists = tutti::Model::Sparse;

/// The error texts of two ranks after a step with lists that `fill` has filled.
std::vector<std::string> step_of_two(
    const std::function<void(const Lists&, const tutti::Step&, int rank)>& fill) {
    return ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti::TrainerSpec spec = lookup(true, 1, comm, 1);
        spec.forward = [&](tutti::Model& m, double) {
            const Lists list = m.sparse_parameter<double>("table", {rows, width}, picks);
            const tutti_buffer loss = m.activation<double>("loss", {1});
            m.operation(
                "fill", {list.parameter}, {loss}, [](const tutti::Step&) {},
                [&fill, list, rank](const tutti::Step& s) { fill(list, s, rank); });
            return tutti::Losses{loss};
        };
        tutti::Trainer trainer(std::move(spec));
        trainer.init_sync();
        trainer.step();
    });
}

}  // namespace

TEST_CASE("sparse: gradients of rows come to what dense gradients come to") {
    for (int micro_batches : {1, 3})
        for (int devices : {1, 2})
            for (int count : {1, 3})
                expect::no_problem(ranks::run(count, [&](tutti_comm* comm, int) {
                    const auto dense = trained(false, devices, comm, micro_batches);
                    const auto sparse = trained(true, devices, comm, micro_batches);
                    require(net::largest_difference(dense, std::vector<double>(60)) > 0.1, "zero");
                    require(net::largest_difference(dense, sparse) < 1e-12, "another sum");
                    const auto fixed = trained(true, devices, comm, micro_batches, {}, 1);
                    require(fixed == sparse, "a fixed order has another sum");
                    const card::Cards cards(devices);
                    require(trained(true, devices, comm, micro_batches, cards.devices) == sparse,
                            "cards have another sum");
                }));
}

TEST_CASE("sparse: a step sets how many entries there are to zero, not their room") {
    card::Cards cards(1);
    tutti::TrainerSpec spec = lookup(true, 1, nullptr, 2);
    spec.own_devices = cards.devices;
    tutti::Trainer trainer(std::move(spec));
    trainer.init_sync();
    trainer.step();
    const size_t before = cards[0].bytes_zeroed;
    trainer.step();
    REQUIRE(cards[0].bytes_zeroed - before < 2 * picks * sizeof(int64_t));
}

TEST_CASE("sparse: what was reduced are the lists, also beside dense parameters") {
    for (const bool beside_dense : {false, true})
        for (const int devices : {1, 2})
            expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
                tutti::TrainerSpec spec = lookup(true, devices, comm, 2);
                const auto forward = spec.forward;
                spec.forward = [&](tutti::Model& m, double scale) {
                    if (beside_dense) m.parameter<double>("dense", {rows, width});
                    return forward(m, scale);
                };
                tutti::Trainer trainer(std::move(spec));
                trainer.init_sync();
                require(trainer.reduced_bytes("table") == 0, "before the first step");
                for (int i = 0; i < 3; ++i) trainer.step();
                constexpr uint64_t entry = sizeof(int64_t) + width * sizeof(double);
                const auto replicas = static_cast<uint64_t>(2 * devices);
                require(trainer.reduced_bytes("table") == 3 * replicas * 2 * picks * entry,
                        std::to_string(trainer.reduced_bytes("table")) + " bytes");
            }));
    tutti::Trainer alone(lookup(true, 1, nullptr, 1));
    alone.init_sync();
    alone.step();
    REQUIRE(alone.reduced_bytes("table") == 0);
}

TEST_CASE("sparse: a list longer than its room is an error on every rank") {
    const auto problems = step_of_two([](const Lists& list, const tutti::Step& s, int rank) {
        *s.data<int64_t>(list.count) = rank == 1 ? 2 * picks + 1 : 2 * picks;
    });
    for (const std::string& problem : problems)
        expect::words(problem, "'table_grad' of rank 1 has more entries than sparse_rows allows");
}

TEST_CASE("sparse: lists that together have more rows than the room are an error on every rank") {
    const auto problems = step_of_two([](const Lists& list, const tutti::Step& s, int rank) {
        for (int64_t i = 0; i < picks + 1; ++i)
            s.data<int64_t>(list.rows)[i] = rank * (picks + 1) + i;
        *s.data<int64_t>(list.count) = picks + 1;
    });
    for (const std::string& problem : problems)
        expect::words(problem, "'table_grad' has 14 rows of all ranks together, more than the 12");
}

TEST_CASE("sparse: pull fetches any rows of a sharded table, for each rank its own") {
    constexpr int64_t all = 11;  // over 4 replicas: 3, 3, 3 and 2
    expect::no_problem(ranks::run(2, [](tutti_comm* comm, int rank) {
        tutti::TrainerSpec spec;
        const card::Cards cards(2);
        if (rank == 1) spec.own_devices = cards.devices;
        spec.devices = 2;
        spec.comm = comm;
        spec.forward = [](tutti::Model& m, double) {
            const int64_t own = m.replica() == 3 ? 2 : 3;
            m.parameter<float>("table", {own, width}, TUTTI_DISTRIBUTED);
            return tutti::Losses{m.activation<float>("loss", {1})};
        };
        tutti::Trainer trainer(std::move(spec));
        for (int d = 0; d < 2; ++d) {
            std::vector<float> values = trainer.read<float>(d, "table");
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = static_cast<float>((rank * 2 + d) * 3 * width) + static_cast<float>(i);
            trainer.write(d, "table", values);
        }
        trainer.init_sync();
        const std::vector<int64_t> wanted =
            rank == 0 ? std::vector<int64_t>{10, 0, 4, 4, 7} : std::vector<int64_t>{2};
        const auto got = trainer.sparse_pull<float>("table", all, wanted, width);
        for (std::size_t i = 0; i < wanted.size(); ++i)
            for (int64_t k = 0; k < width; ++k)
                require(got[i * width + static_cast<std::size_t>(k)] ==
                            static_cast<float>(wanted[i] * width + k),
                        "a wrong row");
        require(trainer.sparse_pull<float>("table", all, {}, width).empty(), "rows from nowhere");
        const auto narrow = [&] { trainer.sparse_pull<float>("table", all, wanted, width - 1); };
        const auto wide = [&] { trainer.sparse_pull<double>("table", all, wanted, width); };
        require(expect::error_of(narrow).find("12 bytes, not 2 elements of 4") != std::string::npos,
                "rows that are longer");
        require(expect::error_of(wide).find("12 bytes, not 3 elements of 8") != std::string::npos,
                "rows of another type");
        std::string text = "no error";
        try {
            trainer.sparse_pull<float>("table", all, {rank == 1 ? all : 0}, width);
        } catch (const tutti::Error& error) {
            text = error.what();
        }
        require(
            text.find(rank == 1 ? "row 11 is out of range: the table has 11 rows"
                                : "rank 1 passed arguments that do not fit") != std::string::npos,
            text);
        trainer.sparse_pull<float>("table", all, wanted, width);  // and it works on
    }));
}
