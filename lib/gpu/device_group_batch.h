// Gathers one thread's calls on device memory for several ranks of its process, and launches them
// together: a device library's launch may wait for another rank's launch, which the same thread
// makes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/offload.h"

namespace tutti {

class DeviceLauncher;
struct DeviceMessages;
struct DevicePart;
struct DeviceLaunch;
struct Request;

/// Each thread has its own.
class DeviceGroupBatch final : public LaunchBatch {
public:
    static DeviceGroupBatch& here();

    Result<> open() override {
        ++depth_;
        return {};
    }
    bool gathering() const override { return depth_ > 0; }
    /// Reserves memory, so that add() cannot fail: a request with its place in the order must be
    /// launched.
    void make_room();
    /// Adds a request that has its place in the order; close() launches it.
    void add(std::shared_ptr<DeviceLauncher> launcher, const DeviceLaunch& launch);
    /// The messages among the requests.
    std::vector<const DeviceMessages*> messages() const;
    /// Drops the launches of a communicator that is destroyed.
    void forget(const DeviceLauncher& launcher);
    /// Whether this thread has still to launch one of its collectives (on that stream).
    bool holds(const DeviceLauncher& launcher) const;
    bool holds(const DeviceLauncher& launcher, uint32_t stream) const;
    /// Whether the request is gathered, or ordered behind a gathered one: it cannot end before
    /// close().
    bool holds(const DeviceLauncher& launcher, const Request& request) const;
    void after_close(std::function<void()> work) override { after_.push_back(std::move(work)); }
    /// Returns the first failure; each request keeps its own. invalid: no batch is open.
    Result<> close() override;

private:
    struct GatheredLaunch {
        std::shared_ptr<DeviceLauncher> launcher;  // keeps its communicator
        Request* request = nullptr;
        DevicePart* device = nullptr;
        Result<> launched;
    };
    static void launch_all(std::vector<GatheredLaunch>& all);
    static void launch(const std::vector<GatheredLaunch*>& all);
    int depth_ = 0;
    std::vector<GatheredLaunch> waiting_;
    std::vector<std::function<void()>> after_;
};

}  // namespace tutti
