#include <sched.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "run/program.h"
#include "support/catch.h"

using namespace tutti::test;

namespace {

// A function of the shell's: waits until the command that it is given succeeds, at most 30 s, or
// ends the rank with exit code 3.
const std::string soon_in_shell =
    " soon() { for i in $(seq 600); do eval $1 && return; sleep 0.05; done; exit 3; }; ";

}  // namespace

TEST_CASE("tutti-run: tells each rank its rank, the size and the store") {
    const Outcome o = run_script("3",
                                 "echo $TUTTI_RANK/$TUTTI_SIZE hosted=$TUTTI_STORE_HOSTED "
                                 "${TUTTI_STORE%:*} ${#TUTTI_SECRET} ${#TUTTI_JOB}");
    CHECK(o.exit_code == 0);
    CHECK(lines_of(o.out) == std::multiset<std::string>{"[0] 0/3 hosted=1 tcp://127.0.0.1 64 16",
                                                        "[1] 1/3 hosted=1 tcp://127.0.0.1 64 16",
                                                        "[2] 2/3 hosted=1 tcp://127.0.0.1 64 16"});
    CHECK(o.err.empty());
}

TEST_CASE("tutti-run: tells each rank what torch.distributed asks for, whoever started tutti-run") {
    const Outcome o = run_script(
        "2", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR",
        {"--hosts-act", "2"}, {"RANK=7", "WORLD_SIZE=9", "LOCAL_RANK=3", "MASTER_ADDR=10.0.0.1"});
    CHECK(lines_of(o.out) ==
          std::multiset<std::string>{"[0] 0/2 0/2 127.0.0.1", "[1] 1/2 1/2 127.0.0.1"});
    const Outcome own = run_script("1", "echo $MASTER_PORT", {"--env", "MASTER_PORT=29500"});
    CHECK(own.out == "[0] 29500\n");
}

TEST_CASE("tutti-run: keeps MASTER_PORT free for rank 0 to listen on, on all addresses") {
    const Folder folder;
    write_program(folder.path / "meet", R"(#!/usr/bin/env python3
import os, socket
port = int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(("", port)) as server:
        print("served", server.accept()[0].recv(9).decode())
else:
    while True:
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], port)).sendall(b"rank 1")
            break
        except ConnectionRefusedError:
            pass
)");
    const Outcome o = run({"-n", "2", "--timeout", "60", (folder.path / "meet").string()});
    CHECK(o.out == "[0] served rank 1\n");
    CHECK(o.err.empty());
}

TEST_CASE("tutti-run: hands options on and leaves the program's own alone") {
    const Outcome o =
        run_script("4", "echo $TUTTI_HOST_ID $TUTTI_TRANSPORT $COLOUR -n 9 --quiet",
                   {"--hosts-act", "2", "--transport", "tcp,shm", "--env", "COLOUR=a=b,c"});
    CHECK(lines_of(o.out) == std::multiset<std::string>{"[0] host0 tcp,shm a=b,c -n 9 --quiet",
                                                        "[1] host0 tcp,shm a=b,c -n 9 --quiet",
                                                        "[2] host1 tcp,shm a=b,c -n 9 --quiet",
                                                        "[3] host1 tcp,shm a=b,c -n 9 --quiet"});
}

TEST_CASE("tutti-run: looks for the program in the PATH that ranks are given") {
    const Folder folder;
    write_program(folder.path / "here-only", "#!/bin/sh\necho found $1\n");
    const Outcome o =
        run({"-n", "1", "--env", "PATH=" + folder.path.string() + ":/bin", "here-only", "it"});
    CHECK(o.out == "[0] found it\n");
    CHECK(run({"-n", "1", "--env", "PATH=" + folder.path.string(), "true"}).exit_code == 127);
}

TEST_CASE("tutti-run: uses another store when given one") {
    const Outcome o = run_script("1", "echo $TUTTI_STORE [$TUTTI_STORE_HOSTED]",
                                 {"--store", "file:///tmp/x"}, {"TUTTI_STORE_HOSTED=1"});
    CHECK(o.out == "[0] file:///tmp/x []\n");
}

TEST_CASE("tutti-run: pins ranks when told to") {
    const Outcome o = run_script("2", "grep Cpus_allowed_list /proc/self/status", {"--bind"});
    CHECK(o.exit_code == 0);
    CHECK(lines_of(o.out).size() == 2);
    CHECK_FALSE(contains(o.out, "-"));  // a range would be more than one core
    CHECK_FALSE(contains(o.out, ","));
}

