// tutti-run --elastic with scripts for ranks. test/recovery has jobs whose ranks join.
#include "run/program.h"
#include "support/catch.h"

using namespace tutti::test;

namespace {

// The two kinds of ranks: those of the start have a number, those that join do not.
std::string script(const std::string& rank_1, const std::string& others,
                   const std::string& joining) {
    return "case \"$TUTTI_JOIN-$TUTTI_RANK\" in -1) " + rank_1 + ";; -*) " + others + ";; *) " +
           joining + ";; esac";
}

Outcome run_elastic(const std::string& range, const std::string& text, Texts options = {},
                    const Texts& variables = {}) {
    options.insert(options.begin(), {"--elastic", range, "--timeout", "60"});
    options.insert(options.end(), {"/bin/sh", "-c", text});
    return run(options, variables);
}

}  // namespace

TEST_CASE("tutti-run --elastic: a new process joins for a rank that fails") {
    const Outcome o = run_elastic(
        "2:3", script("kill -9 $$", "sleep 1", "echo join=$TUTTI_JOIN size=$TUTTI_SIZE rank=$RANK"),
        {}, {"TUTTI_JOIN=1", "TUTTI_RANK=7", "RANK=5"});
    INFO(o.err);
    CHECK(o.exit_code == 0);
    CHECK(o.out == "[3] join=1 size= rank=\n");
    CHECK(contains(o.err, "rank 1 was killed by signal 9 (Killed); 2 go on, and process 3 joins"));
}

TEST_CASE("tutti-run --elastic: starts with fewer ranks, and fills up") {
    const Outcome o = run_elastic("1:3", script("true", "true", "echo joins"), {"-n", "2"});
    CHECK(o.exit_code == 0);
    CHECK(o.out == "[2] joins\n");
}

TEST_CASE("tutti-run --elastic: ends with the first failure that leaves too few ranks") {
    const Outcome o = run_elastic("2:2", script("exit 5", "sleep 50", "sleep 50"));
    CHECK(o.exit_code == 5);
    CHECK(contains(o.err, "rank 1 exited with code 5; ending the other ranks"));
    CHECK(o.out.empty());
}

TEST_CASE("tutti-run --elastic: starts at most --restarts processes") {
    const Outcome o =
        run_elastic("1:2", script("exit 1", "sleep 2", "exit 2"), {"--restarts", "2"});
    CHECK(o.exit_code == 0);
    CHECK(contains(o.err, "process 3 joins"));
    CHECK_FALSE(contains(o.err, "process 4 joins"));
}

TEST_CASE("tutti-run --elastic: once a rank has finished, nothing is started any more") {
    const Outcome o = run_elastic("1:2", script("sleep 1; exit 3", "true", "echo joins"));
    INFO(o.err);
    CHECK(o.exit_code == 3);
    CHECK(o.out.empty());
}

TEST_CASE("tutti-run --elastic: ranges that make no sense") {
    for (const char* range : {"2", "2:", ":2", "3:2", "0:2", "x:2", "1:5000"}) {
        INFO(range);
        const Outcome o = run_elastic(range, "true");
        CHECK(o.exit_code == 2);
        CHECK(contains(o.err, "is not MIN:MAX"));
    }
    CHECK(contains(run_elastic("1:2", "true", {"-n", "3"}).err, "are not between 1 and 2"));
    CHECK(contains(run_elastic("1:2", "true", {"--gangs", "2"}).err, "excludes --gangs"));
    CHECK(contains(run_elastic("1:2", "true", {"--store", "file:///tmp"}).err, "excludes --store"));
    CHECK(contains(run_elastic("1:2", "true", {"--keep-going"}).err, "includes --keep-going"));
    CHECK(contains(run({"true"}).err, "--ranks is required"));
}
