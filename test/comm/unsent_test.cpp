// Tests that the service thread sends the bytes that a call left when socket buffers were full.
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>

#include "comm/job.h"
#include "p2p/transfer.h"

using namespace comm_test;

namespace {

constexpr std::size_t message_bytes = 32 * 1024;  // small enough to be sent before its receive
constexpr int messages = 4;

/// Covers every connection of this process, as both ranks run in it.
void make_send_buffers_tiny() {
    DIR* const open = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(open)) {
        const int fd = std::atoi(entry->d_name), tiny = 1;
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof tiny);
    }
    ::closedir(open);
}

std::string pass(Communicator& comm, bool sends, std::vector<std::byte>& data) {
    Transfer transfer;
    transfer.sends = sends;
    transfer.peer = 1 - comm.rank();
    transfer.memory = data.data();
    transfer.bytes = data.size();
    const auto done = comm.messages().run(transfer);
    return done ? "" : done.error().message;
}

/// True unless it takes so long that it will never be.
bool comes(const std::atomic<bool>& what) {
    const Deadline patience = Deadline::after_ms(20'000);
    while (!what && !patience.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return what;
}

/// Rank 0 sends, and computes until rank 1 has it all.
std::string send_and_compute(Communicator& comm, std::atomic<bool>& there, bool beside) {
    std::vector<std::byte> data(message_bytes, std::byte{7});
    const bool sends = comm.rank() == 0;
    std::string problem = pass(comm, sends, data);
    if (problem.empty()) problem = pass(comm, !sends, data);
    if (!problem.empty()) return problem;
    if (sends) make_send_buffers_tiny();
    float x = 1.0f;
    std::unique_ptr<Request> request;
    if (beside && sends) {
        auto started = comm.calls().start(sum_of(1), 0, -1, &x, &x);
        if (!started) return started.error().message;
        request = std::move(*started);
    }
    for (int i = 0; i < messages && problem.empty(); ++i) problem = pass(comm, sends, data);
    if (!sends) there = true;
    if (problem.empty() && !comes(there)) problem = "it waits for this rank's next call";
    if (beside && !sends) {
        auto started = comm.calls().run(sum_of(1), &x, &x);
        if (!started) return started.error().message;
    }
    if (request) comm.progress().wait(*request, -1);
    return problem;
}

}  // namespace

TEST_CASE("unsent: what a call has left goes out while the program computes") {
    for (const bool beside : {false, true}) {
        INFO("with a request under way: " << beside);
        std::atomic<bool> there{false};
        expect_no_problem(run({2, "tcp"}, [&](Communicator& comm, Rank) {
            return send_and_compute(comm, there, beside);
        }));
    }
}