TEST_CASE("tutti-run: pins neighbours together when there are more ranks than cores") {
    cpu_set_t all;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    cpu_set_t two;
    CPU_ZERO(&two);
    for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core)
        if (CPU_ISSET(core, &all)) CPU_SET(core, &two);
    if (CPU_COUNT(&two) < 2) return;  // nothing to share out
    REQUIRE(sched_setaffinity(0, sizeof two, &two) == 0);
    const Outcome o = run_script("4", "grep Cpus_allowed_list /proc/self/status", {"--bind"});
    REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
    const auto lines = lines_of(o.out);  // sorted, so by rank
    Texts cores(lines.begin(), lines.end());
    REQUIRE(cores.size() == 4);
    for (std::string& core : cores) core.erase(0, core.find(']'));
    CHECK(cores[0] == cores[1]);
    CHECK(cores[1] != cores[2]);
    CHECK(cores[2] == cores[3]);
}

TEST_CASE("tutti-run: makes a new secret for every job, unless there is one") {
    const std::string script = "echo $TUTTI_SECRET";
    unsetenv("TUTTI_SECRET");
    const std::string first = run_script("1", script).out;
    CHECK(first.size() > 32);
    CHECK(first != run_script("1", script).out);
    CHECK(run_script("1", script, {}, {"TUTTI_SECRET=given by the user"}).out ==
          "[0] given by the user\n");
    CHECK(contains(run({"-n", "1", "true"}, {"TUTTI_SECRET=given"}).err, "openssl rand -hex 32"));
}

TEST_CASE("tutti-run: says what is wrong with the file of the secret") {
    const Folder folder;
    const auto said = [](const std::string& path) {
        const Outcome o = run({"-n", "1", "true"}, {"TUTTI_SECRET=", "TUTTI_SECRET_FILE=" + path});
        CHECK(o.exit_code == 125);
        return o.err;
    };
    CHECK(contains(said(folder.path), "Is a directory"));
    CHECK(contains(said(folder.path / "none"), "No such file or directory"));
    CHECK(contains(said("/dev/null"), "the file '/dev/null' is empty"));
}

TEST_CASE("tutti-run: warns of a secret that every user of the host can read") {
    const Folder folder;
    const std::string path = folder.path / "secret";
    std::ofstream(path) << "long enough to be a secret\n";
    const auto log_with = [&](mode_t mode) {
        REQUIRE(::chmod(path.c_str(), mode) == 0);
        const Outcome o = run({"-n", "1", "true"}, {"TUTTI_SECRET=", "TUTTI_SECRET_FILE=" + path});
        CHECK(o.exit_code == 0);
        return o.err;
    };
    const std::string open = log_with(0644);
    CHECK(contains(open, "the secret's file '" + path + "' has mode 0644, with which every user"));
    CHECK(contains(open, "What to do: run chmod 600"));
    CHECK(contains(log_with(0404), "has mode 0404"));
    CHECK(log_with(0600).empty());
    CHECK(log_with(0640).empty());  // a group is its members' choice
}

TEST_CASE("tutti-run: the first failure ends the others and gives the exit code") {
    const Outcome o =
        run_script("3", "if [ $TUTTI_RANK = 1 ]; then exit 7; fi; sleep 100; echo survived");
    CHECK(o.exit_code == 7);
    CHECK(contains(o.err, "rank 1 exited with code 7"));
    CHECK_FALSE(contains(o.out, "survived"));
}

TEST_CASE("tutti-run: names the signal when a rank dies of one") {
    const Outcome o =
        run_script("2", "if [ $TUTTI_RANK = 1 ]; then kill -9 $$; fi; exec sleep 100");
    CHECK(o.exit_code == 128 + SIGKILL);
    CHECK(contains(o.err, "rank 1 was killed by signal 9"));
}

TEST_CASE("tutti-run: hears of a failure where it was started with SIGCHLD ignored") {
    // As some supervisors start their programs; a shell cannot ignore SIGCHLD for what it starts.
    struct sigaction before {};
    sigaction(SIGCHLD, nullptr, &before);
    signal(SIGCHLD, SIG_IGN);
    Child child(with_program({"-n", "2", "/bin/sh", "-c", "exit 3"}));
    sigaction(SIGCHLD, &before, nullptr);
    CHECK(child.finish() == 3);
    CHECK(contains(child.err(), "exited with code 3"));
}

