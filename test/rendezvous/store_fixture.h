// One way to make each kind of store, so that the conformance suite runs on all of them.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "net/auth.h"
#include "rendezvous/callback_store.h"
#include "rendezvous/store.h"
#include "rendezvous/tcp_store.h"
#include "support/catch.h"

namespace tutti {

inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

inline Deadline soon() {
    return Deadline::after_ms(20'000);
}

/// A directory of its own, gone at the end.
class TemporaryDirectory {
public:
    TemporaryDirectory()
        : path_(std::filesystem::temp_directory_path() / ("tutti-test-" + *net::random_hex(8))) {
        std::filesystem::create_directories(path_);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    std::string path() const { return path_.string(); }
    std::string url() const { return "file://" + path(); }

private:
    std::filesystem::path path_;
};

/// A host program's store: what a framework would have, in a map.
class HostStore {
public:
    static StoreCallbacks callbacks() { return {.set = set, .get = get, .add = add}; }

private:
    static HostStore& of(void* user) { return *static_cast<HostStore*>(user); }
    static int set(void* user, const char* key, const void* value, std::size_t bytes) {
        const std::lock_guard lock(of(user).mutex_);
        of(user).values_[key] = std::string(static_cast<const char*>(value), bytes);
        of(user).changed_.notify_all();
        return 0;
    }
    static int get(void* user, const char* key, void* value, std::size_t capacity,
                   std::size_t* bytes, int64_t timeout_ms) {
        HostStore& self = of(user);
        std::unique_lock lock(self.mutex_);
        if (!self.changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                    [&] { return self.values_.contains(key); }))
            return 1;
        const std::string& found = self.values_.at(key);
        *bytes = found.size();
        std::memcpy(value, found.data(), std::min(capacity, found.size()));
        return 0;
    }
    static int add(void* user, const char* key, int64_t amount, int64_t* result) {
        const std::lock_guard lock(of(user).mutex_);
        *result = of(user).counters_[key] += amount;
        return 0;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::map<std::string, int64_t> counters_;
};

/// Opens further clients of one store, as further ranks would.
class StoreMaker {
public:
    virtual ~StoreMaker() = default;
    virtual std::unique_ptr<Store> open(const std::string& job) = 0;
};

std::unique_ptr<TcpStoreServer> start_server(const std::string& job,
                                             const std::string& secret = "");
StoreOptions client_options(const TcpStoreServer& server, const std::string& job,
                            const std::string& secret = "");

/// "tcp", "file", "callback".
std::unique_ptr<StoreMaker> make_store_maker(const std::string& kind);
inline constexpr const char* store_maker_kinds[] = {"tcp", "file", "callback"};

}  // namespace tutti
