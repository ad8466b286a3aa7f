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

/// A thread's own.
class DeviceGroupBatch final : public LaunchBatch {
public:
    static DeviceGroupBatch& here();

    Result<> open() override {
        ++depth_;
        return {};
    }
    bool gathering() const override { return depth_ > 0; }
    /// For add(), which then needs no memory: what has its place in the order has to be launched.
    void make_room();
    /// A request that has its place in the order; launched by close().
    void add(std::shared_ptr<DeviceLauncher> launcher, const DeviceLaunch& launch);
    /// The messages among those.
    std::vector<const DeviceMessages*> messages() const;
    /// Drops the launches of a communicator that is destroyed.
    void forget(const DeviceLauncher& launcher);
    /// Whether any of its collectives is still to be launched by this thread; on that stream.
    bool holds(const DeviceLauncher& launcher) const;
    bool holds(const DeviceLauncher& launcher, uint32_t stream) const;
    /// Whether that is, or has its place behind what is: until close() nothing ends it.
    bool holds(const DeviceLauncher& launcher, const Request& request) const;
    void after_close(std::function<void()> work) override { after_.push_back(std::move(work)); }
    /// The first failure; each request has its own too. invalid: nothing is open.
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
