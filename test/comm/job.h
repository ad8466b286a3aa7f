// Jobs whose ranks are threads of one process, each with its own communicator.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "support/catch.h"

namespace comm_test {

using namespace tutti;

inline constexpr const char* transports_under_test[] = {"inproc", "shm", "tcp"};
inline constexpr int lost_ms = 30'000;              // no wake-up takes that long, a missed one does
inline constexpr int64_t soon_ns = 60'000'000'000;  // on busy machines, and well before deadlines

/// Waits until done() is true, at most lost_ms. False: it never was.
template <typename Done>
bool eventually(Done done) {
    const Deadline patience = Deadline::after_ms(lost_ms);
    while (!done()) {
        if (patience.passed()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

/// A directory store of its own for every job.
class JobFolder {
public:
    JobFolder() {
        char name[] = "/tmp/tutti-comm-test-XXXXXX";
        path_ = ::mkdtemp(name);
    }
    ~JobFolder() { std::filesystem::remove_all(path_); }
    std::string url() const { return "file://" + path_; }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// Another store, and what a test makes of a look into it.
class StoreBehind : public Store {
public:
    explicit StoreBehind(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
    Result<> set(const std::string& key, std::string_view value, Deadline deadline) override {
        return inner_->set(key, value, deadline);
    }
    Result<std::string> get(const std::string& key, Deadline deadline) override {
        TUTTI_TRY(before_look(deadline));
        return inner_->get(key, deadline);
    }
    Result<std::optional<std::string>> try_get(const std::string& key, Deadline deadline) override {
        TUTTI_TRY(before_look(deadline));
        return inner_->try_get(key, deadline);
    }
    Result<bool> claim(const std::string& key, std::string_view value, std::string& existing,
                       Deadline deadline) override {
        return inner_->claim(key, value, existing, deadline);
    }
    Result<> remove(const std::string& key, Deadline deadline) override {
        return inner_->remove(key, deadline);
    }
    std::string describe() const override { return inner_->describe(); }

protected:
    virtual Result<> before_look(Deadline deadline) = 0;

private:
    std::unique_ptr<Store> inner_;
};

struct Job {
    Rank ranks = 2;
    std::string transport = "inproc";
    std::function<void(Config&)> change = {};
    /// A rank's own way to the job's store, where it has one.
    std::function<std::shared_ptr<Store>(std::unique_ptr<Store>, Rank)> store = {};
};

/// Runs body once a rank, each on its own thread with its own communicator. Catch2's macros are not
/// for several threads: bodies return what went wrong, "" if nothing.
inline std::vector<std::string> run(const Job& job,
                                    const std::function<std::string(Communicator&, Rank)>& body) {
    const JobFolder folder;
    std::vector<std::string> problems(static_cast<std::size_t>(job.ranks));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < job.ranks; ++rank)
        threads.emplace_back([&, rank] {
            Config config;
            config.rank = rank;
            config.size = job.ranks;
            config.store = folder.url();
            config.transports = {job.transport};
            config.timeout_ms = 60'000;
            if (job.change) job.change(config);
            std::string& problem = problems[static_cast<std::size_t>(rank)];
            std::shared_ptr<Store> own;
            if (job.store) {
                auto opened = open_store({.url = config.store, .job = config.job, .rank = rank});
                if (!opened) return void(problem = opened.error().message);
                own = job.store(std::move(*opened), rank);
            }
            auto comm = Communicator::create(config, std::move(own));
            if (!comm) {
                problem = comm.error().message;
                return;
            }
            problem = body(**comm, rank);
            (*comm)->destroy();
        });
    for (std::thread& thread : threads) thread.join();
    return problems;
}

inline void expect_no_problem(const std::vector<std::string>& problems) {
    for (std::size_t rank = 0; rank < problems.size(); ++rank) {
        INFO("rank " << rank);
        REQUIRE(problems[rank] == "");
    }
}

inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

inline Call sum_of(std::size_t count, Op op = Op::sum) {
    Call call;
    call.count = count;
    call.dtype = Dtype::float32;
    call.op = op;
    return call;
}

inline Call barrier() {
    Call call;
    call.collective = Collective::barrier;
    return call;
}

}  // namespace comm_test
