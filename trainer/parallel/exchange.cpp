#include "trainer/parallel/exchange.h"

#include <algorithm>
#include <chrono>

#include "trainer/base/boundary.h"

namespace tutti::trainer::parallel {
namespace {

constexpr int64_t default_timeout_ms = 300'000;

template <typename T>
void add_up(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
            std::size_t bytes) {
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
        T sum{};
        for (const void* input : inputs)
            sum = static_cast<T>(sum + static_cast<const T*>(input)[i]);
        for (void* output : outputs) static_cast<T*>(output)[i] = sum;
    }
}

}  // namespace

void DeviceExchange::begin(int devices, bool at_once) {
    const Lock lock(mutex_);
    devices_ = devices;
    at_once_ = at_once;
    open_.clear();
    callbacks_.clear();
    pushed_.assign(static_cast<std::size_t>(devices), completed_);
    departed_.assign(static_cast<std::size_t>(devices), false);
    failure_.reset();
}

void DeviceExchange::end() {
    const Lock lock(mutex_);
    devices_ = 0;
    open_.clear();
}

int DeviceExchange::size() {
    const Lock lock(mutex_);
    return devices_;
}

void DeviceExchange::leave(int device) {
    Lock lock(mutex_);
    departed_[static_cast<std::size_t>(device)] = true;
    check_departed();
    run_callbacks(lock);
}

void DeviceExchange::fail(const Error& cause) {
    Lock lock(mutex_);
    fail_locked(cause);
    run_callbacks(lock);
}

void DeviceExchange::fail_locked(const Error& cause) {
    if (!failure_) failure_ = cause;
    changed_.notify_all();
}

/// Fails the rounds that a departed device has not pushed, because other devices would wait for
/// ever.
void DeviceExchange::check_departed() {
    if (pushed_.empty()) return;
    const uint64_t furthest = *std::max_element(pushed_.begin(), pushed_.end());
    const auto ahead = std::max_element(pushed_.begin(), pushed_.end()) - pushed_.begin();
    for (std::size_t d = 0; d < pushed_.size(); ++d)
        if (departed_[d] && pushed_[d] < furthest)
            fail_locked(
                trainer::fail_device(
                    TUTTI_ERR_INVALID, static_cast<int>(d),
                    "exchange: device {} returned while device {} waits for it in a further round",
                    d, ahead)
                    .advice("call the exchange equally often in every replica")
                    .value());
}

Result<> DeviceExchange::check_push(int device) const {
    if (devices_ == 0)
        return trainer::fail(TUTTI_ERR_INVALID, "exchange: no replicas are running")
            .advice("call it inside tutti_parallel_apply");
    if (device < 0 || device >= devices_)
        return trainer::fail(TUTTI_ERR_INVALID,
                             "exchange: device {} is out of range: {} replicas are running", device,
                             devices_)
            .advice("pass a device from 0 to {}", devices_ - 1);
    if (!at_once_ && devices_ > 1)
        return trainer::fail_device(TUTTI_ERR_INVALID, device,
                                    "exchange: {} replicas run one after another, so that device "
                                    "{} would wait for the next one for ever",
                                    devices_, device)
            .advice("call tutti_parallel_apply with sync = 1");
    if (failure_) return tl::unexpected<Error>(*failure_);
    return {};
}

Result<> DeviceExchange::check_sizes(const Round& round) const {
    for (std::size_t d = 1; d < round.slots.size(); ++d)
        if (round.slots[d].bytes != round.slots[0].bytes)
            return trainer::fail_device(TUTTI_ERR_INVALID, static_cast<int>(d),
                                        "exchange: device {} gave {} bytes, device 0 {}", d,
                                        round.slots[d].bytes, round.slots[0].bytes)
                .advice("pass the same number of bytes in every replica");
    return {};
}

