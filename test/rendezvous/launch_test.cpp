#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <fstream>
#include <thread>

#include "net/socket.h"
#include "rendezvous/host_list.h"
#include "rendezvous/job_directory.h"
#include "rendezvous/key_space.h"
#include "rendezvous/rendezvous.h"
#include "store_fixture.h"

using namespace tutti;

namespace {

using Variables = std::map<std::string, std::string>;

GetEnv environment(const Variables& variables) {
    return [variables](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}

Variables with(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
}

const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "1098448897"}};
const Variables mpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}, {"PMI_JOBID", "7"}};
const Variables srun{{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "4"},
                     {"SLURM_JOB_ID", "812"},       {"SLURM_STEP_ID", "3"},
                     {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "n[01-02]"}};

// The launcher's side of PMI-1, for as many ranks as there are sockets.
void serve_pmi(const std::vector<int>& sockets, bool refuses_put, const std::atomic<bool>& stop) {
    std::map<std::string, std::string> values;
    std::size_t waiting = 0;
    const auto answer = [](int fd, const std::string& text) {
        REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    };
    for (; !stop; std::this_thread::yield()) {
        for (const int fd : sockets) {
            char line[512];
            const ssize_t got = ::recv(fd, line, sizeof line, MSG_DONTWAIT);
            if (got <= 0) continue;
            const std::string request(line, static_cast<std::size_t>(got) - 1);
            const auto value = request.find(" value=");
            if (request == "cmd=get_my_kvsname") answer(fd, "cmd=my_kvsname kvsname=k_1\n");
            if (request.starts_with("cmd=put ") && !refuses_put)
                values[request.substr(8, value - 8)] = request.substr(value + 7);
            if (request.starts_with("cmd=put "))
                answer(fd, refuses_put ? "cmd=put_result rc=-1 msg=duplicate_key\n"
                                       : "cmd=put_result rc=0 msg=success\n");
            if (request == "cmd=barrier_in" && ++waiting == sockets.size())
                for (const int each : sockets) answer(each, "cmd=barrier_out\n");
            if (request.starts_with("cmd=get "))
                answer(fd,
                       "cmd=get_result rc=0 msg=success value=" + values[request.substr(8)] + "\n");
        }
    }
}

}  // namespace

TEST_CASE("host list: Slurm's brackets are expanded in order") {
    using Texts = std::vector<std::string>;
    for (const auto& [list, hosts] : std::map<std::string, Texts>{
             {"n1", {"n1"}},
             {"n[01-03,7],m2", {"n01", "n02", "n03", "n7", "m2"}},
             {"a,b,c", {"a", "b", "c"}},
             {"rack[0-1]n[08-10]",
              {"rack0n08", "rack0n09", "rack0n10", "rack1n08", "rack1n09", "rack1n10"}},
             {"gpu[9-11]-ib,x-1", {"gpu9-ib", "gpu10-ib", "gpu11-ib", "x-1"}},
             {"127.0.0.[1-2]", {"127.0.0.1", "127.0.0.2"}}}) {
        INFO(list);
        const auto expanded = expand_host_list(list);
        REQUIRE(expanded);
        CHECK(*expanded == hosts);
    }
}

TEST_CASE("host list: one that makes no sense is refused, whole") {
    for (const char* list :
         {"", ",", "a,,b", "n[", "n]", "n[1", "n[]", "n[1-]", "n[-1]", "n[3-1]", "n[1,]x[",
          "n[a-b]", "n[1-9999999999]", "n[0-99999]", "a[0-999]b[0-999]", "n[1[2]]"}) {
        INFO(list);
        const auto expanded = expand_host_list(list);
        REQUIRE_FALSE(expanded);
        CHECK(expanded.error().code == Code::invalid);
        CHECK(contains(expanded.error().message, fmt::format("'{}'", list)));
        CHECK(contains(expanded.error().advice, "TUTTI_STORE"));
    }
}

