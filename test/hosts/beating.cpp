// A rank that makes sums until the test says "stop", and goes on with the ranks that are left.
// usage: beating FOLDER [COMPUTE_MS]
// It prints lines: "ready" after the first sum; "error MS RANK TEXT" with the monotonic time and
// the rank at fault when a call fails; "smaller MS SIZE" after a shrink, "excluded MS TEXT" if that
// fails; "sums N SIZE" at the end. FOLDER/stop ends it. If FOLDER/compute-R is there, rank R
// computes once for COMPUTE_MS. While FOLDER/hold-R is there, rank R of the job does not begin to
// shrink.
#include <tutti/tutti.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t count = 3000;  // elements: the last one counts the ranks that want to stop

long long now_ms() {
    return std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count();
}

void say(const char* what, const std::string& rest) {
    std::printf("%s %lld %s\n", what, now_ms(), rest.c_str());
    std::fflush(stdout);
}

std::string failure() {
    return std::to_string(tutti_last_error_rank()) + " " + tutti_last_error();
}

[[noreturn]] void end(const char* what) {
    say(what, failure());
    std::_Exit(3);  // its sockets close without a goodbye
}

/// A call ends with an error while another rank may still take part in it, so all ranks leave it
/// behind: they revoke the communicator.
tutti_comm* shrink(tutti_comm* comm) {
    tutti_comm_revoke(comm);
    tutti_comm* smaller = nullptr;
    if (tutti_comm_shrink(comm, &smaller) != TUTTI_OK) end("excluded");
    tutti_comm_destroy(comm);
    say("smaller", std::to_string(tutti_comm_size(smaller)));
    return smaller;
}

}  // namespace

int main(int argc, char** argv) {
    const fs::path folder = argc > 1 ? argv[1] : ".";
    const milliseconds compute(argc > 2 ? std::atoi(argv[2]) : 0);
    tutti_comm* comm = nullptr;
    if (tutti_comm_create(nullptr, &comm) != TUTTI_OK) end("unable");
    const std::string name = std::to_string(tutti_comm_rank(comm));
    const fs::path computes = folder / ("compute-" + name), holds = folder / ("hold-" + name);
    static std::array<uint32_t, count> in, out;
    uint64_t sums = 0;
    for (bool stops = false, computed = false; !stops;) {
        in.fill(1);
        in.back() = fs::exists(folder / "stop") ? 1 : 0;
        const tutti_status status =
            tutti_allreduce(comm, in.data(), out.data(), count, TUTTI_UINT32, TUTTI_SUM);
        if (status != TUTTI_OK) {
            say("error", failure());
            while (fs::exists(holds)) std::this_thread::sleep_for(milliseconds(2));
            comm = shrink(comm);
            continue;
        }
        const auto size = static_cast<uint32_t>(tutti_comm_size(comm));
        for (std::size_t i = 0; i + 1 < count; ++i)
            if (out.at(i) != size) end("wrong");
        stops = out.back() > 0;
        if (sums++ == 0) say("ready", "");
        if (!computed && fs::exists(computes)) {
            computed = true;
            for (const auto until = Clock::now() + compute; Clock::now() < until;) continue;
        }
        std::this_thread::sleep_for(milliseconds(2));
    }
    std::printf("sums %llu %d\n", static_cast<unsigned long long>(sums), tutti_comm_size(comm));
    return tutti_comm_destroy(comm) == TUTTI_OK ? 0 : 1;
}
