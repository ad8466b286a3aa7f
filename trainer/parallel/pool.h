// Persistent worker threads, one a device, and the replicas that run on them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/result.h"
#include "trainer/parallel/exchange.h"
#include "trainer/parallel/hosts.h"
#include "trainer/parallel/value.h"

struct tutti_replica {
    int device = 0;
    int count = 1;
    tutti_apply_opts flags = TUTTI_APPLY_OPTS_INIT;
    const tutti_value* input = nullptr;
    std::unique_ptr<tutti_value> output;
    std::string error;
    bool left = false;  // it exchanges no more; under the pool's mutex
};

struct tutti_pool {
public:
    explicit tutti_pool(int devices);
    ~tutti_pool();

    int size() const { return static_cast<int>(threads_.size()); }

    struct ApplyCall {
        tutti_replica_fn function = nullptr;
        void* user = nullptr;
        std::vector<const tutti_value*> inputs;
        int replicas = 1;
        tutti_apply_opts opts = TUTTI_APPLY_OPTS_INIT;
        bool evaluates = false;  // sends nothing: no other host waits for it
    };
    using Outputs = std::vector<std::unique_ptr<tutti_value>>;
    tutti::trainer::Result<Outputs> apply(const ApplyCall& call);

    using DeviceExchange = tutti::trainer::parallel::DeviceExchange;
    /// A replica may call it, too; the exchange then serves the replicas of the current call.
    void attach(std::shared_ptr<DeviceExchange> exchange);
    void detach(const DeviceExchange& exchange);
    /// A replica of the current call reaches a sum over hosts, whatever the call's flags are.
    void set_adds_hosts() { adds_hosts_ = true; }
    /// The communicator that the pool's layers over comm share. Collective the first time.
    tutti::trainer::Result<std::shared_ptr<tutti::trainer::parallel::HostComm>> hosts_of(
        tutti_comm* comm);

private:
    using Exchanges = std::vector<std::shared_ptr<DeviceExchange>>;
    void begin(const ApplyCall& call);
    void end();
    /// Marks the replica as ended; returns the exchanges in which others may wait for it.
    Exchanges mark_left(tutti_replica& replica);
    void work(int device);
    void stop();
    void run_at_once();
    void run_one_after_another(const ApplyCall& call);
    /// Runs a replica from its start to its end, including failures and exceptions.
    void run_replica(tutti_replica& replica, const ApplyCall& call);
    void note_failure(const tutti::trainer::Error& cause);
    std::vector<std::shared_ptr<tutti::trainer::parallel::HostComm>> hosts();
    void abort_hosts();

    std::mutex busy_;  // held by the caller of apply
    // Lock order: before an exchange's mutex; never taken in an exchange's callback.
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    uint64_t generation_ = 0;
    int awake_ = 0;    // devices of the current call; 0 between calls
    int running_ = 0;  // devices of the call that are not done
    bool stop_ = false;
    const ApplyCall* call_ = nullptr;
    std::atomic<bool> adds_hosts_{false};  // in the current call
    std::vector<tutti_replica> replicas_;
    std::optional<tutti::trainer::Error> first_;
    Exchanges exchanges_;
    std::vector<std::weak_ptr<tutti::trainer::parallel::HostComm>> hosts_;
    std::vector<std::thread> threads_;
};
