// Row 19: a trainer's state by scope, saved and restored with other numbers of devices and ranks.
#include <fstream>
#include <set>
#include <sstream>

#include "support/catch.h"
#include "trainer/expect.h"
#include "trainer/ranks.h"
#include "tutti/trainer.hpp"

namespace {

using ranks::require;

constexpr int64_t table_rows = 10, plain_rows = 7, columns = 2;

struct Variant {
    bool statistics = true;  // a computed parameter
    int64_t outputs = 3;
    bool asks_for_iteration = true;
};

void add_forward(tutti::Model& m, const Variant& v) {
    const int64_t each = (table_rows + m.replicas() - 1) / m.replicas();
    m.shard<float>("table", {each, columns}, table_rows);  // padded on the last replicas
    const int64_t begin = plain_rows * m.replica() / m.replicas();
    m.shard<double>("plain", {plain_rows * (m.replica() + 1) / m.replicas() - begin});
    m.enter("layer");
    m.parameter<float>("w", {v.outputs, columns});
    m.leave();
    if (v.statistics) m.computed<float>("running_mean", {columns});
}

tutti_buffer add_loss(tutti::Model& m, int64_t count) {
    const tutti_buffer w = m.find("layer/w"), loss = m.activation<float>("loss", {1});
    m.operation(
        "sum", {w}, {loss}, [=](const tutti::Step& s) { *s.data<float>(loss) = 0; },
        [=](const tutti::Step& s) {
            for (int64_t i = 0; i < count; ++i) s.gradient<float>(w)[i] += *s.gradient<float>(loss);
        });
    return loss;
}

tutti::TrainerSpec spec(int devices, tutti_comm* comm, const Variant& v = {}) {
    tutti::TrainerSpec spec{.devices = devices, .comm = comm};
    spec.forward = [v](tutti::Model& m, double) {
        add_forward(m, v);
        return tutti::Losses{add_loss(m, v.outputs * columns)};
    };
    spec.update = [v](tutti::Model& m, double lr_scale) {
        const tutti_buffer rate = m.learning_rate(0.25);
        if (v.asks_for_iteration) m.iteration();
        const tutti_buffer w = m.find("layer/w"), g = m.gradient(w);
        const tutti_buffer momentum = m.state<float>("layer.w.momentum", {v.outputs, columns});
        m.operation("sgd", {w, g, rate, momentum}, {w, momentum}, [=](const tutti::Step& s) {
            for (int64_t i = 0; i < v.outputs * columns; ++i) {
                float& way = s.data<float>(momentum)[i];
                way = 0.5f * way + s.data<float>(g)[i];
                s.data<float>(w)[i] -= static_cast<float>(*s.data<double>(rate) * lr_scale) * way;
            }
        });
    };
    return spec;
}

float table_value(int64_t row, int64_t column) {
    return static_cast<float>(100 * row + column + 1);
}

// Every replica's own rows; and what is common, on device 0 of rank 0.
void fill(tutti::Trainer& t, int devices, int rank) {
    for (int d = 0; d < devices; ++d) {
        const tutti_buffer_info info = t.find(d, "table");
        std::vector<float> rows = t.read<float>(d, "table");
        for (int64_t r = 0; r < info.own_rows; ++r)
            for (int64_t c = 0; c < columns; ++c)
                rows[static_cast<std::size_t>(r * columns + c)] =
                    table_value(info.first_row + r, c);
        t.write(d, "table", rows);
        std::vector<double> plain = t.read<double>(d, "plain");
        for (std::size_t i = 0; i < plain.size(); ++i)
            plain[i] = static_cast<double>(t.find(d, "plain").first_row) + static_cast<double>(i);
        t.write(d, "plain", plain);
    }
    if (rank != 0) return;
    t.write<float>(0, "layer/w", {1, 2, 3, 4, 5, 6});
    t.write<float>(0, "running_mean", {0.5f, -0.5f});
}

using Values = std::vector<std::vector<double>>;

Values common(const tutti::Trainer& t, int device) {
    const auto wide = [](const std::vector<float>& v) {
        return std::vector<double>(v.begin(), v.end());
    };
    return {wide(t.read<float>(device, "layer/w")),
            wide(t.read<float>(device, "running_mean")),
            wide(t.read<float>(device, "layer.w.momentum")),
            t.read<double>(device, "learning_rate"),
            {static_cast<double>(t.read<int64_t>(device, "iteration").front())}};
}

void require_shards(const tutti::Trainer& t, int devices) {
    for (int d = 0; d < devices; ++d) {
        const tutti_buffer_info info = t.find(d, "table");
        require(info.total_rows == table_rows, "rows of the table");
        const std::vector<float> rows = t.read<float>(d, "table");
        for (int64_t r = 0; r < info.own_rows; ++r)
            for (int64_t c = 0; c < columns; ++c)
                require(rows[static_cast<std::size_t>(r * columns + c)] ==
                            table_value(info.first_row + r, c),
                        "row " + std::to_string(info.first_row + r) + " of the table");
        const std::vector<double> plain = t.read<double>(d, "plain");
        for (std::size_t i = 0; i < plain.size(); ++i)
            require(plain[i] ==
                        static_cast<double>(t.find(d, "plain").first_row) + static_cast<double>(i),
                    "the shard without padding");
    }
}

/// Trains three steps on that many replicas and saves. The values that are common.
Values save(const std::string& path, int devices, tutti_comm* comm = nullptr, int rank = 0) {
    tutti::Trainer t(spec(devices, comm));
    fill(t, devices, rank);
    t.init_sync();
    for (int i = 0; i < 3; ++i) t.step();
    t.write<double>(0, "learning_rate", {0.125});
    t.sync();
    t.save(path);
    return common(t, 0);
}

void check_load(const std::string& path, const Values& saved, int devices, tutti_comm* comm) {
    tutti::Trainer t(spec(devices, comm));
    t.load(path);
    t.sync();
    for (int d = 0; d < devices; ++d) require(common(t, d) == saved, "values of a device");
    require_shards(t, devices);
    t.step();
    require(t.read<int64_t>(0, "iteration").front() == 4, "the iteration goes on");
}

std::string contents(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("trainer checkpoint: saved on 2 devices, restores on 1, 2 and 3, and on 2 ranks") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    const Values saved = save(path, 2);
    REQUIRE(saved.back().front() == 3);
    REQUIRE(saved[3].front() == 0.125);
    for (int devices : {1, 2, 3}) {
        INFO(devices << " devices");
        check_load(path, saved, devices, nullptr);
    }
    expect::no_problem(
        ranks::run(2, [&](tutti_comm* comm, int) { check_load(path, saved, 2, comm); }));
}

TEST_CASE("trainer checkpoint: saved on 2 ranks of 2 devices, restores on 3 ranks and on 1") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    Values saved;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        const Values own = save(path, 2, comm, rank);
        if (rank == 0) saved = own;
    }));
    check_load(path, saved, 1, nullptr);
    expect::no_problem(
        ranks::run(3, [&](tutti_comm* comm, int) { check_load(path, saved, 1, comm); }));
}

