#include "rendezvous/callback_store.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "net/auth.h"
#include "net/serving.h"
#include "rendezvous/store_kinds.h"
#include "wait/pace.h"

namespace tutti {
namespace {

constexpr std::size_t first_capacity = 4096;
constexpr std::size_t largest_value_bytes = std::size_t{64} << 20;
// A get waits this long at a time, so that another thread can set the key in between.
constexpr int64_t slice_ms = 50;
constexpr int64_t shared_slice_ms = 5;  // if other communicators call the same functions

// The first byte of a stored value. It tells an empty value from a removed one, and tells remove()
// whether the key was claimed.
enum class Mark : char { plain = 's', claimed = 'c' };

// A thread holds this mutex while it calls the host's functions. Communicators with the same
// functions share it (ranks may be threads of one process). A forked child has a mutex of its own:
// a thread of the parent may have held the parent's at the fork, and the child could never unlock
// it.
using Turn = std::mutex;
std::shared_ptr<Turn> find_turn(const StoreCallbacks& callbacks, void* user) {
    using Key = std::array<std::uintptr_t, 5>;
    static std::mutex turns_mutex;
    static auto* turns = new std::map<Key, std::weak_ptr<Turn>>;
    const Key key = {reinterpret_cast<std::uintptr_t>(callbacks.set),
                     reinterpret_cast<std::uintptr_t>(callbacks.get),
                     reinterpret_cast<std::uintptr_t>(callbacks.add),
                     reinterpret_cast<std::uintptr_t>(user),
                     static_cast<std::uintptr_t>(::getpid())};
    const std::lock_guard lock(turns_mutex);
    std::erase_if(*turns, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Turn>& known = (*turns)[key];
    auto turn = known.lock();
    if (!turn) known = turn = std::make_shared<Turn>();
    return turn;
}

class CallbackStore final : public Store {
public:
    CallbackStore(StoreCallbacks callbacks, void* user, std::string job)
        : callbacks_(callbacks),
          user_(user),
          job_(std::move(job)),
          turn_(find_turn(callbacks, user)) {}

    Result<> set(const std::string& key, std::string_view value, Deadline deadline) override;
    Result<std::string> get(const std::string& key, Deadline deadline) override;
    Result<std::optional<std::string>> try_get(const std::string& key, Deadline deadline) override;
    Result<bool> claim(const std::string& key, std::string_view value, std::string& existing,
                       Deadline deadline) override;
    Result<> remove(const std::string& key, Deadline deadline) override;
    std::string describe() const override { return "of the host program (callbacks)"; }

private:
    struct Found {
        bool present = false;
        Mark mark = Mark::plain;
        std::string value;
    };
    // Each is one call, or one group of calls that belong together, under the mutex.
    Result<> write(const std::string& key, Mark mark, std::string_view value);
    Result<Found> ask(const std::string& key, int64_t timeout_ms);
    Result<int64_t> count_claims(const std::string& key, int64_t amount);
    Result<bool> try_claim(const std::string& key, std::string_view value, Found& found);

    std::string host_key(const std::string& key) const { return job_ + "/" + key; }
    static ErrorResult failed(std::string_view function, const std::string& key, int status);

    StoreCallbacks callbacks_;
    void* user_;
    std::string job_;
    const std::shared_ptr<Turn> turn_;
    std::set<std::string> claimed_;  // protected by the mutex
};

ErrorResult CallbackStore::failed(std::string_view function, const std::string& key, int status) {
    return fail(Code::system, "the host program's store: callback {} failed with {} for key \"{}\"",
                function, status, key)
        .advice(
            "look at why the program's callback fails; the process that serves its store may "
            "have ended");
}

Result<> CallbackStore::write(const std::string& key, Mark mark, std::string_view value) {
    const std::string marked = static_cast<char>(mark) + std::string(value);
    const int status = callbacks_.set(user_, host_key(key).c_str(), marked.data(), marked.size());
    if (status != 0) return failed("set", key, status);
    return {};
}

Result<CallbackStore::Found> CallbackStore::ask(const std::string& key, int64_t timeout_ms) {
    std::string value(first_capacity, '\0');
    while (true) {
        std::size_t bytes = 0;
        const int status = callbacks_.get(user_, host_key(key).c_str(), value.data(), value.size(),
                                          &bytes, timeout_ms);
        if (status == 1) return Found{};
        if (status != 0) return failed("get", key, status);
        if (bytes == 0) return Found{};
        if (bytes > largest_value_bytes)
            return fail(Code::invalid,
                        "the host program's store: callback get says that key \"{}\" has {} bytes, "
                        "over the limit of {}",
                        key, bytes, largest_value_bytes)
                .advice("let the callback set *size to the size of the value that was set");
        if (bytes > value.size()) {
            value.resize(bytes);
            continue;
        }
        value.resize(bytes);
        return Found{true, static_cast<Mark>(value.front()), value.substr(1)};
    }
}

Result<int64_t> CallbackStore::count_claims(const std::string& key, int64_t amount) {
    int64_t sum = 0;
    const int status = callbacks_.add(user_, (host_key(key) + "/claims").c_str(), amount, &sum);
    if (status != 0) return failed("add", key, status);
    return sum;
}

Result<> CallbackStore::set(const std::string& key, std::string_view value, Deadline) {
    const std::lock_guard lock(*turn_);
    return write(key, claimed_.contains(key) ? Mark::claimed : Mark::plain, value);
}

Result<std::string> CallbackStore::get(const std::string& key, Deadline deadline) {
    const int64_t start_ns = now_ns();
    Pace pace(deadline, {.sleep_us = 1000});
    while (true) {
        {
            const std::lock_guard lock(*turn_);
            const int64_t most_ms = turn_.use_count() > 1 ? shared_slice_ms : slice_ms;
            TUTTI_ASSIGN(Found found, ask(key, deadline.left_ms(most_ms)));
            if (found.present) return std::move(found.value);
        }
        // Removed keys, and hosts whose get does not wait, return at once: the pause prevents
        // spinning.
        if (net::wait_cancelled() || !pace.pause()) return key_missing(key, describe(), start_ns);
    }
}

Result<std::optional<std::string>> CallbackStore::try_get(const std::string& key, Deadline) {
    const std::lock_guard lock(*turn_);
    TUTTI_ASSIGN(Found found, ask(key, 0));
    return found.present ? std::optional(std::move(found.value)) : std::nullopt;
}

// True: this process has the key. False with found.present: another process has it. False without:
// ask again.
Result<bool> CallbackStore::try_claim(const std::string& key, std::string_view value,
                                      Found& found) {
    const std::lock_guard lock(*turn_);
    TUTTI_ASSIGN(const int64_t claims, count_claims(key, 1));
    if (claims == 1) {
        TUTTI_ASSIGN(found, ask(key, 0));
        if (!found.present) {
            auto written = write(key, Mark::claimed, value);
            if (!written) {
                (void)count_claims(key, -1);  // reports the error of the write, which came first
                return tl::unexpected<Error>(std::move(written.error()));
            }
            claimed_.insert(key);
            return true;
        }
    }
    TUTTI_TRY(count_claims(key, -1));
    if (claims != 1) {
        TUTTI_ASSIGN(found, ask(key, 0));
    }
    return false;
}

Result<bool> CallbackStore::claim(const std::string& key, std::string_view value,
                                  std::string& existing, Deadline deadline) {
    const int64_t start_ns = now_ns();
    for (int attempt = 0;; ++attempt) {
        Found found;
        TUTTI_ASSIGN(const bool ours, try_claim(key, value, found));
        if (ours) return true;
        if (found.present) {
            existing = std::move(found.value);
            return false;
        }
        if (deadline.passed() || net::wait_cancelled()) break;
        // Another process has counted but not yet set its value, or both have counted at once.
        // Uneven pauses separate two that retry in step.
        const int unevenness = static_cast<int>(now_ns() % 8);
        ::poll(nullptr, 0, 1 + std::min(attempt, 20) + unevenness);
    }
    return fail(Code::timeout,
                "the host program's store: another process claimed the key \"{}\", but set no "
                "value within {} ms",
                key, (now_ns() - start_ns) / 1'000'000)
        .advice("check whether that process has ended, and start all ranks again");
}

Result<> CallbackStore::remove(const std::string& key, Deadline) {
    const std::lock_guard lock(*turn_);
    TUTTI_ASSIGN(const Found found, ask(key, 0));
    if (!found.present) return {};
    const int status = callbacks_.set(user_, host_key(key).c_str(), "", 0);
    if (status != 0) return failed("set", key, status);
    claimed_.erase(key);
    if (found.mark == Mark::claimed) TUTTI_TRY(count_claims(key, -1));
    return {};
}

}  // namespace

std::unique_ptr<Store> make_callback_store(StoreCallbacks callbacks, void* user, std::string job) {
    assert(callbacks.set != nullptr && callbacks.get != nullptr && callbacks.add != nullptr);
    return std::make_unique<CallbackStore>(callbacks, user, std::move(job));
}

}  // namespace tutti
