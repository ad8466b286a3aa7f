// Ranks that leave a communicator and keep its handle.
#include "comm/job.h"

using namespace comm_test;

namespace {

constexpr std::size_t count = 1000;

/// "": it ended with that code. The text has that part.
std::string sum_ends_with(Communicator& comm, Code code, std::string_view part) {
    std::vector<float> x(count, 1);
    const auto done = comm.calls().run(sum_of(count), x.data(), x.data());
    if (done) return "the sum succeeded";
    if (done.error().code == code && done.error().message.find(part) != std::string::npos)
        return "";
    return done.error().message;
}

}  // namespace

TEST_CASE("leave: the others hear of it, and shrink without the rank") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        expect_no_problem(run({4, transport}, [](Communicator& comm, Rank rank) -> std::string {
            std::vector<float> x(count, 1);
            if (auto done = comm.calls().run(sum_of(count), x.data(), x.data()); !done)
                return done.error().message;
            if (rank == 2) {
                comm.destroy(Communicator::UserHandle::kept);
                return sum_ends_with(comm, Code::invalid, "this rank has left the communicator");
            }
            if (auto problem = sum_ends_with(comm, Code::peer_lost, "rank 2 has left");
                !problem.empty())
                return problem;
            auto smaller = comm.recovery().shrink("tutti_comm_shrink", {});
            if (!smaller) return smaller.error().message;
            if (auto done = (*smaller)->calls().run(sum_of(count), x.data(), x.data()); !done)
                return done.error().message;
            return (*smaller)->size() == 3 && x.front() == 12 ? "" : "a wrong sum";
        }));
    }
}

TEST_CASE("leave: works after a failure") {
    expect_no_problem(run({2, "shm"}, [](Communicator& comm, Rank) -> std::string {
        comm.abort();
        comm.destroy(Communicator::UserHandle::kept);
        comm.abort();
        return sum_ends_with(comm, Code::invalid, "has left");
    }));
}
