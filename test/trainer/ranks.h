// Ranks as threads of this process, through the C API.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace ranks {

/// A directory for one job's rendezvous.
class Folder {
public:
    Folder() {
        char name[] = "/tmp/tutti-trainer-test-XXXXXX";
        path_ = ::mkdtemp(name);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// Runs body once a rank. Catch2's macros are not for several threads: bodies throw, and what they
/// throw comes back by rank, "" for nothing.
inline std::vector<std::string> run(int count,
                                    const std::function<void(tutti_comm*, int rank)>& body,
                                    const Folder& folder = {}) {
    std::vector<std::string> problems(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank)
        threads.emplace_back([&, rank] {
            try {
                tutti::Config config;
                config.set("rank", std::to_string(rank)).set("size", std::to_string(count));
                config.set("store", "file://" + folder.path()).set("transport", "inproc");
                config.set("timeout_ms", "60000");
                const tutti::Communicator comm(config);
                body(comm.get(), rank);
            } catch (const std::exception& error) {
                problems[static_cast<std::size_t>(rank)] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return problems;
}

inline void require(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what);
}

}  // namespace ranks
