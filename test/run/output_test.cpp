#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "run/program.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::test;

TEST_CASE("tutti-run: keeps lines whole when ranks write at once and in pieces") {
    const Outcome o = run_script(
        "4",
        "for i in 1 2 3 4 5 6 7 8; do printf a$TUTTI_RANK; printf b; echo c; done; printf end");
    std::multiset<std::string> expected;
    for (int rank = 0; rank < 4; ++rank) {
        const std::string r = std::to_string(rank);
        for (int i = 0; i < 8; ++i) expected.insert("[" + r + "] a" + r + "bc");
        expected.insert("[" + r + "] end");
    }
    CHECK(lines_of(o.out) == expected);
    CHECK(o.out.back() == '\n');
}

TEST_CASE("tutti-run: keeps standard output and error apart") {
    const Outcome o = run_script("1", "echo one; echo two >&2");
    CHECK(o.out == "[0] one\n");
    CHECK(o.err == "[0] two\n");
}

TEST_CASE("tutti-run: writes no prefix when told not to") {
    CHECK(run_script("1", "echo one", {"--no-prefix"}).out == "one\n");
}

TEST_CASE("tutti-run: changes no output without prefixes where one writes") {
    const std::string letters = "head -c 3000000 /dev/zero | tr '\\000' x";
    const std::string bytes(3000000, 'x');
    SECTION("no newline") {
        CHECK((run_script("1", letters, {"--no-prefix"}).out == bytes));
    }
    SECTION("a long line") {
        CHECK((run_script("1", letters + "; echo; echo", {"--no-prefix"}).out == bytes + "\n\n"));
    }
    SECTION("with prefixes a long line is cut") {
        const std::string out = run_script("1", letters).out;
        CHECK(lines_of(out).size() == 3);
        CHECK(out.back() == '\n');
    }
}

TEST_CASE("tutti-run: ends an unfinished line where another's follows") {
    const std::string either = run_script("2", "printf $TUTTI_RANK", {"--no-prefix"}).out;
    CHECK((either == "0\n1" || either == "1\n0"));
    CHECK(run_script("1", "printf x", {"--no-prefix", "--gangs", "3"}).out == "x\nx\nx");
    Child failing({"/bin/sh", "-c",
                   "exec '" TUTTI_RUN "' -n 1 --no-prefix /bin/sh -c 'printf x; exit 3' 2>&1"});
    CHECK(failing.finish() == 3);
    const std::string said = "tutti-run: rank 0 exited with code 3\n";
    CHECK((failing.out() == "x\n" + said || failing.out() == said + "x"));
}

TEST_CASE("tutti-run: loses nothing when a rank writes a lot and ends") {
    const Outcome o = run_script("2", "seq 200000", {"--no-prefix"});
    CHECK(lines_of(o.out).size() == 400000);
    CHECK(lines_of(o.out).count("200000") == 2);
}

TEST_CASE("tutti-run: writes each rank's output to its file when given a directory") {
    const Folder folder;
    run_script("2", "echo out $TUTTI_RANK; echo err >&2", {"--log-dir", folder.path / "new"});
    CHECK(lines_of(contents(folder.path / "new" / "rank-1.log")) ==
          std::multiset<std::string>{"out 1", "err"});
}

TEST_CASE("tutti-run: keeps lines whole in a rank's file") {
    // Apart, so that tutti-run most likely reads one before the next is written.
    const Folder folder;
    const Outcome o =
        run_script("1", "printf a; sleep 0.3; echo err >&2; sleep 0.3; echo b; printf end",
                   {"--gangs", "2", "--log-dir", folder.path.string()});
    CHECK(o.exit_code == 0);
    CHECK(lines_of(contents(folder.path / "rank-0.log")) ==
          std::multiset<std::string>{"err", "ab", "end", "err", "ab", "end"});
}

TEST_CASE("tutti-run: ends when the reader of its output goes away") {
    Child child({"/bin/sh", "-c", "'" TUTTI_RUN "' -n 2 yes | head -n 1"});
    CHECK(child.finish() == 0);
    CHECK(contains(child.out(), "] y\n"));
}

TEST_CASE("tutti-run: says why its output cannot be written") {
    Child child({"/bin/sh", "-c",
                 "exec '" TUTTI_RUN "' -n 2 /bin/sh -c 'echo x; exec sleep 60' >/dev/full"});
    CHECK(child.finish() == 125);
    CHECK(contains(child.err(), "cannot write standard output: No space left on device"));
}

TEST_CASE("tutti-run: what ranks say while they end is no success where it cannot be written") {
    const Folder folder;
    Child child({"/bin/sh", "-c",
                 "cd '" + folder.path.string() +
                     "'; exec '" TUTTI_RUN
                     "' -n 1 --grace 60 /bin/sh -c 'trap \"echo late; exit 0\" TERM; echo >ready; "
                     "while :; do sleep 0.05; done' >/dev/full"});
    REQUIRE(eventually([&] { return !contents(folder.path / "ready").empty(); }));
    child.signal(SIGTERM);
    CHECK(child.finish() == 125);
    CHECK(contains(child.err(), "cannot write standard output: No space left on device"));
}

