// Ranks of a job whose ranks die. Each runs operations until one fails, goes on with the ranks that
// remain, and prints the members of every communicator. The script kills them and compares.
// usage: survivor --seed N --menu NAME,… --stop FILE [--threads N --store URL]
//                 [--die NAME:MOMENT:NTH:MICROSECONDS]…
// A rank of a process of its own takes its place from the environment. With --threads, all ranks
// are threads of this process, and a rank dies by aborting its communicator and leaving.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "doom.h"
#include "operations.h"

using namespace recovery_test;

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    uint64_t seed = 0;
    std::vector<Operation> menu;
    bool retires = false;  // ranks that are alive are left out, too
    std::string stop;      // a file: the job ends when it is there
    int threads = 0;
    std::string store;
    std::vector<DoomPlan> doomed;
};
Options options;
char doing[64] = "join";  // for SIGUSR1; unused where ranks are threads

void tell_what_it_does(int) {
    (void)!write(STDOUT_FILENO, "DOING ", 6);
    (void)!write(STDOUT_FILENO, doing, strnlen(doing, sizeof doing));
    (void)!write(STDOUT_FILENO, "\n", 1);
}

/// One rank's life.
class Survivor {
public:
    Survivor(int name, tutti_comm* comm) {
        ranks_.comm = comm;
        ranks_.rank = name;
        for (int i = 0; i < tutti_comm_size(comm); ++i) ranks_.names.push_back(i);
        for (const DoomPlan& plan : options.doomed)
            if (plan.name == name) doom_ = std::make_unique<Doom>(plan, [this] { strike(); });
    }

    void live() {
        while (!over_ && agree_to_go_on()) {
            const bool healthy = work();
            if (!over_) regroup(healthy);
        }
        doom_.reset();
        tutti_comm_destroy(ranks_.comm);
        say(gone_ ? "gone" : cut_off_ ? "cut off" : left_out_ ? "left out" : "over");
    }

private:
    int name() const { return ranks_.name(); }
    void say(const std::string& text) const {
        // One call, because other ranks may be threads of this process.
        std::printf("[%d] %s\n", name(), text.c_str());
        std::fflush(stdout);
    }
    [[noreturn]] void fail(const std::string& what) const {
        throw WrongResult(doing_ + " in generation " + std::to_string(generation_) + ": " + what);
    }
    void need(tutti_status status, const char* call) const {
        if (status != TUTTI_OK) fail(std::string(call) + ": " + tutti_last_error());
    }

    /// Notes what the rank does next, for its doom and for the reader of an error or a hang.
    void begin(const char* what) {
        doing_ = what;
        if (options.threads == 0)
            std::snprintf(doing, sizeof doing, "%s in generation %d", what, generation_);
        if (doom_ && all_joined_) doom_->reach(what);
    }

    void strike() {
        if (options.threads == 0) kill(getpid(), SIGKILL);
        const std::lock_guard lock(ends_);
        gone_ = true;
        tutti_comm_abort(ranks_.comm);
    }

    /// Whether this rank's own end explains a failure; then its life is over.
    bool ended_by_itself() {
        const std::lock_guard lock(ends_);
        if (gone_) over_ = true;
        return over_;
    }

    /// False after a failure, which must come from another rank's end.
    bool succeeded(tutti_status status) { return succeeded(Outcome(ranks_, status)); }
    bool succeeded(const Outcome& outcome) {
        const tutti_status status = outcome.status;
        if (status == TUTTI_OK) return true;
        if (ended_by_itself()) return false;
        const bool aborted = options.threads > 0 && status == TUTTI_ERR_ABORTED;
        if (status != TUTTI_ERR_PEER_LOST && status != TUTTI_ERR_REVOKED && !aborted)
            fail(std::string("no rank's end explains this error: ") + tutti_last_error());
        if (outcome.blamed < 0) fail(std::string("this error has no rank: ") + tutti_last_error());
        // Over UCX, a rank that cannot receive any more calls itself lost.
        if (status == TUTTI_ERR_PEER_LOST && outcome.blamed != name() &&
            !outcome.may_blame_the_living)
            blamed_.emplace(outcome.blamed, tutti_last_error());
        return false;
    }

    /// Over UCX, a rank's death may leave another rank unable to receive. Then the rest goes on
    /// without both.
    bool is_cut_off(tutti_status status) {
        if (status != TUTTI_ERR_PEER_LOST || tutti_last_error_rank() != ranks_.rank) return false;
        over_ = cut_off_ = true;
        return true;
    }

    std::vector<int> lost_ranks() const {
        std::vector<int> lost(ranks_.names.size());
        std::size_t count = 0;
        need(tutti_comm_lost(ranks_.comm, lost.data(), lost.size(), &count), "tutti_comm_lost");
        if (count > lost.size()) fail("more ranks are lost than there were");
        lost.resize(count);
        if (!std::is_sorted(lost.begin(), lost.end())) fail("the lost ranks are not in order");
        return lost;
    }