TEST_CASE("tutti-run: kills a rank that ignores SIGTERM when the grace is over") {
    const Folder folder;
    const Outcome o = run_script("2",
                                 "cd '" + folder.path.string() + "';" + soon_in_shell +
                                     "if [ $TUTTI_RANK = 1 ]; then soon '[ -e deaf ]'; exit 5; fi; "
                                     "trap '' TERM; >deaf; while :; do sleep 1; done",
                                 {"--grace", "0.2"});
    CHECK(o.exit_code == 5);
    CHECK(contains(o.err, "killed rank 0"));
}

TEST_CASE("tutti-run: lets the others run on with --keep-going") {
    const Outcome o = run_script(
        "3", "if [ $TUTTI_RANK = 1 ]; then exit 7; fi; sleep 0.3; echo survived", {"--keep-going"});
    CHECK(o.exit_code == 7);
    CHECK(lines_of(o.out) == std::multiset<std::string>{"[0] survived", "[2] survived"});
}

TEST_CASE("tutti-run: says nothing of its own with --quiet") {
    const Outcome o = run_script("1", "exit 3", {"--quiet"});
    CHECK(o.exit_code == 3);
    CHECK(o.err.empty());
}

TEST_CASE("tutti-run: names the ranks that still run at --timeout") {
    // On a busy machine rank 1 may still run after the first of these times.
    std::string said;
    for (const std::string seconds : {"0.5", "5", "25"}) {
        const Outcome o =
            run_script("3", "[ $TUTTI_RANK = 1 ] || exec sleep 100", {"--timeout", seconds});
        CHECK(o.exit_code == 124);
        said = o.err;
        CHECK(contains(said, "after " + seconds + " s still running: ranks 0, "));
        if (contains(said, "ranks 0, 2")) break;
    }
    CHECK(contains(said, "still running: ranks 0, 2"));
}

TEST_CASE("tutti-run: a failure before --timeout stays the reason") {
    // On a busy machine the failure may come after the first of these times.
    int exit_code = 0;
    for (const auto& [timeout, grace] : {std::pair{"2", "4"}, std::pair{"15", "20"}}) {
        exit_code =
            run_script("2", "[ $TUTTI_RANK = 0 ] && exit 7; trap '' TERM; echo on; sleep 60",
                       {"--timeout", timeout, "--grace", grace})
                .exit_code;
        if (exit_code != 124) break;
    }
    CHECK(exit_code == 7);
}

TEST_CASE("tutti-run: a grace of any length is one") {
    const Folder folder;
    const Outcome o = run_script("2",
                                 "cd '" + folder.path.string() + "';" + soon_in_shell +
                                     "[ $TUTTI_RANK = 0 ] && { soon '[ -e ready ]'; exit 3; }; "
                                     "trap 'sleep 0.3; echo whole; exit"
                                     " 0' TERM; >ready; while :; do sleep 0.05; done",
                                 {"--grace", "1e17"});
    CHECK(o.exit_code == 3);
    CHECK(contains(o.out, "[1] whole"));
    CHECK(!contains(o.err, "killed"));
}

TEST_CASE("tutti-run: hands signals to every rank") {
    const int number = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2);
    INFO("signal " << number);
    Child child(with_program({"-n", "2", "/bin/sh", "-c",
                              "trap 'echo got; exit 0' " + std::to_string(number) +
                                  "; echo ready; while :; do sleep 0.05; done"}));
    REQUIRE(child.wait_for_output("[0] ready"));
    REQUIRE(child.wait_for_output("[1] ready"));
    child.signal(number);
    CHECK(child.finish() == 0);
    CHECK(contains(child.out(), "[0] got"));
    CHECK(contains(child.out(), "[1] got"));
}

TEST_CASE("tutti-run: ignores what it was started to ignore, and its ranks do") {
    const std::string name = GENERATE("INT", "HUP");
    INFO(name);
    Child child({"/bin/sh", "-c",
                 "trap '' " + name + "; exec '" TUTTI_RUN "' -n 2 /bin/sh -c 'kill -" + name +
                     " $$; kill -" + name + " $PPID; echo survived'"});
    CHECK(child.finish() == 0);
    CHECK(lines_of(child.out()) == std::multiset<std::string>{"[0] survived", "[1] survived"});
}