TEST_CASE("tutti-run: fails in an orderly way though its message cannot be written") {
    Child child({"/bin/sh", "-c", "exec '" TUTTI_RUN "' -n 1 true 2>/dev/full"},
                {"TUTTI_SECRET=", "TUTTI_SECRET_FILE=/nonexistent"});
    CHECK(child.finish() == 125);
}

TEST_CASE(
    "tutti-run: says which log cannot be written, once, and is no success though its ranks are") {
    const Folder folder;
    std::filesystem::create_symlink("/dev/full", folder.path / "rank-1.log");
    Child child(with_program({"-n", "2", "--log-dir", folder.path.string(), "/bin/sh", "-c",
                              "echo one; sleep 0.2; echo two"}));
    CHECK(child.finish() == 125);
    CHECK(contains(child.out(), "[1] two"));
    const std::string said = "rank-1.log: No space left on device";
    CHECK(contains(child.err(), said));
    CHECK(child.err().find(said) == child.err().rfind(said));
    CHECK(contents(folder.path / "rank-0.log") == "one\ntwo\n");
}

TEST_CASE("tutti-run: ends in time and after a signal though nobody reads its output") {
    const Folder folder;
    // The reader reads nothing before the code is there.
    const std::string reader =
        " | { for i in $(seq 600); do [ -s code ] && break; sleep 0.05; done; cat >/dev/null; }";
    const auto unread = [&](const std::string& options, const std::string& beside) {
        std::filesystem::remove(folder.path / "code");
        Child child({"/bin/sh", "-c",
                     "cd '" + folder.path.string() + "'; { '" TUTTI_RUN "' -n 1 --grace 1 " +
                         options + " & " + beside + "wait $!; echo $? >code; }" + reader});
        child.finish();
        return contents(folder.path / "code");
    };
    SECTION("in time") {
        CHECK(unread("--timeout 0.3 yes", "") == "124\n");
    }
    SECTION("in time, where the ranks have ended") {
        CHECK(unread("--timeout 2 seq 1 100000", "") == "124\n");
    }
    SECTION("in time, and a failure before it stays the reason") {
        // On a busy machine the failure may come after the first of these times.
        std::string code;
        for (const std::string seconds : {"4", "20"}) {
            code = unread("--timeout " + seconds + " /bin/sh -c 'seq 1 100000; exit 7'", "");
            if (code != "124\n") break;
        }
        CHECK(code == "7\n");
    }
    SECTION("a signal, and what is lost is no success") {
        CHECK(unread("seq 1 100000", "sleep 0.5; kill -TERM $!; ") == "143\n");
    }
}

TEST_CASE("tutti-run: ends in time and after a signal though its terminal stands still") {
    const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    REQUIRE(terminal);
    REQUIRE(grantpt(terminal.get()) == 0);
    REQUIRE(unlockpt(terminal.get()) == 0);
    const std::string path = ptsname(terminal.get());
    const auto start = [&](const std::string& options) {
        return Texts{"/bin/sh", "-c",
                     "exec '" TUTTI_RUN "' -n 1 --grace 1 " + options + " yes >" + path};
    };
    SECTION("in time") {
        Child child(start("--timeout 1"));
        CHECK(child.finish() == 124);
    }
    SECTION("a signal") {
        Child child(start(""));
        sleep(1);  // for the terminal to be full
        child.signal(SIGTERM);
        CHECK(child.finish() == 128 + SIGTERM);
    }
}

TEST_CASE("tutti-run: a signal that is handed on to nobody any more costs no output") {
    const Folder folder;
    // Not before the rank has written all: an early one would end who has no handler yet.
    Child child({"/bin/sh", "-c",
                 "cd '" + folder.path.string() +
                     "'; { '" TUTTI_RUN
                     "' -n 1 --no-prefix /bin/sh -c \"trap '' USR1; seq 1 100000; echo >ended\" & "
                     "for i in $(seq 400); do [ -s ended ] && break; sleep 0.05; done; "
                     "sleep 0.3; kill -USR1 $!; sleep 0.1; wait $!; } | "
                     "{ for i in $(seq 40); do [ -s ended ] && break; sleep 0.05; done; sleep 0.6; "
                     "wc -l; }"});
    CHECK(child.finish() == 0);
    CHECK(child.out() == "100000\n");
}

TEST_CASE("tutti-run: works with standard streams that are closed") {
    // A shell that closes the stream; timeout, as these used to hang.
    const auto closed = [](const std::string& stream, const std::string& script) {
        Child child({"/bin/sh", "-c",
                     "timeout 20 '" TUTTI_RUN "' -n 2 /bin/sh -c '" + script + "' " + stream});
        const int exit_code = child.finish();
        return Outcome{exit_code, child.out(), child.err()};
    };
    const std::string both = "echo out; echo err >&2";
    CHECK(closed(">&-", both).exit_code == 0);
    CHECK(lines_of(closed(">&-", both).err) == std::multiset<std::string>{"[0] err", "[1] err"});
    CHECK(closed("2>&-", both).exit_code == 0);
    CHECK(lines_of(closed("2>&-", both).out) == std::multiset<std::string>{"[0] out", "[1] out"});
    CHECK(lines_of(closed("<&-", "readlink /proc/self/fd/0").out) ==
          std::multiset<std::string>{"[0] /dev/null", "[1] /dev/null"});
    CHECK(closed("<&- >&- 2>&-", "cat; " + both + "; exit 3").exit_code == 3);
}
