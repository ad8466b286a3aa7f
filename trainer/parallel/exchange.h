// Exchange among the devices of a process: in each round every device gives a value and gets the
// combined value.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/device_sum.h"
#include "tutti/trainer_parallel.h"

namespace tutti::trainer::parallel {

/// Rounds complete in order: a device pushes its rounds in order, and the last push of a round
/// combines before it returns. The first failure ends all rounds that are not complete.
class DeviceExchange {
public:
    /// No devices take part until the pool calls begin.
    DeviceExchange(const tutti_parallel_spec& spec, std::vector<Device*> devices)
        : spec_(spec), device_sum_(std::move(devices)) {}

    /// A parallel_apply starts. The round numbers continue.
    void begin(int devices, bool at_once);
    /// The parallel_apply is over: all replicas have returned.
    void end();
    /// A device will push no more.
    void leave(int device);
    void fail(const Error& cause);

    int size();
    Result<uint64_t> push(int device, const void* in, void* out, std::size_t bytes);
    Result<> pull(uint64_t round);
    void then(uint64_t round, void (*function)(void*, tutti_status), void* user);

private:
    struct PushedValue {
        const void* in = nullptr;
        void* out = nullptr;
        std::size_t bytes = 0;
        bool here = false;
    };
    struct Round {
        std::vector<PushedValue> slots;
        int arrived = 0;
    };
    struct Callback {
        uint64_t round;
        void (*function)(void*, tutti_status);
        void* user;
    };
    using Lock = std::unique_lock<std::mutex>;

    Result<> check_push(int device) const;
    Result<> check_sizes(const Round& round) const;
    void check_departed();
    void fail_locked(const Error& cause);
    Result<> combine(const Round& round);
    std::string missing_devices(uint64_t round) const;
    /// The round is complete or failed, and no thread writes to its outputs any more.
    bool is_over(uint64_t round) const;
    /// Calls the callbacks of the rounds that are over, without the lock.
    void run_callbacks(Lock& lock);

    const tutti_parallel_spec spec_;
    DeviceSum device_sum_;  // one round at a time
    std::mutex mutex_;
    std::condition_variable changed_;
    int devices_ = 0;
    bool at_once_ = true;
    uint64_t completed_ = 0;        // rounds that are over with success
    std::deque<Round> open_;        // from completed_ on
    std::vector<uint64_t> pushed_;  // the next round of each device
    std::vector<bool> departed_;
    bool combining_ = false;  // round completed_, without the lock
    std::optional<Error> failure_;
    std::vector<Callback> callbacks_;
};

}  // namespace tutti::trainer::parallel
