// One rank of a job in which something goes wrong. Prints what its calls came to, for the script.
// usage: tutti-run --keep-going -n N worker CASE [ARGUMENT]
#include "worker.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.h"

namespace {

int rank_of = 0, ranks = 1;
std::string argument;

void say(const char* what, tutti_status status, Clock::time_point start = Clock::now()) {
    std::printf("%s: %s; at fault %d; after %.3f s; %s\n", what, tutti_status_string(status),
                status == TUTTI_OK ? -1 : tutti_last_error_rank(), seconds_since(start),
                status == TUTTI_OK ? "" : tutti_last_error());
    std::fflush(stdout);
}

tutti_status sum(tutti_comm* comm, std::size_t count = 100) {
    std::vector<float> x(count, 1.0f);
    return tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM);
}

void works_on(tutti_comm* comm) {
    for (int i = 0; i < 5; ++i) {
        std::vector<float> z(1000u << (2 * i), static_cast<float>(rank_of + 1));
        const tutti_status status =
            tutti_allreduce(comm, z.data(), z.data(), z.size(), TUTTI_FLOAT32, TUTTI_SUM);
        const bool right =
            status == TUTTI_OK && z.back() == static_cast<float>(ranks * (ranks + 1) / 2);
        if (!right) return say("afterwards", status == TUTTI_OK ? TUTTI_ERR_SYSTEM : status);
    }
    say("afterwards", TUTTI_OK);
}

