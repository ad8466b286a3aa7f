// The embedded TCP store: a server (rank 0, or the launcher) and its clients.
#pragma once

#include <memory>

#include "rendezvous/store.h"

namespace tutti {

/// Serves until destroyed, on a thread of its own. Keys of one job only (the handshake says which).
/// Without a secret it serves on loopback only, unless insecure is set: then it warns.
class TcpStoreServer {
public:
    struct Options {
        std::string host;
        uint16_t port = 0;  // 0: the system's choice
        std::string job;
        std::string secret;
        bool insecure = false;
        Deadline deadline = Deadline::after_ms(30'000);  // for looking up the host
    };
    static Result<std::unique_ptr<TcpStoreServer>> start(const Options& options);
    virtual ~TcpStoreServer() = default;
    virtual uint16_t port() const = 0;
    /// Connections that had another secret or belonged to another job. Any thread.
    virtual uint64_t turned_away() const = 0;
};

/// Rank 0 starts the server first, unless it is hosted; timeout: the store was not reachable; auth:
/// at once, when whoever answers does not know the secret.
Result<std::unique_ptr<Store>> open_tcp_store(const StoreOptions& options);

}  // namespace tutti