TEST_CASE("launch: each launcher says how its ranks meet") {
    const auto rendezvous = [](const Variables& v) {
        return detect_launch(environment(v)).rendezvous;
    };
    CHECK(rendezvous({}) == RendezvousKind::none);
    CHECK(rendezvous(open_mpi) == RendezvousKind::directory);
    CHECK(rendezvous(mpich) == RendezvousKind::directory);
    CHECK(rendezvous(srun) == RendezvousKind::directory);
    CHECK(rendezvous(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})) ==
          RendezvousKind::pmix);
    CHECK(rendezvous(with(mpich, {{"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "99"}})) ==
          RendezvousKind::pmi);
    CHECK(rendezvous(with(mpich, {{"MPI_LOCALNRANKS", "2"}})) == RendezvousKind::none);
    const Variables nodes = with(srun, {{"SLURM_STEP_NUM_NODES", "2"}});
    CHECK(rendezvous(nodes) == RendezvousKind::ports);
    CHECK(rendezvous(with(nodes, {{"PMIX_NAMESPACE", "slurm.pmix.812.3"}})) ==
          RendezvousKind::pmix);
    // srun --mpi=pmi2, whose descriptor speaks another protocol; and MPICH's launcher in a step.
    const Variables pmi2{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}};
    CHECK(rendezvous(with(nodes, pmi2)) == RendezvousKind::ports);
    CHECK(detect_launch(environment(with(nodes, mpich))).launcher == "MPICH");
}

TEST_CASE("launch: the first rank on the first host of a Slurm step serves the store") {
    const auto serves = [](const Variables& more) {
        return detect_launch(environment(with(srun, more))).serves;
    };
    // Without Slurm's name of this host, as it would be on a usual step's: rank 0.
    CHECK_FALSE(serves({}));
    CHECK(serves({{"SLURM_PROCID", "0"}}));
    CHECK(serves({{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "x"}, {"SLURM_LOCALID", "1"}}));
    for (const char* rank : {"0", "2"}) {
        const auto at = [&](const char* host, const char* here) {
            return serves(
                {{"SLURM_PROCID", rank}, {"SLURMD_NODENAME", host}, {"SLURM_LOCALID", here}});
        };
        CHECK(at("n01", "0"));
        CHECK_FALSE(at("n01", "1"));
        CHECK_FALSE(at("n02", "0"));
    }
}

TEST_CASE("launch: a Slurm job that starts anew is another one") {
    const Launch once = detect_launch(environment(srun));
    const Launch again = detect_launch(environment(with(srun, {{"SLURM_RESTART_COUNT", "1"}})));
    CHECK(once.identity != again.identity);
    CHECK(once.step == "812.3");
    CHECK(again.step == "812.3.1");
}

TEST_CASE("launch: a Slurm batch script's own process is told to use srun") {
    Variables batch = srun;
    batch.erase("SLURM_STEP_ID");
    Config config{.rank = 1, .size = 4};
    const auto place = find_rendezvous(config, environment(batch), soon());
    REQUIRE_FALSE(place);
    CHECK(contains(place.error().advice, "start the ranks with srun, or set TUTTI_STORE to "));
}

TEST_CASE("launch: ranks that were numbered anew are told to name a store") {
    const auto place = find_rendezvous({.rank = 2, .size = 4}, environment(open_mpi), soon());
    REQUIRE_FALSE(place);
    CHECK(contains(place.error().message, "Open MPI started rank 1 of 4"));
}

TEST_CASE("launch: who made the descriptor of MPICH's launcher tells its jobs apart") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const UniqueFd one(ends[0]), other(ends[1]);
    Variables variables = with(mpich, {{"PMI_FD", std::to_string(one.get())}});
    variables.erase("PMI_JOBID");
    const Launch launch = detect_launch(environment(variables));
    CHECK(contains(launch.identity, fmt::format("PMI_FD={} ", ::getpid())));
    CHECK(launch.rendezvous == RendezvousKind::directory);
    variables["PMI_FD"] = "-1";
    CHECK(detect_launch(environment(variables)).rendezvous == RendezvousKind::none);
}

TEST_CASE("job directory: its users share a secret, and the last one removes it") {
    const TemporaryDirectory base;
    const std::string path = base.path() + "/job";
    auto first = JobDirectory::open(path, soon());
    REQUIRE(first);
    auto second = JobDirectory::open(path, soon());
    REQUIRE(second);
    CHECK((*first)->secret() == (*second)->secret());
    CHECK((*first)->secret().size() == 64);
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    first->reset();
    CHECK(std::filesystem::exists(path + "/secret"));
    const pid_t child = ::fork();
    if (child == 0) {
        second->reset();  // not the child's to end
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    CHECK(std::filesystem::exists(path + "/secret"));
    second->reset();
    CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("job directory: many come and go at once, and those that are there together agree") {
    const TemporaryDirectory base;
    const std::string path = base.path() + "/job";
    std::atomic<int> wrong{0};
    std::vector<std::thread> users;
    for (int i = 0; i < 4; ++i)
        users.emplace_back([&] {
            for (int round = 0; round < 50; ++round) {
                const auto one = JobDirectory::open(path, soon());
                const auto two = JobDirectory::open(path, soon());
                if (!one || !two || (*one)->secret() != (*two)->secret()) ++wrong;
            }
        });
    for (std::thread& user : users) user.join();
    CHECK(wrong == 0);
    CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("job directory: one that others can reach is refused") {
    const TemporaryDirectory base;
    const std::string path = base.path() + "/job";
    std::filesystem::create_directory(path);
    std::filesystem::permissions(path, std::filesystem::perms(0755));
    const auto open = JobDirectory::open(path, soon());
    REQUIRE_FALSE(open);
    CHECK(contains(open.error().message, "mode 755"));
    std::filesystem::remove(path);
    std::filesystem::create_directory(base.path() + "/aim");
    std::filesystem::permissions(base.path() + "/aim", std::filesystem::perms(0700));
    std::filesystem::create_symlink(base.path() + "/aim", path);
    CHECK_FALSE(JobDirectory::open(path, soon()));
}

TEST_CASE("job directory: what a killed job has left goes with the next job's start") {
    const TemporaryDirectory base;
    const std::string name = fmt::format("{}/tutti-{}-", base.path(), ::geteuid());
    const pid_t child = ::fork();
    if (child == 0) {
        const auto dead = JobDirectory::open(name + "dead", soon());
        std::filesystem::create_directory(name + "dead/job");
        std::ofstream(name + "dead/job/record") << "x";
        ::_exit(dead ? 0 : 1);
    }
    ::waitpid(child, nullptr, 0);
    REQUIRE(std::filesystem::exists(name + "dead/job/record"));
    const auto living = JobDirectory::open(name + "living", soon());
    REQUIRE(living);
    const auto next = JobDirectory::open(name + "next", soon());
    REQUIRE(next);
    CHECK_FALSE(std::filesystem::exists(name + "dead"));
    CHECK(std::filesystem::exists(name + "living/secret"));
}

TEST_CASE("PMI: rank 0's value reaches every rank, and a refusal is an error") {
    for (const bool refuses : {false, true}) {
        std::vector<int> theirs;
        std::vector<std::unique_ptr<UniqueFd>> ours;
        for (int rank = 0; rank < 3; ++rank) {
            std::array<int, 2> ends{};
            REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
            theirs.push_back(ends[0]);
            ours.push_back(std::make_unique<UniqueFd>(ends[1]));
        }
        std::atomic<bool> stop{false};
        std::thread launcher([&] { serve_pmi(theirs, refuses, stop); });
        std::vector<std::thread> ranks;
        std::array<Result<std::string>, 3> heard;
        for (Rank rank = 0; rank < 3; ++rank)
            ranks.emplace_back([&, rank] {
                const auto i = static_cast<std::size_t>(rank);
                const Variables variables{{"PMI_FD", std::to_string(ours[i]->get())}};
                heard[i] = share_over_pmi(environment(variables), rank, "10.0.0.1:5,abc",
                                          Deadline::after_ms(refuses && rank > 0 ? 500 : 20'000));
            });
        for (std::thread& rank : ranks) rank.join();
        stop = true;
        launcher.join();
        for (const int fd : theirs) ::close(fd);
        if (refuses) {
            CHECK(contains(heard[0].error().message, "duplicate_key"));
            CHECK(heard[1].error().code == Code::timeout);
        } else {
            for (const auto& value : heard) CHECK(value.value_or("") == "10.0.0.1:5,abc");
        }
    }
}

TEST_CASE("ports: every step of a Slurm job has its own few, and without a secret none") {
    const uint16_t first = first_port("SLURM_JOB_ID=812\nSLURM_STEP_ID=3\n");
    CHECK(first >= 20'000);
    CHECK(first + port_choices <= 32'768);
    CHECK(first_port("SLURM_JOB_ID=812\nSLURM_STEP_ID=4\n") != first);
    const auto nodes = environment(with(srun, {{"SLURM_STEP_NUM_NODES", "2"}}));
    const auto place = find_rendezvous({.rank = 1, .size = 4}, nodes, soon());
    REQUIRE_FALSE(place);
    CHECK(contains(place.error().advice, "TUTTI_SECRET_FILE"));
}