Result<uint64_t> DeviceExchange::push(int device, const void* in, void* out, std::size_t bytes) {
    Lock lock(mutex_);
    TRAINER_TRY(check_push(device));
    uint64_t& next = pushed_[static_cast<std::size_t>(device)];
    const uint64_t number = next++;
    while (open_.size() <= number - completed_)
        open_.push_back({std::vector<PushedValue>(static_cast<std::size_t>(devices_)), 0});
    Round& round = open_[number - completed_];
    round.slots[static_cast<std::size_t>(device)] = {in, out, bytes, true};
    if (++round.arrived == devices_) {
        // The oldest: all devices have pushed the earlier ones, and those were combined then.
        const Round complete = std::move(round);
        combining_ = true;
        lock.unlock();
        const auto combined = contain([&] { return combine(complete); });
        lock.lock();
        combining_ = false;
        changed_.notify_all();
        if (combined && !failure_) {
            open_.pop_front();
            ++completed_;
        } else if (!combined) {
            fail_locked(combined.error());
        }
    } else {
        check_departed();
    }
    run_callbacks(lock);
    if (failure_ && number >= completed_) return tl::unexpected<Error>(*failure_);
    return number;
}

Result<> DeviceExchange::combine(const Round& round) {
    TRAINER_TRY(check_sizes(round));
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const PushedValue& slot : round.slots) {
        inputs.push_back(slot.in);
        outputs.push_back(slot.out);
    }
    const std::size_t bytes = round.slots[0].bytes;
    if (spec_.combine) {
        last_error() = {TUTTI_OK, -1, -1, {}};  // so that a text found later is the operator's
        const tutti_status status = spec_.combine(spec_.user, inputs.data(), outputs.data(),
                                                  static_cast<int>(inputs.size()), bytes);
        if (status == TUTTI_OK) return {};
        const std::string text = tutti_trainer_last_error();
        return fail_rank(status, tutti_trainer_last_error_rank(),
                         "exchange: its operator failed: {}",
                         text.empty() ? tutti_status_string(status) : text)
            .advice("look at why the function spec.combine returned this status");
    }
    if (device_sum_.is_used()) return device_sum_.add_up(spec_.dtype, inputs, outputs, bytes);
    if (spec_.dtype == TUTTI_FLOAT32)
        add_up<float>(inputs, outputs, bytes);
    else if (spec_.dtype == TUTTI_FLOAT64)
        add_up<double>(inputs, outputs, bytes);
    else
        add_up<int64_t>(inputs, outputs, bytes);
    return {};
}

std::string DeviceExchange::missing_devices(uint64_t round) const {
    std::string names;
    if (round - completed_ >= open_.size()) return names;
    const auto& slots = open_[round - completed_].slots;
    for (std::size_t d = 0; d < slots.size(); ++d)
        if (!slots[d].here) names += fmt::format("{}{}", names.empty() ? "" : ", ", d);
    return names;
}

Result<> DeviceExchange::pull(uint64_t round) {
    Lock lock(mutex_);
    const auto over = [&] { return is_over(round); };
    const auto combined_now = [&] { return combining_ && round == completed_; };
    const int64_t timeout_ms = spec_.timeout_ms < 0 ? default_timeout_ms : spec_.timeout_ms;
    const auto timeout = std::chrono::milliseconds(timeout_ms);
    if (timeout_ms != 0 && !changed_.wait_for(lock, timeout, over) && !combined_now()) {
        auto late = trainer::fail(TUTTI_ERR_TIMEOUT,
                                  "exchange: timed out after {} ms waiting for device {}",
                                  timeout_ms, missing_devices(round))
                        .advice(
                            "look at what these replicas do; if they are only slow, raise "
                            "spec.timeout_ms");
        fail_locked(late.value());
        run_callbacks(lock);
        return late;
    }
    // Wait without a deadline: the operator still writes to its outputs, and ends by itself.
    changed_.wait(lock, over);
    if (round < completed_) return {};
    return tl::unexpected<Error>(*failure_);
}

bool DeviceExchange::is_over(uint64_t round) const {
    return round < completed_ || (failure_ && !(combining_ && round == completed_));
}

void DeviceExchange::then(uint64_t round, void (*function)(void*, tutti_status), void* user) {
    Lock lock(mutex_);
    callbacks_.push_back({round, function, user});
    run_callbacks(lock);
}

void DeviceExchange::run_callbacks(Lock& lock) {
    if (callbacks_.empty()) return;
    std::vector<std::pair<Callback, tutti_status>> due;
    std::erase_if(callbacks_, [&](const Callback& callback) {
        if (!is_over(callback.round)) return false;
        const bool complete = callback.round < completed_;
        due.emplace_back(callback, complete ? TUTTI_OK : failure_->status);
        return true;
    });
    lock.unlock();
    for (const auto& [callback, status] : due) callback.function(callback.user, status);
    lock.lock();
}

}  // namespace tutti::trainer::parallel
