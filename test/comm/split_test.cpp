// Tests failures while ranks split a communicator.
#include <atomic>
#include <stdexcept>

#include "comm/job.h"
#include "net/serving.h"

using namespace comm_test;

namespace {

/// Ends rank 0's reads of the store with an answer, at the deadline, or by an exception.
struct Faults {
    enum class Way { answer, hang, burn };
    std::atomic<Way> way{Way::answer};
    std::atomic<bool> hung{false};
};

class FaultyStore final : public StoreBehind {
public:
    FaultyStore(std::unique_ptr<Store> inner, Faults& faults)
        : StoreBehind(std::move(inner)), faults_(faults) {}

private:
    Result<> before_look(Deadline deadline) override {
        if (faults_.way == Faults::Way::answer) return {};
        if (faults_.way == Faults::Way::burn) throw std::runtime_error("the store has burnt down");
        faults_.hung = true;
        while (!deadline.passed() && !net::wait_cancelled()) net::poll_serving(nullptr, 5);
        return fail(Code::timeout, "the store says nothing");
    }
    Faults& faults_;
};

/// Splits where rank 0, which the others wait for, meets with the fault; each rank then says what
/// is wrong about the failure that it got. Ends long before the deadline: of a rank that hangs, by
/// rank 1's call of `end`.
void split_badly(const std::string& transport, Faults& faults, Faults::Way way,
                 const std::function<std::string(Communicator&, const Error&)>& judge,
                 void (Communicator::*end)() = &Communicator::abort) {
    Job job{4, transport};
    job.change = [](Config& config) {
        config.timeout_ms = 150'000;
        config.algo = "ring";  // rank 0 has yet to look up all but its neighbour when they split…
        config.exchange_records = false;  // … as in a large job
    };
    job.store = [&](std::unique_ptr<Store> inner, Rank rank) -> std::shared_ptr<Store> {
        if (rank != 0) return inner;
        return std::make_shared<FaultyStore>(std::move(inner), faults);
    };
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        // This split opens the channels over which ranks agree: the fault hits a later read.
        if (auto none = comm.split(-1, rank); !none) return none.error().message;
        if (rank == 0) faults.way = way;
        std::thread aborter;
        if (rank == 1 && way == Faults::Way::hang)
            aborter = std::thread([&] {
                const Deadline patience = Deadline::after_ms(20'000);
                while (!faults.hung && !patience.passed()) std::this_thread::yield();
                (comm.*end)();
            });
        const int64_t start_ns = now_ns();
        const auto part = comm.split(0, rank);
        if (aborter.joinable()) aborter.join();
        if (now_ns() - start_ns > soon_ns) return "it took as long as the deadline";
        return part ? "the split succeeded" : judge(comm, part.error());
    }));
}

}  // namespace

TEST_CASE(
    "split: an abort or a revoke ends it for a rank that waits for the store and for who waits for "
    "that") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    const bool revokes = GENERATE(false, true);
    INFO(transport << (revokes ? ", revoke" : ", abort"));
    Faults faults;
    split_badly(
        transport, faults, Faults::Way::hang,
        [&](Communicator&, const Error& error) {
            const Code wanted = revokes ? Code::revoked : Code::aborted;
            return error.code == wanted ? std::string() : error.message;
        },
        revokes ? &Communicator::revoke : &Communicator::abort);
}

// Each of them begins with the same collective as the others: only its name tells it apart.
TEST_CASE("split: dup, split, split_host and a barrier do not pass for one another") {
    using Make = std::function<Result<std::shared_ptr<Communicator>>(Communicator&)>;
    struct Way {
        std::string name;
        Make make;
    };
    const std::vector<Way> ways = {
        {"'dup'", [](Communicator& comm) { return comm.dup(); }},
        {"'split'", [](Communicator& comm) { return comm.split(0, 0); }},
        {"'split host'", [](Communicator& comm) { return comm.split_host(0); }},
        {"barrier #",
         [](Communicator& comm) -> Result<std::shared_ptr<Communicator>> {
             Call call;
             call.collective = Collective::barrier;
             TUTTI_TRY(comm.calls().run(call, nullptr, nullptr));
             return std::shared_ptr<Communicator>();
         }},
    };
    for (const char* transport : {"inproc", "shm", "tcp"}) {
        INFO(transport);
        expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            for (const Way& one : ways)
                for (const Way& other : ways) {
                    const auto made = (rank == 1 ? one : other).make(comm);
                    if (one.name == other.name) {
                        if (!made) return made.error().message;
                        if (*made && (*made)->size() != 3) return "a part of a wrong size";
                        if (*made) (*made)->destroy();
                        continue;
                    }
                    if (made) return one.name + " passed for " + other.name;
                    const Error& error = made.error();
                    if (error.code != Code::mismatch ||
                        error.message.find(one.name) == std::string::npos ||
                        error.message.find(other.name) == std::string::npos)
                        return error.message;
                }
            return "";
        }));
    }
}

TEST_CASE("split: a rank that fails after the others were promised it tells them why") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    INFO(transport);
    Faults faults;
    split_badly(transport, faults, Faults::Way::burn,
                [&](Communicator& comm, const Error& error) -> std::string {
                    if (error.message.find("has burnt down") == std::string::npos)
                        return error.message;
                    if (comm.rank() == 0) faults.way = Faults::Way::answer;
                    float x = 1;
                    const auto summed = comm.calls().run(sum_of(1), &x, &x);
                    if (!summed) return summed.error().message;
                    return x == 4 ? "" : "a wrong sum afterwards";
                });
}

// Rank 0 does what a split does before it makes its part; then the whole communicator ends.
TEST_CASE("split: an end of the whole ends it although a rank has not made its part") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    INFO(transport);
    std::atomic<int> over{0};
    expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
        if (rank != 0) {
            const auto part = comm.split(0, rank);
            ++over;
            if (part) return "it succeeded";
            return part.error().code == Code::revoked ? "" : part.error().message;
        }
        std::vector<int64_t> wish = {0, 0, 1, 0, 0}, wishes(wish.size() * 3);
        Call gather;
        gather.collective = Collective::allgather;
        gather.count = wish.size();
        gather.dtype = Dtype::int64;
        if (!comm.calls().begin("split") ||
            !comm.calls().run_own(gather, wish.data(), wishes.data()) ||
            !comm.calls().all_agree(true))
            return "the split has other steps now";
        // The others wait in their parts by now, or will.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        comm.revoke();
        return eventually([&] { return over == 2; }) ? "" : "the others wait for this rank";
    }));
}
