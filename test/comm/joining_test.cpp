// What the store tells of ranks: who has taken a number, and who has not come.
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "comm/claimant.h"
#include "comm/job.h"

using namespace comm_test;

namespace {

std::unique_ptr<Store> open_at(const JobFolder& folder) {
    auto store = open_store({.url = folder.url(), .job = "joining"});
    REQUIRE(store);
    return std::move(*store);
}

Config config_of(Rank rank, Rank size) {
    Config config;
    config.rank = rank;
    config.size = size;
    config.job = "joining";
    config.transports = {"inproc"};
    config.timeout_ms = 300;
    return config;
}

Error join_alone(const Config& config, std::shared_ptr<Store> store) {
    const auto comm = Communicator::create(config, std::move(store));
    REQUIRE(!comm);
    INFO(comm.error().message);
    return comm.error();
}

std::string boot_id() {
    std::string id;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, id);
    return id;
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// Rank 0's joining where a claim has been left.
std::string join_after(const Claimant& left) {
    const JobFolder folder;
    const auto store = open_at(folder);
    std::string existing;
    REQUIRE(store->claim("c0/rank/0/owner", left.encode(), existing).value());
    return join_alone(config_of(0, 2), open_at(folder)).message;
}

}  // namespace

TEST_CASE("claimant: comes back from its text, whatever the process is called") {
    char before[16] = "";
    REQUIRE(::prctl(PR_GET_NAME, before) == 0);
    const Claimant plain = Claimant::this_process("a machine");
    REQUIRE(::prctl(PR_SET_NAME, "a) S 1 (b c)") == 0);
    const Claimant odd = Claimant::this_process("a machine");
    REQUIRE(::prctl(PR_SET_NAME, before) == 0);
    for (const Claimant& self : {odd, Claimant::decode(odd.encode())}) {
        CHECK(self.machine == "a machine");
        CHECK(self.pid == ::getpid());
        CHECK(self.pid_namespace != 0);
        CHECK(self.start_ticks == plain.start_ticks);
        CHECK(plain.sees(self));
    }
    CHECK(plain.start_ticks != 0);
    for (const char* text : {"", "x", "12", "12 13", "-1 2 3 a machine"})
        CHECK_FALSE(plain.outlived(Claimant::decode(text)));
}

TEST_CASE("joining: a number is free again when whoever took it is gone") {
    const Claimant self = Claimant::this_process(boot_id());
    Claimant parent = self;  // alive, but since another time
    parent.pid = ::getppid();
    Claimant last = self;
    last.start_ticks -= 1;  // as process 1 of a container finds what the last process 1 left
    Claimant nobody = self;
    nobody.pid = INT32_MAX;
    for (const Claimant& gone : {parent, last, nobody}) {
        const std::string text = join_after(gone);
        INFO(text);
        CHECK(contains(text, "1 of 2 ranks did not come"));
    }
}

TEST_CASE("joining: a number that is taken says by whom, and what to do about one out of sight") {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    Claimant other = Claimant::this_process(boot_id());
    other.pid = child;
    std::ifstream file(fmt::format("/proc/{}/stat", child));
    for (int field = 1; field < 22; ++field) file.ignore(1000, ' ');  // the name has no spaces
    file >> other.start_ticks;
    const std::string taken = join_after(other);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(contains(taken, fmt::format("rank 0 is already taken by process {} in file://", child)));

    Claimant container = other, machine = other;
    container.pid_namespace += 1;
    machine.machine = "another";
    for (const Claimant& hidden : {container, machine}) {
        const std::string text = join_after(hidden);
        INFO(text);
        CHECK(contains(text, "cannot be seen from here"));
        CHECK(contains(text, "another TUTTI_JOB"));
        CHECK(contains(text, "remove what job 'joining' left"));
        CHECK(
            contains(text, hidden.machine == "another" ? "another machine" : "another container"));
    }
}
