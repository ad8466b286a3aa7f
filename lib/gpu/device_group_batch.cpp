#include "gpu/device_group_batch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "gpu/device_launcher.h"
#include "gpu/device_messages.h"

namespace tutti {

LaunchBatch& launch_batch() {
    return DeviceGroupBatch::here();
}

DeviceGroupBatch& DeviceGroupBatch::here() {
    thread_local DeviceGroupBatch launches;
    return launches;
}

void DeviceGroupBatch::make_room() {
    if (gathering() && waiting_.size() == waiting_.capacity())
        waiting_.reserve(2 * waiting_.size() + 4);
}

void DeviceGroupBatch::add(std::shared_ptr<DeviceLauncher> launcher, const DeviceLaunch& launch) {
    waiting_.push_back({std::move(launcher), &launch.request, &launch.device, {}});
}

std::vector<const DeviceMessages*> DeviceGroupBatch::messages() const {
    std::vector<const DeviceMessages*> all;
    for (const GatheredLaunch& w : waiting_)
        if (!w.request->plan) all.push_back(static_cast<const DeviceMessages*>(w.request));
    return all;
}

void DeviceGroupBatch::forget(const DeviceLauncher& launcher) {
    std::erase_if(waiting_, [&](const GatheredLaunch& w) { return w.launcher.get() == &launcher; });
}

bool DeviceGroupBatch::holds(const DeviceLauncher& launcher) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const GatheredLaunch& w) {
        return w.launcher.get() == &launcher && w.request->plan;
    });
}

bool DeviceGroupBatch::holds(const DeviceLauncher& launcher, uint32_t stream) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const GatheredLaunch& w) {
        return w.launcher.get() == &launcher && w.request->plan &&
               w.request->plan->stream == stream;
    });
}

bool DeviceGroupBatch::holds(const DeviceLauncher& launcher, const Request& request) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const GatheredLaunch& w) {
        if (w.launcher.get() != &launcher) return false;
        const Plan *first = w.request->plan, *plan = request.plan;
        return w.request == &request || (first && plan && first->stream == plan->stream &&
                                         w.request->tag.sequence < request.tag.sequence);
    });
}

// If one launch fails, the others are still launched, so that their ranks do not wait in vain.
void DeviceGroupBatch::launch(const std::vector<GatheredLaunch*>& all) {
    const DeviceLibrary* library = nullptr;
    uint32_t parts = 0;
    for (const GatheredLaunch* w : all) {
        if (!library) library = w->launcher->library();
        parts = std::max(parts, w->launcher->parts(*w->device));
    }
    for (uint32_t part = 0; part < parts; ++part) {
        const auto each = [&](auto&& step) {
            for (GatheredLaunch* w : all) {
                if (!w->launched || part >= w->launcher->parts(*w->device)) continue;
                w->launched = step(*w);
                // Report now: this thread's next launch may wait for this rank's.
                if (!w->launched) w->launcher->report_failure(*w->request, w->launched.error());
            }
        };
        Result<> together;
        if (library) together = library->gather_launches();
        each([&](GatheredLaunch& w) {
            return together ? w.launcher->put_on_stream({*w.request, *w.device}, part) : together;
        });
        if (library && together) together = library->launch_gathered();
        each([&](GatheredLaunch& w) {
            return together ? DeviceLauncher::mark(*w.device, part) : together;
        });
        each([&](GatheredLaunch& w) {
            return together ? w.launcher->finish_part({*w.request, *w.device}, part) : together;
        });
    }
}

// The library takes all launches of one part together, so their order does not matter. Operations
// with several parts break that: then round n launches the n-th collective of every communicator. A
// message joins its communicator's next collective, because ranks need not call the same messages.
void DeviceGroupBatch::launch_all(std::vector<GatheredLaunch>& all) {
    const bool in_parts = std::any_of(all.begin(), all.end(), [](const GatheredLaunch& w) {
        return w.launcher->parts(*w.device) > 1;
    });
    std::map<const DeviceLauncher*, std::size_t> before;
    std::vector<std::vector<GatheredLaunch*>> rounds;
    for (GatheredLaunch& w : all) {
        std::size_t& next = before[w.launcher.get()];
        const std::size_t round = in_parts ? next : 0;
        if (w.request->plan) ++next;
        if (round == rounds.size()) rounds.emplace_back();
        rounds[round].push_back(&w);
    }
    for (const auto& round : rounds) launch(round);
}

Result<> DeviceGroupBatch::close() {
    if (depth_ == 0)
        return fail(Code::invalid, "this thread has not called tutti_launch_start")
            .advice("call tutti_launch_start on the same thread first");
    if (--depth_ > 0) return {};
    std::vector<GatheredLaunch> all;
    all.swap(waiting_);
    for (GatheredLaunch& w : all) w.launched = w.launcher->may_launch(*w.request);
    launch_all(all);
    std::optional<Error> first;
    for (GatheredLaunch& w : all)
        if (const auto done = w.launcher->finish(*w.request, w.launched); !done && !first)
            first = done.error();
    for (const auto& work : std::exchange(after_, {})) work();
    if (first) return tl::unexpected(*first);
    return {};
}

}  // namespace tutti
