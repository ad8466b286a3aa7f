// tutti-run: runs a program as N ranks on this machine.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "launcher.h"
#include "store/tcp_store.h"

namespace tutti::run {
namespace {

Result<int> run_job(const Options& options) {
    TUTTI_ASSIGN(UniqueFd signals, capture_signals());
    TUTTI_ASSIGN(Guardian guardian, Guardian::start());  // forks: before there is a thread
    TUTTI_ASSIGN(Job job, make_job(options));
    std::unique_ptr<TcpStoreServer> store;
    if (job.hosts_store) {
        TUTTI_ASSIGN(store,
                     TcpStoreServer::start(
                         {.host = "127.0.0.1", .port = 0, .job = job.name, .secret = job.secret}));
        job.store_url = fmt::format("tcp://127.0.0.1:{}", store->port());
    }
    Launcher launcher(options, job, std::move(signals), std::move(guardian));
    return launcher.run();
}

}  // namespace
}  // namespace tutti::run

int main(int argc, char** argv) {
    try {
        const tutti::run::Parsed parsed = tutti::run::parse_options(argc, argv);
        if (parsed.exit_code) return *parsed.exit_code;
        const tutti::Result<int> exit_code = tutti::run::run_job(parsed.options);
        if (exit_code) return *exit_code;
        fmt::print(stderr, "tutti-run: {}\n", exit_code.error().message);
    } catch (const std::exception& error) {
        fmt::print(stderr, "tutti-run: {}\n", error.what());
    }
    return tutti::run::exit_launcher;
}
