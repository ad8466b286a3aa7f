// Jobs that newcomers cannot join.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <latch>
#include <string>
#include <thread>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::growing {
namespace {

tutti_status grow(tutti_comm* comm, int newcomers) {
    tutti_comm* larger = nullptr;
    const tutti_status status = tutti_comm_grow(comm, newcomers, &larger);
    tutti_comm_destroy(larger);
    return status;
}

tutti_status join(Ledger& ledger, Settings settings) {
    settings.emplace_back("join", "1");
    const Configuration config(ledger, settings);
    tutti_comm* comm = nullptr;
    const tutti_status status = tutti_comm_create(config.get(), &comm);
    tutti_comm_destroy(comm);
    return status;
}

Settings of_job(const test::Folder& folder, int timeout_ms) {
    return {{"store", "file://" + folder.path()},
            {"timeout_ms", std::to_string(timeout_ms)},
            {"transport", "inproc"}};
}

/// A TCP port of this host that no process uses now.
int free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    socklen_t length = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    ::close(fd);
    return ntohs(address.sin_port);
}

void grow_by_wrong_numbers(Ledger& ledger) {
    run_job(ledger, "numbers of newcomers", {}, [&](tutti_comm* comm, int rank) {
        for (const int newcomers : {0, -1, 1025})
            ledger.take("no number of newcomers", grow(comm, newcomers),
                        {.names = "is no number of newcomers", .reporter = rank});
        ledger.take("different numbers of newcomers", grow(comm, 1 + rank),
                    {TUTTI_ERR_MISMATCH, "tutti_comm_grow", rank, -1});
    });
    const Alone alone(ledger);
    ledger.take("growth without a store", grow(alone.comm(), 1), {.names = "has no store"});
}

void wait_for_newcomers(Ledger& ledger) {
    const Job job{2, {{"timeout_ms", "1000"}}};
    run_job(ledger, "no newcomers", job, [&](tutti_comm* comm, int rank) {
        ledger.take("no newcomer", grow(comm, 2),
                    {TUTTI_ERR_TIMEOUT, "0 of 2 newcomers came within 1000 ms", rank, -1});
    });
}

void grow_after_failures(Ledger& ledger) {
    std::latch left(1), aborted(1);
    run_job(ledger, "growth after a leave", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) {
            tutti_comm_leave(comm);
            return left.count_down();
        }
        left.wait();
        ledger.take("growth after a leave", grow(comm, 1),
                    {TUTTI_ERR_PEER_LOST, "tutti_comm_grow: rank 1 has left", 0, 1});
    });
    run_job(ledger, "growth after a revoke", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) tutti_comm_revoke(comm);
        ledger.take("growth after a revoke", grow(comm, 1),
                    {.status = TUTTI_ERR_REVOKED, .names = "rank 1 revoked", .culprit = 1});
    });
}

void join_with_a_rank(Ledger& ledger) {
    const test::Folder folder;
    for (const char* key : {"rank", "size"}) {
        Settings settings = of_job(folder, 1000);
        settings.emplace_back(key, "2");
        ledger.take("a newcomer with a rank", join(ledger, settings),
                    {.names = "gets its rank and the size from the job"});
    }
    ledger.take("a newcomer without a store", join(ledger, {}), {.names = "no store is set"});
    ledger.take("a newcomer that no member asks for", join(ledger, of_job(folder, 300)),
                {TUTTI_ERR_TIMEOUT, "no member of this job called tutti_comm_grow", -1, -1});
}

// A member serves the store, which knows the job's name and secret.
void join_as_a_stranger(Ledger& ledger) {
    const std::string url = "tcp://127.0.0.1:" + std::to_string(free_port());
    const std::string secret(32, 's');
    const Job job{2, {{"store", url}, {"secret", secret}, {"timeout_ms", "20000"}}};
    run_job(ledger, "strangers", job, [&](tutti_comm*, int rank) {
        if (rank == 1) return;
        const Settings own{{"store", url}, {"secret", secret}, {"timeout_ms", "5000"}};
        Settings other_secret = own, other_job = own;
        other_secret[1].second = std::string(32, 'x');
        other_job.emplace_back("job", "another");
        for (const Settings& settings : {other_secret, other_job})
            ledger.take("a newcomer of another job", join(ledger, settings),
                        {.status = TUTTI_ERR_AUTH, .names = url});
    });
}

// A directory knows no secret, so the processes notice the difference when they meet.
void join_by_a_directory_as_a_stranger(Ledger& ledger) {
    const test::Folder folder;
    const Job job{2,
                  {{"store", "file://" + folder.path()},
                   {"secret", std::string(32, 's')},
                   {"timeout_ms", "30000"}}};
    std::thread newcomer([&] {
        Settings settings = of_job(folder, 30'000);
        settings.emplace_back("secret", std::string(32, 'x'));
        ledger.take("a newcomer with another secret", join(ledger, settings),
                    {TUTTI_ERR_AUTH, "connecting to rank 0: the other side has another secret", 2});
    });
    run_job(ledger, "a newcomer with another secret", job, [&](tutti_comm* comm, int rank) {
        ledger.take("growth by a rank with another secret", grow(comm, 1),
                    {TUTTI_ERR_AUTH, "rank 2: connecting to rank 0", rank});
    });
    newcomer.join();
    Settings other_job = of_job(folder, 300);
    other_job.emplace_back("job", "another");
    ledger.take("a newcomer of another job in a directory", join(ledger, other_job),
                {TUTTI_ERR_TIMEOUT, "could not join job 'another': no member"});
}

// The ranks compare their settings when they meet, so all of them get the error.
void join_with_other_settings(Ledger& ledger) {
    const test::Folder folder;
    std::thread newcomer([&] {
        Settings settings = of_job(folder, 20'000);
        settings.emplace_back("nrings", "3");
        ledger.take("a newcomer with other settings", join(ledger, settings),
                    {.names = "nrings", .reporter = 2, .culprit = 2});
    });
    const Job job{2, {{"store", "file://" + folder.path()}, {"timeout_ms", "20000"}}};
    run_job(ledger, "a newcomer with other settings", job, [&](tutti_comm* comm, int rank) {
        ledger.take("growth by a rank with other settings", grow(comm, 1),
                    {.names = "nrings", .reporter = rank, .culprit = 2});
    });
    newcomer.join();
}

}  // namespace

void provoke_growing(Ledger& ledger) {
    constexpr void (*all[])(Ledger&) = {grow_by_wrong_numbers,   wait_for_newcomers,
                                        grow_after_failures,     join_with_a_rank,
                                        join_as_a_stranger,      join_by_a_directory_as_a_stranger,
                                        join_with_other_settings};
    at_once(all, [&](void (*provoke)(Ledger&)) { provoke(ledger); });
}

}  // namespace errors_test::growing