TEST_CASE("tutti-run: starts one gang after another, as jobs of their own") {
    const Folder folder;
    const Outcome o = run_script("2", "echo $TUTTI_RANK $TUTTI_JOB; ulimit -n",
                                 {"--gangs", "3", "--log-dir", folder.path / "logs"});
    CHECK(o.exit_code == 0);
    CHECK(o.err.empty());
    const std::multiset<std::string> lines = lines_of(o.out);
    CHECK(lines.size() == 12);
    // Three names, each twice; and ranks are given the limits that tutti-run was given.
    std::set<std::string> jobs, limits;
    for (const std::string& line : lines)
        (line.find(' ', 4) == std::string::npos ? limits : jobs).insert(line.substr(4));
    CHECK(jobs.size() == 6);
    CHECK(limits.size() == 1);
    CHECK(lines_of(contents(folder.path / "logs" / "rank-1.log")).size() == 6);
}

TEST_CASE("tutti-run: starts a gang again that failed, as often as it may") {
    const Folder folder;
    // Fails in its second and third turn.
    const std::string script = "cd '" + folder.path.string() +
                               "'; echo x >>turns; n=$(wc -l <turns); [ $n = 2 ] && kill -9 $$; "
                               "[ $n = 3 ] && exit 7; exit 0";
    SECTION("enough") {
        const Outcome o = run_script("1", script, {"--gangs", "2", "--restarts", "2"});
        CHECK(o.exit_code == 0);
        CHECK(contains(o.err, "gang 2 ended with exit code 137; starting it again, 1 of 2"));
        CHECK(contains(o.err, "gang 2 ended with exit code 7; starting it again, 2 of 2"));
        CHECK(contents(folder.path / "turns") == "x\nx\nx\nx\n");
    }
    SECTION("too few") {
        const Outcome o = run_script("1", script, {"--gangs", "2", "--restarts", "1"});
        CHECK(o.exit_code == 7);
        CHECK(contents(folder.path / "turns") == "x\nx\nx\n");
    }
}

TEST_CASE("tutti-run: starts no further gang after a signal or its time") {
    SECTION("signal") {
        // exec: a shell that is just starting a program may keep SIGINT until that has ended.
        Child child(with_program({"-n", "1", "--gangs", "1000", "--restarts", "1000", "/bin/sh",
                                  "-c", "echo ready; exec sleep 60"}));
        REQUIRE(child.wait_for_output("ready"));
        child.signal(GENERATE(SIGTERM, SIGINT));
        CHECK(child.finish() > 128);
    }
    SECTION("a deadline for all of them") {
        const Outcome o =
            run_script("1", "sleep 0.2", {"--gangs", "100000", "--timeout", "1", "--quiet"});
        CHECK(o.exit_code == 124);
    }
    SECTION("a program that is not there") {
        const Outcome o = run({"-n", "1", "--restarts", "100000", "/not/there"});
        CHECK(o.exit_code == 127);
    }
}

TEST_CASE("tutti-run: gives 128 + the signal that kept further gangs from starting") {
    // However the ranks took it.
    const std::string end = GENERATE("0", "7");
    const int number = GENERATE(SIGTERM, SIGINT);
    INFO("exit " << end << " after " << number);
    Child child(with_program(
        {"-n", "1", "--gangs", "3", "--restarts", "3", "/bin/sh", "-c",
         "trap 'exit " + end + "' TERM INT; echo ready; while :; do sleep 0.05; done"}));
    REQUIRE(child.wait_for_output("ready"));
    child.signal(number);
    CHECK(child.finish() == 128 + number);
    CHECK(lines_of(child.out()).size() == 1);
}

TEST_CASE("tutti-run: SIGHUP ends the job where a rank dies of it") {
    SECTION("and not where ranks go on") {
        // A gang that is told twice ends well, the next fails, the last ends well.
        const Folder folder;
        Child child(with_program(
            {"-n", "1", "--gangs", "2", "--restarts", "1", "/bin/sh", "-c",
             "cd '" + folder.path.string() +
                 "'; echo x >>turns; n=$(wc -l <turns); [ $n = 3 ] && exit 0; hups=0; "
                 "trap 'hups=$((hups + 1)); echo hup $n $hups' HUP; echo ready $n; "
                 "while [ $hups -lt 2 ]; do sleep 0.05; done; [ $n = 2 ] && exit 7; exit 0"}));
        for (const std::string gang : {"1", "2"}) {
            REQUIRE(child.wait_for_output("ready " + gang));
            child.signal(SIGHUP);
            REQUIRE(child.wait_for_output("hup " + gang + " 1"));
            child.signal(SIGHUP);
        }
        CHECK(child.finish() == 0);
        CHECK(contents(folder.path / "turns") == "x\nx\nx\n");
    }
    SECTION("with gangs and restarts still due") {
        Child child(with_program({"-n", "1", "--gangs", "3", "--restarts", "3", "/bin/sh", "-c",
                                  "echo ready; exec sleep 60"}));
        REQUIRE(child.wait_for_output("ready"));
        child.signal(SIGHUP);
        CHECK(child.finish() == 128 + SIGHUP);
        CHECK(lines_of(child.out()).size() == 1);
    }
}