    /// The job ends on all ranks at once, when the file is there.
    bool agree_to_go_on() {
        begin("agree to go on");
        uint64_t bits = access(options.stop.c_str(), F_OK) == 0 ? 0 : 1;
        if (succeeded(tutti_comm_agree(ranks_.comm, &bits))) return bits == 1;
        return !over_;
    }

    /// Whether all ranks were successful and none is lost: the same on all of them.
    bool agree(bool success) {
        begin("agree");
        const auto bit_of = [&](int rank) {
            return uint64_t{2} << ranks_.names[static_cast<std::size_t>(rank)];
        };
        uint64_t bits = ~bit_of(ranks_.rank) & (success ? ~uint64_t{0} : ~uint64_t{1});
        if (!succeeded(tutti_comm_agree(ranks_.comm, &bits))) return false;
        const std::vector<int> lost = lost_ranks();
        // A rank that is lost may have given its bits before.
        uint64_t may_be_zero = 1, must_be_zero = 0;
        for (int rank = 0; rank < ranks_.size(); ++rank) {
            may_be_zero |= bit_of(rank);
            if (!contains(lost, rank)) must_be_zero |= bit_of(rank);
        }
        if ((bits | may_be_zero) != ~uint64_t{0} || (bits & must_be_zero) != 0)
            fail("the ranks agreed on " + std::to_string(bits));
        say("agreed " + std::to_string(agreements_++) + ": bits " + std::to_string(bits) +
            ", lost" + listed(names_of(lost)));
        return (bits & 1) == 1 && lost.empty();
    }

    /// Operations until one fails, or for a while. In some generations the ranks agree now and then
    /// whether all have succeeded; in the others a rank that fails tells them.
    bool work() {
        Random random(options.seed * 1000 + static_cast<uint64_t>(generation_));
        const bool agreeing = options.retires || random() % 2 == 0;
        const std::size_t blocks = 1 + random() % 4;
        begin("check the members");
        bool healthy = succeeded(check_members(ranks_));
        if (healthy) say("verified " + std::to_string(generation_));
        if (healthy) all_joined_ = true;
        for (std::size_t block = 0; block < blocks; ++block) {
            for (int step = 0; step < 4 && healthy; ++step) {
                const Operation& operation = options.menu[random() % options.menu.size()];
                begin(operation.name);
                healthy = succeeded(operation.run(ranks_, random));
            }
            if (over_) return false;
            if (agreeing && !healthy) revoke();
            if (agreeing) healthy = agree(healthy);
            if (!healthy) return false;
            if (options.retires && ranks_.size() > 2 && random() % 2 == 0) {
                retire(static_cast<int>(random() % ranks_.names.size()));
                return true;
            }
        }
        return true;
    }

    void revoke() {
        begin("revoke");
        need(tutti_comm_revoke(ranks_.comm), "tutti_comm_revoke");
    }

    /// The others go on without the rank. It waits until it learns that.
    void retire(int rank) {
        leavers_ = {rank};
        if (rank != ranks_.rank) return;
        begin("retire");
        while (succeeded(tutti_barrier(ranks_.comm))) {
        }
        over_ = left_out_ = true;
    }

    // The ranks that remain make the same calls in the same order, whether an operation has failed
    // for them or not.
    void regroup(bool healthy) {
        const auto start = Clock::now();
        if (!healthy) revoke();
        tutti_comm* smaller = nullptr;
        tutti_status status = TUTTI_ERR_ABORTED;
        // Where ranks are threads, a rank's abort ends the call for all of them.
        const int tries = options.threads > 0 ? ranks_.size() : 1;
        for (int i = 0; i < tries && status == TUTTI_ERR_ABORTED; ++i) {
            begin(healthy ? "shrink" : "shrink after a failure");
            status = leavers_.empty() ? tutti_comm_shrink(ranks_.comm, &smaller)
                                      : tutti_comm_shrink_without(ranks_.comm, leavers_.data(),
                                                                  leavers_.size(), &smaller);
            if (status != TUTTI_OK && (ended_by_itself() || is_cut_off(status))) return;
        }
        need(status, "tutti_comm_shrink");
        go_on_with(smaller);
        const std::chrono::duration<double, std::micro> took = Clock::now() - start;
        say("generation " + std::to_string(generation_) + ": members" + listed(ranks_.names) +
            "; after " + std::to_string(static_cast<long>(took.count())) + " us");
    }