TEST_CASE("trainer checkpoint: what was trained on goes on to the same values") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    save(path, 2);
    const auto five_steps = [&](bool again) {
        tutti::Trainer t(spec(2, nullptr));
        t.load(path);
        for (int i = 0; i < 5; ++i) {
            if (again && i == 3) {
                t.save(path + ".later");
                tutti::Trainer other(spec(2, nullptr));
                other.load(path + ".later");
                other.step();
                other.step();
                return common(other, 1);
            }
            t.step();
        }
        return common(t, 1);
    };
    REQUIRE(five_steps(true) == five_steps(false));
}

TEST_CASE("trainer checkpoint: a file that is refused has changed nothing") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    save(path, 2);
    const std::string whole = contents(path);
    std::string flipped = whole;
    flipped[flipped.size() - 5] = static_cast<char>(flipped[flipped.size() - 5] ^ 1);
    tutti::Trainer t(spec(3, nullptr));
    fill(t, 3, 0);
    t.init_sync();
    t.step();
    const Values before = common(t, 2);
    for (const std::string& bad : {whole.substr(0, whole.size() / 2), flipped}) {
        std::ofstream(path + ".bad", std::ios::binary) << bad;
        expect::error([&] { t.load(path + ".bad"); }, ".bad");
        REQUIRE(common(t, 2) == before);
    }
    Variant wider;
    wider.outputs = 4;
    tutti::Trainer other(spec(1, nullptr, wider));
    expect::error([&] { other.load(path); }, "layer.w.momentum");
    REQUIRE(other.read<float>(0, "layer/w") == std::vector<float>(8, 0));
    REQUIRE(t.read<int64_t>(0, "iteration").front() == 1);
    t.step();  // works on
    expect::error([&] { t.load(path + ".absent"); }, ".absent");
}

