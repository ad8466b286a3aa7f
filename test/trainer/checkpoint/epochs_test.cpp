// A folder of checkpoints of one epoch after another: which one a run goes on from.
#include "tutti/epochs.hpp"
#include "support/catch.h"
#include "trainer/checkpoint/checkpoint_fixture.h"
#include "trainer/ranks.h"
#include "tutti/checkpoint.hpp"

using namespace tutti::test;
using ranks::on_ranks;

namespace {

/// A run whose state is one number.
struct Run {
    std::vector<float> value{0};
    tutti_comm* comm = nullptr;

    auto save() {
        return [this](const std::string& path) {
            tutti::Checkpoint().add("value", value).save(path, comm);
        };
    }
    auto load() {
        return [this](const std::string& path) {
            tutti::Checkpoint list;
            list.add("value", value).load(path, comm);
        };
    }
    /// Epochs up to the last one, each with its number as the value.
    void train(tutti::EpochCheckpoints& folder, int last) {
        for (int epoch = 1; epoch <= last; ++epoch) {
            value[0] = static_cast<float>(epoch);
            folder.save(epoch, save());
        }
    }
};

void damage(const std::string& path) {
    std::string bytes = contents(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put(path, bytes);
}

}  // namespace

TEST_CASE("epochs: a folder that is not there, or has no checkpoint, begins a run") {
    const Folder folder;
    Run run;
    REQUIRE(tutti::EpochCheckpoints(folder.file("none")).restore(run.load()) == 0);
    put(folder.file("epoch-000003.safetensors.partial"), "half");
    put(folder.file("epoch-x.safetensors"), "");
    put(folder.file("other.safetensors"), "");
    REQUIRE(tutti::EpochCheckpoints(folder.file("")).restore(run.load()) == 0);
}

TEST_CASE("epochs: a run goes on from the newest, and the old ones go") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints made(folder.file("run"), nullptr, 3);
    run.train(made, 12);
    REQUIRE(std::filesystem::exists(made.path(10)));
    REQUIRE_FALSE(std::filesystem::exists(made.path(9)));
    Run next;
    REQUIRE(made.restore(next.load()) == 12);
    REQUIRE(next.value[0] == 12);
    REQUIRE(made.refused().empty());
}

TEST_CASE("epochs: all stay when told to keep them") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints all(folder.file("run"), nullptr, 0);
    run.train(all, 5);
    for (int epoch = 1; epoch <= 5; ++epoch) REQUIRE(std::filesystem::exists(all.path(epoch)));
}

TEST_CASE("epochs: a damaged one is left aside, told of, and never removed") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints made(folder.file("run"), nullptr, 3);
    run.train(made, 5);
    damage(made.path(5));
    put(made.path(4), contents(made.path(4)).substr(0, 40));  // cut short
    const std::string cut = contents(made.path(4)), damaged = contents(made.path(5));
    Run next;
    REQUIRE(made.restore(next.load()) == 3);
    REQUIRE(next.value[0] == 3);
    REQUIRE(made.refused().size() == 2);
    REQUIRE(std::string(made.refused()[0].what()).find(made.path(5)) != std::string::npos);
    made.save(4, next.save());
    REQUIRE(made.restore(next.load()) == 4);
    REQUIRE(made.refused().empty());
    REQUIRE(contents(made.path(5) + ".refused") == damaged);
    REQUIRE(contents(made.path(4) + ".refused") == cut);
}

TEST_CASE("epochs: one refused after another stays, also where all are kept") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints made(folder.file("run"), nullptr, 0);
    run.train(made, 2);
    std::vector<std::string> damaged;
    for (int times = 0; times < 2; ++times) {
        damage(made.path(2));
        damaged.push_back(contents(made.path(2)));
        REQUIRE(made.restore(run.load()) == 1);
        run.value[0] = static_cast<float>(times);
        made.save(2, run.save());
        REQUIRE(made.restore(run.load()) == 2);
    }
    REQUIRE(contents(made.path(2) + ".refused") == damaged[0]);
    REQUIRE(contents(made.path(2) + ".refused.2") == damaged[1]);
}

TEST_CASE("epochs: saving an epoch again replaces it") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints made(folder.file("run"));
    run.train(made, 1);
    REQUIRE(made.restore(run.load()) == 1);
    run.train(made, 1);
    REQUIRE_FALSE(std::filesystem::exists(made.path(1) + ".refused"));
}

TEST_CASE("epochs: where every checkpoint is refused, no run begins") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints made(folder.file("run"));
    run.train(made, 2);
    for (const int epoch : {1, 2}) damage(made.path(epoch));
    REQUIRE_THROWS_AS(made.restore(run.load()), tutti::Error);
    REQUIRE(made.refused().size() == 2);
}

TEST_CASE("epochs: what is no fault of the file's ends the restore") {
    const Folder folder;
    Run run;
    tutti::EpochCheckpoints made(folder.file("run"));
    run.train(made, 2);
    int calls = 0;
    const auto lost = [&](const std::string&) {
        ++calls;
        throw tutti::Error(TUTTI_ERR_PEER_LOST, 1, "lost");
    };
    REQUIRE_THROWS_AS(made.restore(lost), tutti::Error);
    REQUIRE(calls == 1);
    put(folder.file("file"), "");
    REQUIRE_THROWS_AS(tutti::EpochCheckpoints(folder.file("file")).restore(run.load()),
                      tutti::Error);
}

TEST_CASE("epochs: all ranks go on from what rank 0 sees") {
    const Folder folder;
    on_ranks(3, [&](tutti::Communicator& comm) {
        const bool first = comm.rank() == 0;
        // The others' path leads nowhere, as on hosts without a common file system.
        tutti::EpochCheckpoints mine(folder.file(first ? "run" : "elsewhere"), &comm);
        Run run{.comm = comm.get()};
        run.train(mine, 4);
        comm.barrier();
        if (first) damage(mine.path(4));
        comm.barrier();
        Run next{.comm = comm.get()};
        if (mine.restore(next.load()) != 3 || next.value[0] != 3)
            throw std::runtime_error("not the third epoch");
        if (mine.refused().size() != 1) throw std::runtime_error("nothing was refused");
    });
    REQUIRE_FALSE(std::filesystem::exists(folder.file("elsewhere")));
}