TEST_CASE("tutti-run: gives 128 + signal when ranks die of one that was handed on") {
    Child child(with_program({"-n", "2", "/bin/sh", "-c", "echo ready; exec sleep 100"}));
    REQUIRE(child.wait_for_output("[0] ready"));
    REQUIRE(child.wait_for_output("[1] ready"));
    child.signal(SIGINT);
    CHECK(child.finish() == 128 + SIGINT);
}

TEST_CASE("tutti-run: says which program is missing or cannot be executed") {
    const Outcome missing = run({"-n", "2", "no-such-program"});
    CHECK(missing.exit_code == 127);
    CHECK(contains(missing.err, "no-such-program: not found"));
    const Outcome passive = run({"-n", "2", "/etc/passwd"});
    CHECK(passive.exit_code == 126);
    CHECK(contains(passive.err, "/etc/passwd: cannot be executed"));
}

TEST_CASE("tutti-run: names an interpreter that is missing") {
    const Folder folder;
    const std::string path = folder.path / "no-interpreter";
    const auto start = [&](const std::string& first_line, const std::string& program) {
        write_program(path, first_line + "\necho never\n");
        return run({"-n", "2", "--env", "PATH=/bin:" + folder.path.string(), program});
    };
    for (const std::string& program : {path, std::string("no-interpreter")}) {
        const Outcome o = start("#! /no/such/shell -e", program);
        CHECK(o.exit_code == 126);
        CHECK(contains(o.err, path + ": cannot be executed: its interpreter /no/such/shell is "));
    }
    const Outcome foreign = start("#!/bin/sh\r", path);
    CHECK(foreign.exit_code == 126);
    CHECK(contains(foreign.err, "its first line ends with CR LF"));
}

TEST_CASE("tutti-run: refuses wrong usage") {
    const Texts wrong = GENERATE(
        Texts{}, Texts{"-n", "0", "true"}, Texts{"-n", "2"},
        Texts{"-n", "2", "--no-such-option", "true"}, Texts{"-n", "2", "--hosts-act", "3", "true"},
        Texts{"-n", "2", "--env", "novalue", "true"}, Texts{"-n", "2", "--timeout", "nan", "true"},
        Texts{"-n", "2", "--timeout", "inf", "true"}, Texts{"-n", "2", "--grace", "nan", "true"},
        Texts{"-n", "2", "--timeout", "0", "true"}, Texts{"-n", "2", "--grace", "-1", "true"});
    const Outcome o = run(wrong);
    CHECK(o.exit_code == 2);
    CHECK_FALSE(o.err.empty());
    CHECK_FALSE(
        contains(o.err, "0000000000"));  // a range in words, not the largest number there is
}

TEST_CASE("tutti-run: leaves no process behind when it is killed") {
    // The shell and what it started: the second is reached only through its process group.
    Child child(with_program({"-n", "3", "/bin/sh", "-c",
                              "trap '' TERM INT HUP; sleep 100 & echo pid $! pid $$ ready; wait"}));
    for (const char* rank : {"[0]", "[1]", "[2]"})
        REQUIRE(child.wait_for_output(std::string(rank) + " pid"));
    const std::vector<pid_t> pids = pids_in(child.out());
    REQUIRE(pids.size() == 6);
    for (const pid_t pid : pids) CHECK(alive(pid));
    child.signal(SIGKILL);
    CHECK(child.finish() == 128 + SIGKILL);
    CHECK(eventually([&] { return all_gone(pids); }));
}