TEST_CASE("trainer checkpoint: a computed parameter that the file lacks is named, unless allowed") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    Variant without;
    without.statistics = false;
    tutti::Trainer small(spec(1, nullptr, without));
    small.init_sync();
    small.save(path);
    tutti::Trainer t(spec(2, nullptr));
    t.write<float>(0, "running_mean", {7, 8});
    expect::error([&] { t.load(path); }, "running_mean");
    t.load(path, {.allow_missing = true});
    for (int d = 0; d < 2; ++d)  // rank 0's, on all
        REQUIRE(t.read<float>(d, "running_mean") == std::vector<float>{7, 8});
}

TEST_CASE("trainer checkpoint: every rank hears why a file was refused") {
    const ranks::Folder folder;
    const auto problems = ranks::run(2, [&](tutti_comm* comm, int) {
        tutti::Trainer t(spec(1, comm));
        t.load(folder.path() + "/absent");
    });
    for (const std::string& problem : problems) expect::words(problem, "/absent");
}

TEST_CASE("trainer checkpoint: has the iteration of a model that does not ask for it") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    Variant v;
    v.asks_for_iteration = false;
    tutti::Trainer t(spec(1, nullptr, v));
    t.init_sync();
    t.step();
    t.step();
    t.save(path);
    tutti::Trainer other(spec(2, nullptr, v));
    other.load(path);
    REQUIRE(other.read<int64_t>(1, "iteration").front() == 2);
}

TEST_CASE("trainer checkpoint: an iteration in a scope is counted, and restored") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    tutti::TrainerSpec scoped = spec(2, nullptr);
    scoped.update = [](tutti::Model& m, double) {
        m.enter("adam");
        const tutti_buffer count = m.iteration(), seen = m.state<int64_t>("seen", {1});
        m.operation("count", {count}, {seen}, [=](const tutti::Step& s) {
            *s.data<int64_t>(seen) = *s.data<int64_t>(count);
        });
        m.leave();
    };
    tutti::Trainer t(scoped);
    t.init_sync();
    for (int i = 0; i < 3; ++i) t.step();
    REQUIRE(t.read<int64_t>(1, "adam/iteration").front() == 3);
    REQUIRE(t.read<int64_t>(1, "adam/seen").front() == 2);
    t.save(path);
    tutti::Trainer other(scoped);
    other.load(path);
    other.step();
    REQUIRE(other.read<int64_t>(1, "adam/seen").front() == 3);
    REQUIRE(other.read<int64_t>(1, "iteration").front() == 4);
    other.write<int64_t>(0, "adam/iteration", {10});
    other.sync();
    REQUIRE(other.read<int64_t>(1, "adam/iteration").front() == 10);
}

TEST_CASE("trainer checkpoint: a list takes the entries and the program's own with them") {
    const ranks::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    tutti::Trainer t(spec(2, nullptr));
    fill(t, 2, 0);
    t.init_sync();
    t.step();
    std::vector<float> extra{1.5f};
    tutti::Checkpoint list;
    t.add_to(list);
    list.add("schedule", extra).set_text("epoch", "12");
    list.save(path);
    tutti::Trainer other(spec(1, nullptr));
    std::vector<float> read{0};
    tutti::Checkpoint again;
    other.add_to(again);
    again.add("schedule", read);
    again.load(path);
    other.sync();
    REQUIRE(read == extra);
    REQUIRE(again.text("epoch") == "12");
    REQUIRE(common(other, 0) == common(t, 0));
}

TEST_CASE("trainer params: a scope's state without the scope's name") {
    tutti::Trainer t(spec(2, nullptr));
    const auto names = [&](const std::string& scope) {
        std::set<std::string> list;
        for (const tutti_buffer_info& info : t.params(scope)) list.insert(info.name);
        return list;
    };
    const std::set<std::string> all{"table",        "plain",         "layer/w",
                                    "running_mean", "learning_rate", "layer.w.momentum",
                                    "iteration"};
    REQUIRE(names("") == all);
    REQUIRE(names("device_1") == all);
    REQUIRE(names("layer") == std::set<std::string>{"w"});
    REQUIRE(names("device_1/layer") == std::set<std::string>{"w"});
    REQUIRE(t.params("device_1/layer").front().data == t.find(1, "layer/w").data);
    expect::error([&] { t.params("device_2"); }, "device_2");
    expect::error([&] { t.params("lay"); }, "'lay'");
}

TEST_CASE("trainer params: rows that a shard has not are an error that names it") {
    auto bad = spec(2, nullptr);
    bad.forward = [](tutti::Model& m, double) {
        m.shard<float>("table", {4, columns}, table_rows);
        return tutti::Losses{};
    };
    expect::error([&] { const tutti::Trainer t(bad); }, "'device_0/table' has 4 rows");
}