// The last rank calls something else; afterwards all call the same again.
void mismatch(tutti_comm* comm) {
    const bool odd = rank_of == ranks - 1;
    std::vector<float> x(100'000, 1.0f);
    std::vector<double> y(100'000, 1.0);
    const std::map<std::string, std::function<tutti_status()>> odd_calls = {
        {"count",
         [&] { return tutti_allreduce(comm, x.data(), x.data(), 99, TUTTI_FLOAT32, TUTTI_SUM); }},
        {"size",
         [&] {
             return tutti_allreduce(comm, x.data(), x.data(), 100'000, TUTTI_FLOAT32, TUTTI_SUM);
         }},
        {"dtype",
         [&] { return tutti_allreduce(comm, y.data(), y.data(), 100, TUTTI_FLOAT64, TUTTI_SUM); }},
        {"op",
         [&] { return tutti_allreduce(comm, x.data(), x.data(), 100, TUTTI_FLOAT32, TUTTI_MAX); }},
        {"collective", [&] { return tutti_broadcast(comm, x.data(), 100, TUTTI_FLOAT32, 0); }},
        {"barrier", [&] { return tutti_barrier(comm); }},
    };
    if (argument == "root") {
        // All ranks but the last give root 0. A rank whose broadcast returns gets the mismatch in a
        // later call, and not always in the next one, which may have found all that it needs.
        tutti_status status =
            tutti_broadcast(comm, x.data(), 100, TUTTI_FLOAT32, odd ? ranks - 1 : 0);
        for (int i = 0; i < 3 && status == TUTTI_OK; ++i) status = sum(comm);
        say("mismatch", status);
    } else if (argument == "wait") {
        // Each waits for a broadcast of the other: no one sends anything.
        say("mismatch", tutti_broadcast(comm, x.data(), 100, TUTTI_FLOAT32, rank_of == 0 ? 1 : 0));
    } else {
        say("mismatch", odd ? odd_calls.at(argument)() : sum(comm));
    }
    works_on(comm);
}

// The others have several operations under way when the last rank calls something else for the
// first of them, and then the same as they, one after the other.
void queue(tutti_comm* comm) {
    constexpr std::size_t calls = 4;
    const bool odd = rank_of == ranks - 1;
    std::vector<std::vector<float>> x(calls, std::vector<float>(100, 1.0f));
    std::vector<tutti_request*> requests(calls);
    char word = 0;
    if (odd) {
        for (int other = 0; other < ranks - 1; ++other)
            tutti_recv(comm, &word, 1, TUTTI_INT8, other, 1, nullptr);
    } else {
        for (std::size_t i = 0; i < calls; ++i)
            tutti_iallreduce(comm, x[i].data(), x[i].data(), 100, TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                             &requests[i]);
        tutti_send(comm, &word, 1, TUTTI_INT8, ranks - 1, 1);
    }
    for (std::size_t i = 0; i < calls; ++i)
        say(("call " + std::to_string(i)).c_str(),
            odd ? sum(comm, i == 0 ? 99 : 100) : tutti_wait(&requests[i], -1));
    works_on(comm);
}

// The rank named by the argument is killed while the others are in an operation that it never
// enters. A slow rank may still be in the first one.
void killed(tutti_comm* comm) {
    const tutti_status first = sum(comm);
    if (rank_of == std::stoi(argument)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        kill(getpid(), SIGKILL);
    }
    const auto start = Clock::now();
    say("operation", first == TUTTI_OK ? sum(comm, 200'000) : first, start);
    say("next", tutti_barrier(comm));
}

// Rank 0 has left in order when the rank named by the argument is killed in collectives of the
// others.
void killed_in_part(tutti_comm* comm) {
    tutti_comm* part = nullptr;
    if (tutti_comm_split(comm, rank_of == 0 ? -1 : 0, rank_of, &part) != TUTTI_OK || rank_of == 0)
        return;
    const auto start = Clock::now();
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK) {
        if (rank_of == std::stoi(argument) && seconds_since(start) > 0.7) kill(getpid(), SIGKILL);
        status = sum(part, 1000);
    }
    say("operation", status, start);
    tutti_comm_destroy(part);
}

// The rank named by the argument is stopped anywhere in a row of small collectives, and goes on
// when the others have heard of it.
void stopped_in_a_row(tutti_comm* comm) {
    const int victim = std::stoi(argument);
    int pid = getpid();
    if (tutti_broadcast(comm, &pid, 1, TUTTI_INT32, victim) != TUTTI_OK) return;
    std::thread stops;
    if (rank_of == 0)
        stops = std::thread([pid] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            kill(pid, SIGSTOP);
        });
    const auto start = Clock::now();
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK) status = sum(comm, 2);
    say("operation", status, start);
    if (!stops.joinable()) return;
    stops.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    let_continue(pid);
}

// The survivors of a loss go on as a job of their own, as docs/how-to/losses.md has it.
void went_on(tutti_comm* comm) {
    killed(comm);
    const int lost = tutti_last_error_rank();
    const std::string rank = std::to_string(rank_of - (rank_of > lost ? 1 : 0));
    const std::string size = std::to_string(ranks - 1);
    const std::pair<const char*, std::string> settings[] = {
        {"rank", rank},
        {"size", size},
        {"job", "without rank " + std::to_string(lost)},
        {"store", std::getenv("TUTTI_TEST_STORE")},
        {"store_hosted", "0"}};
    tutti_config* config = nullptr;
    tutti_config_create(&config);
    for (const auto& [key, value] : settings) tutti_config_set(config, key, value.c_str());
    tutti_comm* next = nullptr;
    say("without", tutti_comm_create(config, &next));
    tutti_config_destroy(config);
    say("sum without", sum(next));
    tutti_comm_destroy(next);
}

// A rank is killed, and a child that it had forked lives on, as a data loader's worker may.
void survived_by_a_child(tutti_comm* comm) {
    if (sum(comm) != TUTTI_OK) return;
    if (rank_of == std::stoi(argument) && fork() == 0) {
        setsid();  // or tutti-run ends it with the rank
        for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(standard);
        sleep(60);
        _exit(0);
    }
    killed(comm);
}

// The rank named by the argument is killed in the middle of large messages.
void halfway(tutti_comm* comm) {
    std::vector<float> x(4'000'000, 1.0f);
    const auto step = [&] {
        return tutti_allreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_MAX);
    };
    tutti_status status = step();
    std::thread killer;
    if (rank_of == std::stoi(argument))
        killer = std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            kill(getpid(), SIGKILL);
        });
    const auto start = Clock::now();
    while (status == TUTTI_OK) status = step();
    say("operation", status, start);
    if (killer.joinable()) killer.join();
}

// The last rank calls the barrier when the deadline of the others has passed. The one whose
// deadline is short calls it after the rest, so that only the last rank is missing.
void late(tutti_comm* comm) {
    if (sum(comm) != TUTTI_OK) return;
    const int hasty = ranks - 2;
    tutti_request* request = nullptr;
    if (rank_of > hasty) {
        // The deadline ends this receive. The rank only looks, as it must not count as blocked.
        char word = 0;
        tutti_status status =
            tutti_irecv(comm, &word, 1, TUTTI_INT8, 0, word_tag, nullptr, nullptr, &request);
        while (status == TUTTI_OK && tutti_test(&request) == TUTTI_IN_PROGRESS)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return say("operation", tutti_barrier(comm));
    }
    if (rank_of > 0 && receive_word(comm, rank_of - 1) != TUTTI_OK) return;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    if (rank_of == hasty) opts.timeout_ms = 1000;
    const auto start = Clock::now();
    tutti_status status = tutti_ibarrier(comm, &opts, &request);
    if (rank_of < hasty) send_word(comm, rank_of + 1);
    if (status == TUTTI_OK) status = tutti_wait(&request, -1);
    say("operation", status, start);
}

