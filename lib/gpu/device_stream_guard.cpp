#include "gpu/device_stream_guard.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace tutti {
namespace {

// One entry for each operation. Never destroyed: threads may outlive main.
struct Uses {
    std::mutex mutex;
    std::vector<StreamUser> users;
};
Uses& uses() {
    static auto* made = new Uses;
    return *made;
}

bool same_stream(const StreamUser& a, const StreamUser& b) {
    return a.device == b.device && a.stream == b.stream && a.job == b.job &&
           a.communicator == b.communicator;
}

}  // namespace

Result<DeviceStreamGuard> DeviceStreamGuard::begin(const StreamUser& user) {
    const std::lock_guard lock(uses().mutex);
    for (const StreamUser& other : uses().users)
        if (same_stream(other, user) && other.rank != user.rank)
            return fail(Code::invalid,
                        "rank {} of this process has an operation in progress on the same stream "
                        "of device {}; it would wait for this one, which is behind it",
                        other.rank, user.device)
                .advice(
                    "give each rank a stream of its own that does not wait for the default "
                    "stream (cudaStreamNonBlocking)");
    uses().users.push_back(user);
    return DeviceStreamGuard(user);
}

void DeviceStreamGuard::end() {
    if (!user_) return;
    const std::lock_guard lock(uses().mutex);
    auto& users = uses().users;
    const auto own = std::find_if(users.begin(), users.end(), [this](const StreamUser& other) {
        return same_stream(other, *user_) && other.rank == user_->rank;
    });
    *own = users.back();
    users.pop_back();
    user_.reset();
}

}  // namespace tutti
