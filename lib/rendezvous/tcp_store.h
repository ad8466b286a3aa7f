// The embedded TCP store: a server (rank 0, or the launcher) and its clients.
#pragma once

#include <memory>

#include "rendezvous/store.h"

namespace tutti {

/// Serves until destroyed, on a thread of its own. Serves its own job, and jobs with the same
/// secret that others open, each with keys of its own. Without a secret it serves on loopback only,
/// unless insecure is set: then it warns.
class TcpStoreServer {
public:
    struct Options {
        std::string host;
        uint16_t port = 0;  // 0: the system chooses
        std::string job;
        std::string secret;
        bool insecure = false;
        Deadline deadline = Deadline::after_ms(30'000);  // for looking up the host
    };
    static Result<std::unique_ptr<TcpStoreServer>> start(const Options& options);
    virtual ~TcpStoreServer() = default;
    virtual uint16_t port() const = 0;
    /// Connections that were refused for another secret, or wait for a job that is not open. Any
    /// thread.
    virtual uint64_t turned_away() const = 0;
};

/// Rank 0 starts the server first, unless the store is hosted; if a server of another job has the
/// port, rank 0 opens its job there. timeout: the store was not reachable, or the job was not open.
/// auth: at once, if the server has another secret.
Result<std::unique_ptr<Store>> open_tcp_store(const StoreOptions& options);

}  // namespace tutti