// A slow rank may still be in the first sum when another one aborts.
void aborted(tutti_comm* comm) {
    const tutti_status first = sum(comm);
    if (rank_of == std::stoi(argument)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        say("abort", tutti_comm_abort(comm));
        return say("operation", tutti_barrier(comm));
    }
    say("operation", first == TUTTI_OK ? sum(comm, 200'000) : first);
}

// One rank destroys its communicator and goes; the others call on.
void left(tutti_comm* comm) {
    say("before", sum(comm));
    if (rank_of == std::stoi(argument)) return;
    const auto start = Clock::now();
    say("operation", sum(comm), start);
}

// All return without destroying the communicator, right after their last call.
void unsaid(tutti_comm* comm) {
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 20 && status == TUTTI_OK; ++i) status = sum(comm, 2);
    say("operation", status);
    std::exit(status);
}

// The rank named by the argument ends without a goodbye right after its last call, which the others
// may still be in.
void cut_off(tutti_comm* comm) {
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 20 && status == TUTTI_OK; ++i) status = sum(comm, 2);
    if (rank_of == std::stoi(argument)) _exit(status);
    say("operation", status);
}

// It had sent its last message before the others ask for it.
void cut_off_early(tutti_comm* comm) {
    const int victim = std::stoi(argument);
    float x = 1;
    if (tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, victim) != TUTTI_OK) return;
    tutti_barrier(comm);
    x = rank_of == victim ? 7 : 0;
    if (rank_of != victim) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const tutti_status status = tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, victim);
    if (rank_of == victim) _exit(status);
    say("operation", status == TUTTI_OK && x != 7 ? TUTTI_ERR_SYSTEM : status);
    say("next", tutti_barrier(comm));
}

// Rank 0 lacks nothing of the rank that is gone: it only sends.
void goes_on_sending(tutti_comm* comm) {
    float x = 1;
    tutti_status status = tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, 0);
    if (rank_of == 1) _exit(status);
    const auto start = Clock::now();
    while (status == TUTTI_OK && Clock::now() - start < std::chrono::seconds(45)) {
        status = tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    say("operation", status);
}

// Rank 1 is stopped, and the others leave without it.
void frozen(tutti_comm* comm) {
    int pid = getpid();
    if (sum(comm, 100'000) != TUTTI_OK ||
        tutti_broadcast(comm, &pid, 1, TUTTI_INT32, 1) != TUTTI_OK)
        return;
    if (rank_of == 1) {
        raise(SIGSTOP);
        return;
    }
    std::vector<float> x(1'000'000, 1.0f);
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = 2000;
    tutti_status status = tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32,
                                           TUTTI_SUM, &opts, &request);
    if (status == TUTTI_OK) status = tutti_wait(&request, -1);
    say("operation", status);
    const auto start = Clock::now();
    say("left", tutti_comm_destroy(comm), start);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    if (rank_of == 0) let_continue(pid);
    std::exit(0);
}

// Rank 0 is in its exit handlers when the other first wants to reach it.
void late_peer(tutti_comm* comm) {
    if (rank_of == 0) std::exit(7);
    await_word(argument, "exits");
    char word = 0;
    say("operation", tutti_send(comm, &word, 1, TUTTI_INT8, 0, 1));
    leave_word(argument, "sent");
    std::exit(7);
}
void exit_slowly() {
    if (rank_of != 0) return;
    leave_word(argument, "exits");
    await_word(argument, "sent");
}

// A communicator of a static object, whose destructor comes after the handlers of libraries that
// were loaded later.
struct Global {
    tutti_comm* comm = nullptr;
    ~Global() {
        const bool there = comm != nullptr;
        const tutti_status status = tutti_comm_destroy(comm);
        if (there) say("destructor", status);
    }
} global;
void left_to_a_global(tutti_comm* comm) {
    global.comm = comm;
    say("operation", sum(comm));
    std::exit(0);
}