TEST_CASE("tutti-run: leaves no process behind that went into a session of its own") {
    // The second one's parent is killed first; the third never belonged to a rank.
    const Folder folder;
    Child child({"/bin/sh", "-c",
                 "cd '" + folder.path.string() +
                     "'; sleep 30 >/dev/null 2>&1 & echo own $!; exec '" TUTTI_RUN
                     "' -n 2 --gangs 2 /bin/sh -c '"
                     "setsid sleep 100 & echo pid $!; "
                     "setsid sh -c \"setsid sleep 100 & echo pid \\$!; >$TUTTI_JOB.$TUTTI_RANK; "
                     "wait\" & for i in $(seq 600); do [ -e $TUTTI_JOB.$TUTTI_RANK ] && break; "
                     "sleep 0.05; done'"});
    CHECK(child.finish() == 0);
    const std::vector<pid_t> pids = pids_in(child.out());
    CHECK(pids.size() == 8);
    CHECK(all_gone(pids));  // already
    const pid_t own = std::atoi(child.out().c_str() + std::string("own ").size());
    CHECK(alive(own));
    kill(own, SIGKILL);
}

TEST_CASE("tutti-run: reaps what ranks leave to it while they run") {
    Child child(with_program({"-n", "1", "/bin/sh", "-c",
                              "for i in 1 2 3; do (setsid true &); done; sleep 0.3; echo x; "
                              "for i in $(seq 100); do sleep 0.3; "
                              "z=$(ps -o stat= --ppid $PPID | grep -c Z); [ $z = 0 ] && break; "
                              "done; echo zombies $z"}));
    CHECK(child.finish() == 0);
    CHECK(contains(child.out(), "zombies 0"));
}

TEST_CASE("tutti-run: reaps what ranks leave to it at once, also while they say nothing") {
    // The rank writes nothing that would end tutti-run's sleep before the zombies are counted.
    Child child(
        with_program({"-n", "1", "/bin/sh", "-c",
                      "for i in 1 2 3; do (setsid sleep 0.3 &); done; sleep 1; "
                      "for i in $(seq 300); do z=$(ps -o stat= --ppid $PPID | grep -c Z); "
                      "[ $z = 0 ] && break; sleep 0.1; done; echo zombies $z after $i looks"}));
    CHECK(child.finish() == 0);
    CHECK(contains(child.out(), "zombies 0"));
}

TEST_CASE("tutti-run: leaves no process behind when a rank ends before what it started") {
    const Outcome o = run_script("2", "sleep 100 & echo pid $!");
    CHECK(o.exit_code == 0);
    const std::vector<pid_t> pids = pids_in(o.out);
    REQUIRE(pids.size() == 2);
    CHECK(eventually([&] { return all_gone(pids); }));
}

TEST_CASE("tutti-run: what a rank has started lives until the last rank has ended") {
    // Rank 1 waits for rank 0 to be gone, and then for what that has started.
    const Folder folder;
    const Outcome o = run_script(
        "2", "cd '" + folder.path.string() + "';" + soon_in_shell +
                 "if [ $TUTTI_RANK = 0 ]; then { soon '[ -e go ]'; echo helped >help; } & "
                 "echo $$ >0.pid; exit 0; fi; "
                 "soon '[ -s 0.pid ]'; soon '! kill -0 $(cat 0.pid) 2>/dev/null'; >go; "
                 "soon '[ -s help ]'");
    CHECK(o.exit_code == 0);
    CHECK(contents(folder.path / "help") == "helped\n");
}

TEST_CASE("tutti-run: leaves nothing behind of a rank that had ended when it is killed") {
    Child child(with_program({"-n", "2", "/bin/sh", "-c",
                              "[ $TUTTI_RANK = 0 ] && { sleep 100 & echo own $$ pid $!; exit 0; }; "
                              "echo pid $$; exec sleep 100"}));
    REQUIRE(child.wait_for_output("[0] own"));
    REQUIRE(child.wait_for_output("[1] pid"));
    const std::vector<pid_t> pids = pids_in(child.out());
    REQUIRE(pids.size() == 2);
    const pid_t ended = std::atoi(child.out().c_str() + child.out().find("own ") + 4);
    REQUIRE(eventually([&] { return kill(ended, 0) != 0; }));  // reaped
    CHECK_FALSE(all_gone({pids[0]}));
    CHECK_FALSE(all_gone({pids[1]}));
    child.signal(SIGKILL);
    CHECK(child.finish() == 128 + SIGKILL);
    CHECK(eventually([&] { return all_gone(pids); }));
}
