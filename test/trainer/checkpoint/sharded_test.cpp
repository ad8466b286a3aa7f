// Checkpoints of several ranks: shards are saved once and restored on other numbers of ranks.
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "support/catch.h"
#include "trainer/checkpoint/checkpoint_fixture.h"
#include "trainer/ranks.h"

using namespace tutti::test;
using ranks::on_ranks;
using tutti::Communicator;

namespace {

constexpr int64_t classes = 11, width = 3;

struct Rows {
    int64_t first = 0, count = 0;
};
/// Rows are dealt to ranks × devices in order, and the last shards may get none.
Rows rows_of(int shard, int shards) {
    const int64_t each = (classes + shards - 1) / shards;
    const int64_t first = std::min(classes, each * shard);
    return {first, std::min(each, classes - first)};
}

struct ShardedModel {
    Model dense;
    std::vector<std::vector<float>> shards;  // one a device

    ShardedModel(int rank, int ranks, int devices, bool filled) {
        if (!filled) dense.clear();
        for (int d = 0; d < devices; ++d) {
            const Rows rows = rows_of(rank * devices + d, ranks * devices);
            shards.emplace_back(static_cast<std::size_t>(rows.count * width), -1.0F);
            if (filled)
                std::iota(shards.back().begin(), shards.back().end(),
                          static_cast<float>(rows.first * width));
        }
    }
    void add_to(List& list, int rank, int ranks) {
        const int devices = static_cast<int>(shards.size());
        for (int d = 0; d < devices; ++d) {
            const std::string scope = "device_" + std::to_string(d) + "/";
            if (d == 0) dense.add_to(list, scope);
            const Rows rows = rows_of(rank * devices + d, ranks * devices);
            list.add_rows(scope + "fc/weight", shards[static_cast<std::size_t>(d)],
                          {classes, width}, rows.first, rows.count);
        }
    }
    friend bool operator==(const ShardedModel&, const ShardedModel&) = default;
};

void save_on(int ranks, int devices, const std::string& path) {
    on_ranks(ranks, [&](Communicator& comm) {
        ShardedModel model(comm.rank(), ranks, devices, true);
        List list;
        model.add_to(list, comm.rank(), ranks);
        List::ok(tutti_checkpoint_set_text(list, "rank", std::to_string(comm.rank()).c_str()));
        List::ok(tutti_checkpoint_save(list, comm.get(), path.c_str()));
    });
}

void load_on(int ranks, int devices, const std::string& path) {
    on_ranks(ranks, [&](Communicator& comm) {
        ShardedModel model(comm.rank(), ranks, devices, false);
        List list;
        model.add_to(list, comm.rank(), ranks);
        List::ok(tutti_checkpoint_load(list, comm.get(), path.c_str(), nullptr));
        if (model != ShardedModel(comm.rank(), ranks, devices, true))
            throw std::runtime_error("restored values differ");
        if (tutti_checkpoint_text(list, "rank") != std::string("0"))
            throw std::runtime_error("texts are not rank 0's");
    });
}

/// The error text of each rank when all ranks make this call.
std::vector<std::string> errors_of(int ranks,
                                   const std::function<tutti_status(List&, Communicator&)>& call) {
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](Communicator& comm) {
        List list;
        const tutti_status status = call(list, comm);
        if (status != TUTTI_ERR_INVALID) throw std::runtime_error("expected INVALID");
        errors[static_cast<std::size_t>(comm.rank())] = tutti_trainer_last_error();
        comm.barrier();  // it works on
    });
    return errors;
}

}  // namespace

TEST_CASE("checkpoint: shards reshard from 4 ranks to 2 to 3, and over devices") {
    const Folder folder;
    save_on(4, 1, folder.file());
    const std::string from_four = contents(folder.file());
    load_on(2, 1, folder.file());
    save_on(2, 1, folder.file());
    load_on(3, 1, folder.file());
    save_on(3, 2, folder.file());
    load_on(1, 2, folder.file());
    load_on(2, 4, folder.file());
    // Every shard once: the file is the same whoever wrote it.
    REQUIRE(contents(folder.file()) == from_four);
}