// Rank 0 ends while a thread of it waits for the others, and they for rank 0.
void inside(tutti_comm* comm) {
    if (rank_of == 0) {
        std::thread([comm] { tutti_barrier(comm); }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        std::exit(0);
    }
    char word = 0;
    const auto start = Clock::now();
    say("operation", tutti_recv(comm, &word, 1, TUTTI_INT8, 0, 1, nullptr), start);
    std::exit(0);
}

// A child that a rank has forked ends by exit, and the rank goes on.
void child_exits(tutti_comm* comm) {
    if (sum(comm) != TUTTI_OK) return;
    if (rank_of == 0) {
        const pid_t child = fork();
        if (child == 0) std::exit(0);
        int ended = -1;
        waitpid(child, &ended, 0);
        if (ended != 0) return say("operation", TUTTI_ERR_SYSTEM);
    }
    say("operation", sum(comm, 100'000));
}

// The rank named by the argument is killed; the others exit as soon as they hear of it.
void exits_on_error(tutti_comm* comm) {
    tutti_status status = sum(comm);
    if (rank_of == std::stoi(argument)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        kill(getpid(), SIGKILL);
    }
    while (status == TUTTI_OK) status = sum(comm, 10'000);
    say("operation", status);
    std::exit(0);
}

// Rank 1 is stopped when rank 0 first wants to reach it, for the purpose that the argument names.
// The calls before that need no channel within a host.
void stopped(tutti_comm* comm) {
    int pid = getpid(), both = 0;
    if (tutti_allreduce(comm, &pid, &both, 1, TUTTI_INT32, TUTTI_SUM) != TUTTI_OK) return;
    if (rank_of == 1) {
        raise(SIGSTOP);
        return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::vector<float> x(1'000'000, 1.0f);
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = 500;
    std::thread aborts;
    if (argument == "aborted") {
        opts.timeout_ms = 0;  // never
        aborts = std::thread([comm] {
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
            tutti_comm_abort(comm);
        });
    }
    const auto start = Clock::now();
    tutti_status status =
        argument == "allreduce"
            ? tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM, &opts,
                               &request)
            : tutti_isend(comm, x.data(), x.size(), TUTTI_FLOAT32, 1, 1, &opts, &request);
    if (status == TUTTI_OK) status = tutti_wait(&request, -1);
    say("operation", status, start);
    if (aborts.joinable()) aborts.join();
    let_continue(both - pid);
}

// The rank named by the argument is stopped before an allreduce, and goes on when the others have
// heard of it and have used a communicator without it.
void hung(tutti_comm* comm) {
    const int victim = std::stoi(argument);
    int pid = getpid();
    tutti_comm* others = nullptr;
    if (tutti_comm_split(comm, rank_of == victim ? -1 : 0, rank_of, &others) != TUTTI_OK ||
        sum(comm, 1'000'000) != TUTTI_OK ||
        tutti_broadcast(comm, &pid, 1, TUTTI_INT32, victim) != TUTTI_OK)
        return;
    if (rank_of == victim) {
        raise(SIGSTOP);
        return;
    }
    say("before", sum(others, 1'000'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::vector<float> x(8'000'000, 1.0f);
    tutti_request* request = nullptr;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = 2000;
    const auto start = Clock::now();
    tutti_status status = tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32,
                                           TUTTI_SUM, &opts, &request);
    if (status == TUTTI_OK) status = tutti_wait(&request, -1);
    say("operation", status, start);
    say("without", sum(others, 100'000));
    if (rank_of == (victim == 0 ? 1 : 0)) let_continue(pid);
    tutti_comm_destroy(others);
}

void exhaust() {
    if (!exhaust_memory()) say("exhaust", TUTTI_ERR_SYSTEM);
}

// There is no more shared memory when one rank's first large message needs some.
void exhausted(tutti_comm* comm) {
    const int victim = std::stoi(argument);
    say("before", sum(comm));
    // The failure ends what other ranks are still in.
    if (rank_of != victim) send_word(comm, victim);
    for (int other = 0; rank_of == victim && other < ranks; ++other)
        if (other != victim) receive_word(comm, other);
    if (rank_of == victim) exhaust();
    say("operation", sum(comm, 1'000'000));
    say("next", tutti_barrier(comm));
}

// The same with messages: the small one needs little.
void exhausted_message(tutti_comm* comm) {
    std::vector<float> x(1'000'000, 1.0f);
    const int victim = std::stoi(argument), other = victim == 0 ? 1 : 0;
    const auto exchange = [&](std::size_t count) {
        if (rank_of == victim) return tutti_send(comm, x.data(), count, TUTTI_FLOAT32, other, 1);
        return tutti_recv(comm, x.data(), count, TUTTI_FLOAT32, victim, 1, nullptr);
    };
    say("before", exchange(10));
    if (rank_of != victim) send_word(comm, victim);
    if (rank_of == victim && receive_word(comm, other) == TUTTI_OK) exhaust();
    say("operation", exchange(x.size()));
}

// One rank can open no more files when another passes it more shared memory.
void out_of_files(tutti_comm* comm) {
    say("before", sum(comm, 100'000));
    const int victim = std::stoi(argument), other = 1 - victim;
    if (rank_of == victim) {
        const int lowest_free = dup(STDIN_FILENO);
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = static_cast<rlim_t>(lowest_free);
        close(lowest_free);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    say("barrier", tutti_barrier(comm));
    // Enough at once to fill what was passed in the beginning.
    constexpr std::size_t at_once = 16;
    std::vector<std::vector<float>> x(at_once, std::vector<float>(1'000'000));
    std::vector<tutti_request*> requests(at_once);
    tutti_status status = TUTTI_OK;
    for (std::size_t i = 0; i < at_once && status == TUTTI_OK; ++i)
        status = tutti_ibroadcast(comm, x[i].data(), x[i].size(), TUTTI_FLOAT32, other, nullptr,
                                  &requests[i]);
    for (tutti_request*& request : requests) {
        if (status != TUTTI_OK || !request) break;
        status = tutti_wait(&request, -1);
    }
    say("operation", status);
}

// A non-blocking operation is pending when its communicator is destroyed.
void pending(tutti_comm* comm) {
    std::vector<float> x(1000, 1.0f);
    tutti_request* request = nullptr;
    if (rank_of == 0) {
        say("start", tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM,
                                      nullptr, &request));
        say("short wait", tutti_wait(&request, 50));
        const auto start = Clock::now();
        say("destroy", tutti_comm_destroy(comm), start);
        say("operation", tutti_wait(&request, -1));
        std::exit(0);
    }
    receive_word(comm, 0);  // rank 0 sends none: this ends when it has left
    say("operation", sum(comm));
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, void (*)(tutti_comm*)> cases = {
        {"mismatch", mismatch},
        {"queue", queue},
        {"killed", killed},
        {"killed_in_part", killed_in_part},
        {"stopped_in_a_row", stopped_in_a_row},
        {"went_on", went_on},
        {"survived_by_a_child", survived_by_a_child},
        {"halfway", halfway},
        {"late", late},
        {"aborted", aborted},
        {"left", left},
        {"unsaid", unsaid},
        {"cut_off", cut_off},
        {"cut_off_early", cut_off_early},
        {"frozen", frozen},
        {"goes_on_sending", goes_on_sending},
        {"late_peer", late_peer},
        {"left_to_a_global", left_to_a_global},
        {"inside", inside},
        {"child_exits", child_exits},
        {"exits_on_error", exits_on_error},
        {"stopped", stopped},
        {"hung", hung},
        {"pending", pending},
        {"exhausted", exhausted},
        {"exhausted_message", exhausted_message},
        {"out_of_files", out_of_files},
        {"nothing", [](tutti_comm*) {}},
        {"full", [](tutti_comm* comm) { say("operation", sum(comm, 1'000'000)); }},
    };
    if (argc > 2) argument = argv[2];
    const char* launched_as = std::getenv("TUTTI_RANK");
    if (argv[1] == std::string("full") && launched_as && launched_as == argument) exhaust();
    if (argv[1] == std::string("late_peer")) std::atexit(exit_slowly);
    tutti_comm* comm = nullptr;
    tutti_config* config = nullptr;
    if (const char* store = std::getenv("TUTTI_TEST_STORE_OF_RANK_0")) {
        tutti_config_create(&config);
        tutti_config_set(config, "store", store);
        tutti_config_set(config, "store_hosted", "0");
    }
    const auto start = Clock::now();
    const tutti_status status = tutti_comm_create(config, &comm);
    tutti_config_destroy(config);
    if (status != TUTTI_OK) {
        say("create", status, start);
        return 1;
    }
    rank_of = tutti_comm_rank(comm);
    ranks = tutti_comm_size(comm);
    cases.at(argv[1])(comm);
    const auto destroying = Clock::now();
    const tutti_status destroyed = tutti_comm_destroy(comm);
    say("destroy", destroyed, destroying);
    return 0;
}
