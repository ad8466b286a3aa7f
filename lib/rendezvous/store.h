// Rendezvous: a small key-value store in which the ranks of a job find each other.
#pragma once

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
    // Deadlines are for a store's answer. A file system's calls cannot be given up, nor can those
    // of a host program: they may take longer.
    virtual Result<> set(const std::string& key, std::string_view value, Deadline deadline) = 0;
    /// Waits for the key to appear. timeout says which key, which store and how long.
    virtual Result<std::string> get(const std::string& key, Deadline deadline) = 0;
    /// Does not wait for the key: nothing, if it is not there. An error is a store that did not
    /// answer.
    virtual Result<std::optional<std::string>> try_get(const std::string& key,
                                                       Deadline deadline) = 0;
    /// Sets the key only if nobody has; false, and what is there in `existing`, if somebody has.
    virtual Result<bool> claim(const std::string& key, std::string_view value,
                               std::string& existing, Deadline deadline) = 0;
    virtual Result<> remove(const std::string& key, Deadline deadline) = 0;
    /// If this process ends before the will is withdrawn, the store claims the key. The value is
    /// the time then (seconds since 1970, 8 bytes) and after it this one. Nothing: this kind of
    /// store does not notice.
    virtual Result<std::unique_ptr<Will>> set_will(const std::string& /*key*/,
                                                   std::string_view /*value*/,
                                                   Deadline /*deadline*/) {
        return nullptr;
    }
    /// Whether what this process has set is gone once it has let go of the store.
    virtual bool forgets() const { return false; }
    virtual std::string describe() const = 0;  // "tcp://10.0.0.1:29500", for messages
    /// An observation of this process that may explain why other ranks did not join, for error
    /// messages; mostly empty.
    virtual std::string suspicion() const { return {}; }
};

struct StoreOptions {
    std::string url;  // tcp://host:port, file:///dir
    std::string job;  // key prefix
    std::string secret;
    Rank rank = 0;          // rank 0 hosts an embedded store…
    bool hosted = false;    // …unless a launcher or a rank already does
    bool in_job = false;    // the hosted one is a rank's
    bool insecure = false;  // without a secret, tcp listens on loopback only unless this is set
    Deadline deadline;      // for reaching the store
};

/// One row per kind of store; messages about unknown schemes list them.
struct StoreKind {
    std::string_view scheme;   // "tcp"
    std::string_view example;  // "tcp://host:port"
    Result<std::unique_ptr<Store>> (*open)(const StoreOptions& options);
};
std::span<const StoreKind> store_kinds();

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options);

}  // namespace tutti
