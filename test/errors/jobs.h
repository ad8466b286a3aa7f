// Jobs whose ranks are threads of this process, through the C API.
#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "errors/ledger.h"
#include "support/folder.h"

namespace errors_test {

namespace test = tutti::test;

using Settings = std::vector<std::pair<std::string, std::string>>;

/// A configuration that destroys itself. The ledger gets the errors of settings that are refused.
class Configuration {
public:
    Configuration(Ledger& ledger, const Settings& settings);
    Configuration(const Configuration&) = delete;
    ~Configuration() { tutti_config_destroy(config_); }
    tutti_config* get() const { return config_; }

private:
    tutti_config* config_ = nullptr;
};

/// A communicator of one rank.
class Alone {
public:
    explicit Alone(Ledger& ledger, const Settings& more = {});
    Alone(const Alone&) = delete;
    ~Alone() { tutti_comm_destroy(comm_); }
    tutti_comm* comm() const { return comm_; }

private:
    tutti_comm* comm_ = nullptr;
};

/// The settings of a rank of a job of threads that meet in the folder.
Settings settings_of(const test::Folder& folder, int rank, int ranks);

struct Job {
    int ranks = 2;
    Settings settings = {};  // of all ranks
    bool left_open = false;  // body destroys the communicator
};
using Body = std::function<void(tutti_comm* comm, int rank)>;

/// Runs body once a rank, each on its own thread with its own communicator.
void run_job(Ledger& ledger, const std::string& row, const Job& job, const Body& body);

/// One rank's attempt to join the job of the folder, on this thread: the status, and nothing left
/// behind if it works.
tutti_status try_to_join(Ledger& ledger, const Settings& settings);

/// Calls work(rank) on a thread for each rank.
void on_threads(int ranks, const std::function<void(int rank)>& work);

/// Calls work(row) for all rows at once: most of the time of those that fail to join is waiting.
template <typename Rows, typename Work>
void at_once(const Rows& rows, Work&& work) {
    on_threads(static_cast<int>(std::size(rows)), [&](int i) { work(*(std::begin(rows) + i)); });
}

/// An environment variable for as long as this lives.
class Variable {
public:
    Variable(std::string name, const std::string& value);
    Variable(const Variable&) = delete;
    ~Variable();

private:
    std::string name_;
    std::string before_;
    bool was_set_;
};

}  // namespace errors_test
