#include "errors/jobs.h"

#include <cstdlib>
#include <thread>

namespace errors_test {

Configuration::Configuration(Ledger& ledger, const Settings& settings) {
    if (tutti_config_create(&config_) != TUTTI_OK)
        ledger.broken("tutti_config_create", tutti_last_error());
    for (const auto& [key, value] : settings)
        if (tutti_config_set(config_, key.c_str(), value.c_str()) != TUTTI_OK)
            ledger.broken("setting " + key, tutti_last_error());
}

Alone::Alone(Ledger& ledger, const Settings& more) {
    Settings settings = {{"rank", "0"}, {"size", "1"}};
    settings.insert(settings.end(), more.begin(), more.end());
    const Configuration config(ledger, settings);
    if (tutti_comm_create(config.get(), &comm_) != TUTTI_OK)
        ledger.broken("a communicator of one rank", tutti_last_error());
}

// The deadline is for a busy machine: no operation that works comes near it.
Settings settings_of(const test::Folder& folder, int rank, int ranks) {
    return {{"rank", std::to_string(rank)},
            {"size", std::to_string(ranks)},
            {"store", "file://" + folder.path()},
            {"transport", "inproc"},
            {"timeout_ms", "60000"}};
}

void on_threads(int ranks, const std::function<void(int rank)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&work, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
}

void run_job(Ledger& ledger, const std::string& row, const Job& job, const Body& body) {
    const test::Folder folder;
    on_threads(job.ranks, [&](int rank) {
        Settings settings = settings_of(folder, rank, job.ranks);
        settings.insert(settings.end(), job.settings.begin(), job.settings.end());
        const Configuration config(ledger, settings);
        tutti_comm* comm = nullptr;
        if (tutti_comm_create(config.get(), &comm) != TUTTI_OK)
            return ledger.broken(row, std::string("cannot join: ") + tutti_last_error());
        body(comm, rank);
        if (!job.left_open) tutti_comm_destroy(comm);
    });
}

tutti_status try_to_join(Ledger& ledger, const Settings& settings) {
    const Configuration config(ledger, settings);
    tutti_comm* comm = nullptr;
    const tutti_status status = tutti_comm_create(config.get(), &comm);
    if (status == TUTTI_OK) tutti_comm_destroy(comm);
    return status;
}

Variable::Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    const char* before = std::getenv(name_.c_str());
    was_set_ = before != nullptr;
    before_ = was_set_ ? before : "";
    ::setenv(name_.c_str(), value.c_str(), 1);
}

Variable::~Variable() {
    if (was_set_)
        ::setenv(name_.c_str(), before_.c_str(), 1);
    else
        ::unsetenv(name_.c_str());
}

}  // namespace errors_test
