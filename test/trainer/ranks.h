// Ranks as threads of this process, through the C API.
#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/folder.h"
#include "tutti/tutti.hpp"

namespace ranks {

using tutti::test::Folder;

/// Runs body once a rank. Catch2's macros are not for several threads: bodies throw, and what they
/// throw comes back by rank, "" for nothing. calls.RANK.jsonl of the folder lists the rank's calls
/// before an operation failed.
inline std::vector<std::string> run(int count,
                                    const std::function<void(tutti::Communicator&)>& body,
                                    const Folder& folder = {}, int timeout_ms = 60000) {
    std::vector<std::string> problems(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank)
        threads.emplace_back([&, rank] {
            try {
                tutti::Config config;
                config.set("rank", std::to_string(rank)).set("size", std::to_string(count));
                config.set("store", "file://" + folder.path()).set("transport", "inproc");
                config.set("timeout_ms", std::to_string(timeout_ms));
                config.set("dump", folder.file("calls"));
                tutti::Communicator comm(config);
                body(comm);
            } catch (const std::exception& error) {
                problems[static_cast<std::size_t>(rank)] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return problems;
}
inline std::vector<std::string> run(int count,
                                    const std::function<void(tutti_comm*, int rank)>& body,
                                    const Folder& folder = {}) {
    return run(
        count, [&](tutti::Communicator& comm) { body(comm.get(), comm.rank()); }, folder);
}

/// The same for bodies that should not throw: one that does ends the others, and all are told.
inline void on_ranks(int count, const std::function<void(tutti::Communicator&)>& body,
                     int timeout_ms = 60000) {
    const auto ending = [&](tutti::Communicator& comm) {
        try {
            body(comm);
        } catch (...) {
            comm.abort();
            throw;
        }
    };
    const std::vector<std::string> problems = run(count, ending, {}, timeout_ms);
    std::string texts;
    for (std::size_t rank = 0; rank < problems.size(); ++rank)
        if (!problems[rank].empty())
            texts += "rank " + std::to_string(rank) + ": " + problems[rank] + "\n";
    if (!texts.empty()) throw std::runtime_error(texts);
}

inline void require(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what);
}

}  // namespace ranks
