// Rendezvous: a small key-value store in which the ranks of a job find each other.
#pragma once

#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tutti {

/// A value that a store sets when this process ends; withdrawn by the destructor.
class Will {
public:
    virtual ~Will() = default;
};

class Store {
public:
    virtual ~Store() = default;
    // Any thread may call these. The deadline is for the store's answer. Calls of a file system or
    // of the program's callbacks cannot be interrupted, so they may take longer.
    virtual Result<> set(const std::string& key, std::string_view value, Deadline deadline) = 0;
    /// Waits for the key to appear. timeout names the key, the store and the time waited.
    virtual Result<std::string> get(const std::string& key, Deadline deadline) = 0;
    /// Does not wait for the key: nullopt if it is absent. An error: the store did not answer.
    virtual Result<std::optional<std::string>> try_get(const std::string& key,
                                                       Deadline deadline) = 0;
    /// Sets the key only if it is absent. False: it was present, and `existing` is its value.
    virtual Result<bool> claim(const std::string& key, std::string_view value,
                               std::string& existing, Deadline deadline) = 0;
    virtual Result<> remove(const std::string& key, Deadline deadline) = 0;
    /// If this process ends before the will is withdrawn, the store claims the key. The key's value
    /// is the time of that (seconds since 1970, 8 bytes) followed by this value. nullptr: this kind
    /// of store does not notice.
    virtual Result<std::unique_ptr<Will>> set_will(const std::string& /*key*/,
                                                   std::string_view /*value*/,
                                                   Deadline /*deadline*/) {
        return nullptr;
    }
    /// Whether the values that this process has set disappear once it has closed the store.
    virtual bool forgets() const { return false; }
    virtual std::string describe() const = 0;  // "tcp://10.0.0.1:29500", for error messages
    /// An observation of this process that may explain why other ranks did not join, for error
    /// messages ("2 connections to the store were refused for a wrong secret"); usually empty.
    virtual std::string suspicion() const { return {}; }
    /// A reason why other ranks cannot join that only this store can find, or nullopt. A rank that
    /// waits for other ranks asks now and then, on the thread that joins.
    virtual std::optional<Error> obstacle() { return std::nullopt; }
    /// The advice about ranks that did not join; empty: the usual one.
    virtual std::string remedy() const { return {}; }
};

/// The errno of the error that a tcp store serves other jobs, and this one is not open.
inline constexpr int job_closed_errno = ENOENT;
inline bool is_job_closed(const Error& error) {
    return error.code == Code::auth && error.sys_errno == job_closed_errno;
}

struct StoreOptions {
    std::string url;        // tcp://host:port (or several, with commas), file:///dir
    std::string job;        // the prefix of all keys: jobs with different names may share a store
    std::string secret;     // proves membership of the job; empty: none is asked for
    Rank rank = 0;          // this process: rank 0 also starts the server of a tcp store, unless…
    bool hosted = false;    // …a server runs already, started by a launcher or by a rank
    bool in_job = false;    // a rank has started it, so it ends with that rank's process
    Rank server = nobody;   // the rank whose server is known to run; if it cannot be reached,
                            // its process has ended
    bool insecure = false;  // allow a tcp store on other addresses than loopback without a secret
    Deadline deadline;      // for connecting to the store
};

/// One row per kind of store; errors about unknown schemes list them.
struct StoreKind {
    std::string_view scheme;   // "tcp"
    std::string_view example;  // "tcp://host:port"
    Result<std::unique_ptr<Store>> (*open)(const StoreOptions& options);
};
std::span<const StoreKind> store_kinds();

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options);

}  // namespace tutti
