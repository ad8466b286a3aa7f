// Ranks as threads of the test's process, that meet in a store in its memory.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace tutti::test {

class MemoryStore {
public:
    tutti_store_callbacks callbacks() const {
        return {sizeof(tutti_store_callbacks), &set, &get, &add};
    }

private:
    static int set(void* user, const char* key, const void* value, size_t size) {
        auto& store = *static_cast<MemoryStore*>(user);
        const std::lock_guard lock(store.mutex_);
        store.values_[key].assign(static_cast<const char*>(value), size);
        store.changed_.notify_all();
        return 0;
    }
    static int get(void* user, const char* key, void* value, size_t capacity, size_t* size,
                   int64_t timeout_ms) {
        auto& store = *static_cast<MemoryStore*>(user);
        std::unique_lock lock(store.mutex_);
        const bool there = store.changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                                   [&] { return store.values_.contains(key); });
        if (!there) return 1;
        const std::string& found = store.values_[key];
        *size = found.size();
        std::memcpy(value, found.data(), std::min(capacity, found.size()));
        return 0;
    }
    static int add(void* user, const char* key, int64_t amount, int64_t* result) {
        auto& store = *static_cast<MemoryStore*>(user);
        const std::lock_guard lock(store.mutex_);
        *result = store.counters_[key] += amount;
        return 0;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::map<std::string, int64_t> counters_;
};

/// Runs body(communicator) on each of that many ranks, each a thread; throws what they threw.
inline void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
    static std::atomic<int> jobs{0};
    const std::string job = "ranks-" + std::to_string(jobs.fetch_add(1));
    MemoryStore store;
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                Config config;
                config.set("rank", std::to_string(rank)).set("size", std::to_string(ranks));
                config.set("job", job).set("transport", "inproc").set("timeout_ms", "60000");
                const tutti_store_callbacks callbacks = store.callbacks();
                check(tutti_config_set_store(const_cast<tutti_config*>(config.get()), &callbacks,
                                             &store));
                Communicator owned(config);
                try {
                    body(owned);
                } catch (...) {
                    owned.abort();  // so that no other rank waits for this one
                    throw;
                }
            } catch (...) {
                failures[static_cast<std::size_t>(rank)] = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    std::string texts;
    for (int rank = 0; rank < ranks; ++rank) {
        try {
            if (const auto& failure = failures[static_cast<std::size_t>(rank)])
                std::rethrow_exception(failure);
        } catch (const std::exception& error) {
            texts += "rank " + std::to_string(rank) + ": " + error.what() + "\n";
        }
    }
    if (!texts.empty()) throw std::runtime_error(texts);
}

}  // namespace tutti::test
