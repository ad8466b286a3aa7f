// Rank 1 sends messages and is killed; rank 0 asks for them when it has heard of that. Prints what
// its calls came to, for the script.
// usage: tutti-run --keep-going -n N last_words FOLDER (empty)
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
enum Tag { small = 1, last_before_pause, announced, never_sent, of_survivor };
constexpr int queued = 100, in_channel = 2;
constexpr std::size_t large = 1'000'000;

void say(const char* what, tutti_status status, Clock::time_point start) {
    std::printf("%s: %s; at fault %d; after %.3f s; %s\n", what, tutti_status_string(status),
                status == TUTTI_OK ? -1 : tutti_last_error_rank(),
                std::chrono::duration<double>(Clock::now() - start).count(),
                status == TUTTI_OK ? "" : tutti_last_error());
    std::fflush(stdout);
}

tutti_status send(tutti_comm* comm, int value, Tag tag) {
    return tutti_send(comm, &value, 1, TUTTI_INT32, 0, tag);
}

// A value that is not the wanted one is an error, too.
tutti_status receive(tutti_comm* comm, int wanted, int from, Tag tag) {
    int value = -1;
    const tutti_status status = tutti_recv(comm, &value, 1, TUTTI_INT32, from, tag, nullptr);
    return status == TUTTI_OK && value != wanted ? TUTTI_ERR_SYSTEM : status;
}

void be_killed(tutti_comm* comm) {
    for (int i = 0; i < queued; ++i) send(comm, i, small);
    send(comm, 0, last_before_pause);
    for (int i = 0; i < in_channel; ++i) send(comm, queued + i, small);
    std::vector<int> data(large);
    tutti_request* request = nullptr;
    tutti_isend(comm, data.data(), data.size(), TUTTI_INT32, 0, announced, nullptr, &request);
    std::this_thread::sleep_for(milliseconds(300));
    kill(getpid(), SIGKILL);
}

void ask(tutti_comm* comm) {
    // This keeps what came before it in the queue of messages that no receive wants.
    say("before", receive(comm, 0, 1, last_before_pause), Clock::now());
    // Sends fail once this rank has heard of the death.
    const auto alive = Clock::now();
    tutti_status status = TUTTI_OK;
    for (const int word = 0; status == TUTTI_OK && Clock::now() - alive < std::chrono::seconds(45);
         std::this_thread::sleep_for(milliseconds(50)))
        status = tutti_send(comm, &word, 1, TUTTI_INT32, 1, small);
    say("send", status, alive);
    const auto start = Clock::now();
    status = TUTTI_OK;
    for (int i = 0; i < queued && status == TUTTI_OK; ++i) status = receive(comm, i, 1, small);
    say("queued", status, start);
    say("any", receive(comm, queued, TUTTI_ANY_SOURCE, small), start);
    if (tutti_comm_size(comm) > 2) say("survivor", receive(comm, 7, 2, of_survivor), start);
    std::vector<int> data(large);
    const auto large_start = Clock::now();
    say("announced", tutti_recv(comm, data.data(), data.size(), TUTTI_INT32, 1, announced, nullptr),
        large_start);
    const auto never_start = Clock::now();
    say("never", receive(comm, 0, 1, never_sent), never_start);
    say("barrier", tutti_barrier(comm), Clock::now());
    // It is here; but an operation has failed, and so does every call after it.
    say("after", receive(comm, queued + 1, 1, small), Clock::now());
}

}  // namespace

int main(int, char** argv) {
    const std::string asked = std::string(argv[1]) + "/asked";  // rank 2 stays until then
    tutti_comm* comm = nullptr;
    if (tutti_comm_create(nullptr, &comm) != TUTTI_OK) return 1;
    const int rank = tutti_comm_rank(comm);
    if (rank == 0) ask(comm);
    if (rank == 0) std::ofstream(asked).put('\n');
    if (rank == 1) be_killed(comm);
    if (rank == 2) {
        send(comm, 7, of_survivor);
        for (int i = 0; i < 6000 && !std::filesystem::exists(asked); ++i)
            std::this_thread::sleep_for(milliseconds(10));
    }
    tutti_comm_destroy(comm);
    return 0;
}