TEST_CASE("checkpoint: shards of many pieces come back, though other ranks never see the file") {
    const Folder folder;
    constexpr int64_t rows = 3 << 10, long_width = 1 << 10;  // 12 MiB
    const auto value = [](std::size_t i) { return static_cast<float>(i % 8191); };
    const auto rows_on = [](int rank, int ranks) {
        return Rows{rank * (rows / ranks), rows / ranks};
    };
    for (const int ranks : {3, 2}) {
        on_ranks(ranks, [&](Communicator& comm) {
            const Rows own = rows_on(comm.rank(), ranks);
            std::vector<float> weight(static_cast<std::size_t>(own.count * long_width));
            const auto offset = static_cast<std::size_t>(own.first * long_width);
            List list;
            list.add_rows("table", weight, {rows, long_width}, own.first, own.count);
            const std::string path = comm.rank() == 0 ? folder.file() : "/nowhere";
            if (ranks == 3)
                for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = value(offset + i);
            List::ok(ranks == 3 ? tutti_checkpoint_save(list, comm.get(), path.c_str())
                                : tutti_checkpoint_load(list, comm.get(), path.c_str(), nullptr));
            for (std::size_t i = 0; i < weight.size(); ++i)
                if (weight[i] != value(offset + i)) throw std::runtime_error("wrong value");
        });
    }
}

TEST_CASE("checkpoint: rows that no rank has, or two have, are an error on every rank") {
    const Folder folder;
    std::vector<float> data(12);
    const auto saving = [&](int64_t second_begins) {
        return errors_of(2, [&, second_begins](List& list, Communicator& comm) {
            list.add_rows("w", data, {6, 2}, comm.rank() == 0 ? 0 : second_begins, 3);
            return tutti_checkpoint_save(list, comm.get(), folder.file().c_str());
        });
    };
    for (const std::string& error : saving(2)) {
        INFO(error);
        REQUIRE(error.find("entry 'w' has row 2 twice: rank 1 has rows from 2 on") != error.npos);
    }
    std::vector<float> rest(12);
    for (const std::string& error : errors_of(2, [&](List&list, Communicator&comm) {
             list.add_rows("w", rest, {7, 1}, comm.rank() * 4, 3);
             return tutti_checkpoint_save(list, comm.get(), folder.file().c_str());
         })) {
        INFO(error);
        REQUIRE(error.find("entry 'w' has row 3 nowhere") != error.npos);
    }
    REQUIRE(folder.files() == 0);
}

TEST_CASE("checkpoint: ranks whose entries differ are told so, by name and rank") {
    const Folder folder;
    std::vector<float> data(4);
    for (const std::string& error : errors_of(3, [&](List&list, Communicator&comm) {
             list.add("a", data, {4});
             if (comm.rank() == 2) list.add("b", data, {4});
             return tutti_checkpoint_save(list, comm.get(), folder.file().c_str());
         })) {
        INFO(error);
        REQUIRE(error.find("entry 'b' is on rank 2, but not on rank 0") != error.npos);
    }
    for (const std::string& error : errors_of(2, [&](List&list, Communicator&comm) {
             if (comm.rank() == 0)
                 list.add("a", data, {4});
             else
                 list.add("a", data, {2, 2});
             return tutti_checkpoint_save(list, comm.get(), folder.file().c_str());
         })) {
        INFO(error);
        REQUIRE(error.find("entry 'a' is float32 of 2 × 2 on rank 1") != error.npos);
    }
}

TEST_CASE("checkpoint: a damaged file is an error on every rank, and no rank's values change") {
    const Folder folder;
    save_on(2, 1, folder.file());
    std::string bytes = contents(folder.file());
    bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 4);
    put(folder.file(), bytes);
    std::vector<int> changed(3);
    const auto errors = errors_of(3, [&](List& list, Communicator& comm) {
        ShardedModel model(comm.rank(), 3, 1, false);
        model.add_to(list, comm.rank(), 3);
        const tutti_status status =
            tutti_checkpoint_load(list, comm.get(), folder.file().c_str(), nullptr);
        changed[static_cast<std::size_t>(comm.rank())] =
            model != ShardedModel(comm.rank(), 3, 1, false);
        return status;
    });
    for (const std::string& error : errors) {
        INFO(error);
        REQUIRE(error.find("does not match its checksum") != error.npos);
    }
    REQUIRE(changed == std::vector<int>(3));
}