    void go_on_with(tutti_comm* smaller) {
        const std::vector<int> lost = lost_ranks();
        for (const int leaver : std::exchange(leavers_, {}))
            if (!contains(lost, leaver)) fail("a rank that was left out is not lost");
        const std::vector<int> lost_names = names_of(lost);
        for (const auto& [name, error] : std::exchange(blamed_, {}))
            if (!contains(lost_names, name))
                fail("an error called rank " + std::to_string(name) +
                     " lost, which has gone on: " + error);
        Ranks next{smaller, {}, -1};
        for (int rank = 0; rank < ranks_.size(); ++rank) {
            if (contains(lost, rank)) continue;
            if (rank == ranks_.rank) next.rank = next.size();
            next.names.push_back(ranks_.names[static_cast<std::size_t>(rank)]);
        }
        const int rank = tutti_comm_rank(smaller), size = tutti_comm_size(smaller);
        if (next.rank != rank || next.size() != size)
            fail("the smaller communicator has this rank as " + std::to_string(rank) + " of " +
                 std::to_string(size) + ", but the lost ranks are" + listed(lost));
        const std::lock_guard lock(ends_);
        need(tutti_comm_destroy(ranks_.comm), "tutti_comm_destroy");
        ranks_ = std::move(next);
        ++generation_;
        if (gone_) over_ = true;
    }

    static bool contains(const std::vector<int>& ranks, int rank) {
        return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    }
    std::vector<int> names_of(std::vector<int> ranks) const {
        for (int& rank : ranks) rank = ranks_.names[static_cast<std::size_t>(rank)];
        return ranks;
    }
    static std::string listed(const std::vector<int>& ranks) {
        std::string text;
        for (const int rank : ranks) text += " " + std::to_string(rank);
        return text;
    }

    Ranks ranks_;
    std::vector<int> leavers_;           // of the next smaller communicator
    std::map<int, std::string> blamed_;  // ranks that an error called lost, and its text
    int generation_ = 0, agreements_ = 0;
    std::string doing_ = "join";
    bool over_ = false, left_out_ = false, cut_off_ = false;
    bool all_joined_ = false;  // a death while ranks join is an error of the others
    std::mutex ends_;          // guards gone_, and an abort against the communicator's end
    bool gone_ = false;
    std::unique_ptr<Doom> doom_;
};

[[noreturn]] void end_as_wrong(int name, const std::exception& error) {
    std::printf("[%d] WRONG: %s\n", name, error.what());
    std::fflush(stdout);
    std::_Exit(1);
}

[[noreturn]] void end_as_unable(tutti_status status) {
    const char* rank = std::getenv("TUTTI_RANK");
    std::printf("[%s] unable: %s at fault %d: %s\n", rank ? rank : "0", tutti_status_string(status),
                tutti_last_error_rank(), tutti_last_error());
    std::fflush(stdout);
    std::_Exit(3);
}

void join_and_live(const tutti_config* config) {
    int name = -1;
    try {
        tutti_comm* comm = nullptr;
        const tutti_status status = tutti_comm_create(config, &comm);
        if (status != TUTTI_OK) end_as_unable(status);
        name = tutti_comm_rank(comm);
        Survivor(name, comm).live();
    } catch (const std::exception& error) {
        end_as_wrong(name, error);
    }
}

void live_as_thread(int rank) {
    tutti_config* config = nullptr;
    tutti_config_create(&config);
    const std::pair<const char*, std::string> settings[] = {
        {"rank", std::to_string(rank)},
        {"size", std::to_string(options.threads)},
        {"store", options.store},
        {"transport", "inproc"},
    };
    for (const auto& [key, value] : settings)
        if (tutti_config_set(config, key, value.c_str()) != TUTTI_OK)
            end_as_wrong(rank, WrongResult(tutti_last_error()));
    join_and_live(config);
    tutti_config_destroy(config);
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

void read_menu(const std::string& text) {
    for (const std::string& name : parts_of(text, ',')) {
        if (name == "retire") options.retires = true;
        for (const Operation& operation : operations())
            if (name == "all" || name == operation.name) options.menu.push_back(operation);
    }
}

bool read_options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string key = argv[i], value = argv[i + 1];
        if (key == "--seed") options.seed = std::stoull(value);
        if (key == "--menu") read_menu(value);
        if (key == "--stop") options.stop = value;
        if (key == "--threads") options.threads = std::stoi(value);
        if (key == "--store") options.store = value;
        if (key == "--die") {
            const auto parts = parts_of(value, ':');
            options.doomed.push_back({std::stoi(parts.at(0)), parts.at(1), std::stoi(parts.at(2)),
                                      std::stoi(parts.at(3))});
        }
    }
    return !options.menu.empty() && !options.stop.empty();
}

}  // namespace

int main(int argc, char** argv) {
    if (!read_options(argc, argv)) return 2;
    struct sigaction action {};
    action.sa_handler = tell_what_it_does;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    if (options.threads == 0) {
        join_and_live(nullptr);
        return 0;
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < options.threads; ++rank) threads.emplace_back(live_as_thread, rank);
    for (std::thread& thread : threads) thread.join();
    return 0;
}
