#include "host_store.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "errors.h"

namespace tutti_torch {
namespace {

constexpr std::size_t secret_bytes = 32;

std::string random_secret() {
    std::array<unsigned char, secret_bytes> random{};
    std::size_t filled = 0;
    while (filled < random.size()) {
        const ssize_t more = ::getrandom(random.data() + filled, random.size() - filled, 0);
        TORCH_CHECK(more > 0,
                    "tutti: getrandom failed for the job's secret: ", std::strerror(errno),
                    ". What to do: set TUTTI_SECRET on every rank");
        filled += static_cast<std::size_t>(more);
    }
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : random) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

}  // namespace

std::string HostStore::next_generation(int rank, bool one_launcher) {
    // torchrun keeps the store over restarts. A rank that failed before this point has not counted,
    // so each of torchrun's attempts counts from the start.
    std::string prefix = "tutti/";
    for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
        if (const char* value = one_launcher ? std::getenv(name) : nullptr)
            prefix += std::string(value) + "/";
    return prefix + std::to_string(store_->add(prefix + "joined/" + std::to_string(rank), 1));
}

std::string HostStore::share_secret(int rank, const std::string& generation,
                                    std::chrono::milliseconds timeout) {
    const std::string key = generation + "/secret";
    if (rank != 0) {
        if (appears(key, timeout.count())) return store_->get_to_str(key);
        const std::string cause =
            c10::str("rank ", rank, ": rank 0 did not begin to join within ", timeout.count(),
                     " ms: it published no secret in torch's store. What to do: read the output of "
                     "rank 0; if it only starts late, raise the timeout of the group");
        throw CallError(TUTTI_ERR_TIMEOUT, 0, "init", cause,
                        "tutti init: timed out: Timed out waiting for other ranks: " + cause);
    }
    std::string secret = random_secret();
    store_->set(key, secret);
    return secret;
}

std::string HostStore::agree_on_secret() {
    const std::string own = random_secret();
    try {
        const std::vector<uint8_t> kept = store_->compareSet(
            "tutti/handles/secret", {}, std::vector<uint8_t>(own.begin(), own.end()));
        return {kept.begin(), kept.end()};
    } catch (const std::exception&) {
        return {};
    }
}

void HostStore::count_in(const std::string& generation) {
    store_->add(generation + "/lists", 1);
}

int64_t HostStore::counted(const std::string& generation) {
    return store_->add(generation + "/lists", 0);
}

void HostStore::attach(tutti_config* config) {
    const tutti_store_callbacks callbacks{sizeof(tutti_store_callbacks), &HostStore::set,
                                          &HostStore::get, &HostStore::add};
    check(tutti_config_set_store(config, &callbacks, this), "init");
}

// No exception may cross the C API; the text is kept for the error of Group::join.
template <typename Function>
int HostStore::guarded(Function function) {
    try {
        return function();
    } catch (const std::exception& error) {
        failure_ = error.what();
    } catch (...) {
        failure_ = "an unknown exception";
    }
    return -1;
}

int HostStore::set(void* user, const char* key, const void* value, size_t size) {
    auto& self = *static_cast<HostStore*>(user);
    return self.guarded([&] {
        const auto* bytes = static_cast<const uint8_t*>(value);
        self.store_->set(key, std::vector<uint8_t>(bytes, bytes + size));
        return 0;
    });
}

// A store reports "not in time" by an exception, like any failure; a second request shows whether
// the store still works.
bool HostStore::appears(const std::string& key, int64_t timeout_ms) {
    if (store_->check({key})) return true;
    if (timeout_ms <= 0) return false;
    try {
        store_->wait({key}, std::chrono::milliseconds(timeout_ms));
        return true;
    } catch (const std::exception&) {
        return store_->check({key});
    }
}

int HostStore::get(void* user, const char* key, void* value, size_t capacity, size_t* size,
                   int64_t timeout_ms) {
    auto& self = *static_cast<HostStore*>(user);
    if (self.closed_) return 1;
    return self.guarded([&] {
        if (!self.appears(key, timeout_ms)) return 1;
        const std::vector<uint8_t> found = self.store_->get(key);
        std::copy_n(found.data(), std::min(found.size(), capacity), static_cast<uint8_t*>(value));
        *size = found.size();
        return 0;
    });
}

int HostStore::add(void* user, const char* key, int64_t amount, int64_t* result) {
    auto& self = *static_cast<HostStore*>(user);
    return self.guarded([&] {
        *result = self.store_->add(key, amount);
        return 0;
    });
}

}  // namespace tutti_torch
