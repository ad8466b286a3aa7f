// torch's own store, as the place where tutti's ranks meet.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch {

/// Must outlive the communicator that was made with it.
class HostStore {
public:
    explicit HostStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

    /// A key prefix with the number of times this rank has joined through this store, so that this
    /// group ignores keys that an earlier group left.
    std::string next_generation(int rank);
    /// A random secret that rank 0 publishes, waited for that long. No safer than the store. Throws
    /// CallError: rank 0 did not come.
    std::string share_secret(int rank, const std::string& generation,
                             std::chrono::milliseconds timeout);
    /// Before this rank joins: it has this version of the layer, or a later one.
    void count_in(const std::string& generation);
    /// The number of ranks that have counted themselves in.
    int64_t counted(const std::string& generation);
    void attach(tutti_config* config);
    /// The last group of this store leaves: what is asked now is not there, without asking torch's
    /// store, whose host may have left already. Its client would write a stack trace about that;
    /// and no group takes the keys of this one for its own, whoever removes them.
    void close() { closed_ = true; }
    /// The text of the store's latest failure, "" if there was none.
    const std::string& failure() const { return failure_; }

private:
    template <typename Function>
    int guarded(Function function);
    static int set(void* user, const char* key, const void* value, size_t size);
    static int get(void* user, const char* key, void* value, size_t capacity, size_t* size,
                   int64_t timeout_ms);
    static int add(void* user, const char* key, int64_t amount, int64_t* result);
    bool appears(const std::string& key, int64_t timeout_ms);

    c10::intrusive_ptr<c10d::Store> store_;
    std::atomic<bool> closed_{false};
    std::string failure_;  // written by one callback at a time
};

}  // namespace tutti_torch
