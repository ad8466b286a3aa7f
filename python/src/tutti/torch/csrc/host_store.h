// torch's own store, for the rendezvous of tutti's ranks.
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

    /// A key prefix with this rank's number of joins through this store, so that the group ignores
    /// an earlier group's keys. one_launcher: all ranks have the same run and attempt of torchrun,
    /// which are part of the prefix.
    std::string next_generation(int rank, bool one_launcher);
    /// Returns a random secret that rank 0 publishes; waits up to the time-out. No safer than the
    /// store. Throws CallError if rank 0 did not publish it.
    std::string share_secret(int rank, const std::string& generation,
                             std::chrono::milliseconds timeout);
    /// Returns a random secret that all processes with this store agree on, without waiting for any
    /// of them; "" if the store cannot do that.
    std::string agree_on_secret();
    /// Call it before this rank joins: announces this version of the layer, or a later one.
    void count_in(const std::string& generation);
    /// The number of ranks that have counted themselves in.
    int64_t counted(const std::string& generation);
    void attach(tutti_config* config);
    /// The last group of this store leaves: later requests find no key, without a call of torch's
    /// store. Its host may have exited, and its client would then print a stack trace. The keys may
    /// stay in the store: no other group uses the same prefix.
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