TEST_CASE("checkpoint: a copy that fails on one rank fails the save on all, with that rank") {
    const Folder folder;
    std::vector<std::string> errors(3);
    on_ranks(3, [&](Communicator& comm) {
        ShardedModel model(comm.rank(), 3, 1, true);
        List list;
        model.add_to(list, comm.rank(), 3);
        const auto no_copy = [](void*, void*, const void*, size_t, int) { return 9; };
        if (comm.rank() == 1) List::ok(tutti_checkpoint_set_copy(list, no_copy, nullptr));
        if (tutti_checkpoint_save(list, comm.get(), folder.file().c_str()) != TUTTI_ERR_SYSTEM)
            throw std::runtime_error("expected SYSTEM");
        errors[static_cast<std::size_t>(comm.rank())] = tutti_trainer_last_error();
    });
    for (const std::string& error : errors) {
        INFO(error);
        REQUIRE(error.find("rank 1: checkpoint: the copy from a device failed with 9") !=
                error.npos);
    }
    REQUIRE(folder.files() == 0);
}

TEST_CASE("checkpoint: a rank that saves while others load is a mismatch, and the ranks go on") {
    const Folder folder;
    std::vector<std::string> errors(3);
    on_ranks(3, [&](Communicator& comm) {
        ShardedModel model(comm.rank(), 3, 1, true);
        List list;
        model.add_to(list, comm.rank(), 3);
        const std::string path = folder.file();
        List::ok(tutti_checkpoint_save(list, comm.get(), path.c_str()));
        for (int odd = 0; odd < 3; ++odd) {
            const tutti_status status =
                comm.rank() == odd ? tutti_checkpoint_save(list, comm.get(), path.c_str())
                                   : tutti_checkpoint_load(list, comm.get(), path.c_str(), nullptr);
            if (status != TUTTI_ERR_MISMATCH) throw std::runtime_error("expected MISMATCH");
            errors[static_cast<std::size_t>(comm.rank())] = tutti_trainer_last_error();
        }
        List::ok(tutti_checkpoint_load(list, comm.get(), path.c_str(), nullptr));
    });
    for (const std::string& error : errors) {
        INFO(error);
        REQUIRE(error.find("'checkpoint save'") != error.npos);
        REQUIRE(error.find("'checkpoint load'") != error.npos);
    }
}

TEST_CASE("checkpoint: save and load may take longer than the communicator's deadline") {
    const Folder folder;
    constexpr int timeout_ms = 4000;  // for joining, too, on a busy machine
    const auto slow_copy = [](void*, void* to, const void* from, size_t bytes, int) {
        constexpr std::chrono::milliseconds slow(4500);
        if (bytes == sizeof(float)) std::this_thread::sleep_for(slow);
        std::memcpy(to, from, bytes);
        return 0;
    };
    // Rank 0 is slow with "dense", rank 1 waits to send its rows, or for them.
    const auto go = [&](Communicator& comm, bool saves) {
        constexpr int64_t rows = 2, long_width = 1 << 16;
        std::vector<float> dense(1, saves ? 3 : 0), own(long_width, saves ? 4 : 0);
        List list;
        list.add("dense", dense, {1});
        list.add_rows("table", own, {rows, long_width}, comm.rank(), 1);
        if (comm.rank() == 0) List::ok(tutti_checkpoint_set_copy(list, slow_copy, nullptr));
        const std::string path = folder.file();
        List::ok(saves ? tutti_checkpoint_save(list, comm.get(), path.c_str())
                       : tutti_checkpoint_load(list, comm.get(), path.c_str(), nullptr));
        ranks::require(dense[0] == 3 && own.back() == 4, "values differ");
    };
    on_ranks(
        2,
        [&](Communicator& comm) {
            go(comm, true);
            go(comm, false);
            comm.barrier();
        },
        timeout_ms);
}
