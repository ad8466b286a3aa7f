#include "comm/launches.h"

#include <optional>

#include "comm/communicator.h"

namespace tutti {

Launches& Launches::here() {
    thread_local Launches launches;
    return launches;
}

void Launches::add(std::shared_ptr<Communicator> comm, Request& request) {
    waiting_.push_back({std::move(comm), &request, {}});
}

void Launches::forget(const Communicator& comm) {
    std::erase_if(waiting_, [&](const Waiting& w) { return w.comm.get() == &comm; });
}

// Whatever goes wrong with one, the others are launched: their ranks are not to be left waiting.
Result<> Launches::close() {
    if (depth_ == 0) return fail(Code::invalid, "no launches are being gathered");
    if (--depth_ > 0) return {};
    std::vector<Waiting> all;
    all.swap(waiting_);
    if (all.empty()) return {};
    const DeviceLibrary* library = nullptr;
    for (const Waiting& w : all)
        if (!library) library = w.comm->device_library();
    for (Waiting& w : all) w.launched = w.comm->may_launch(*w.request);
    Result<> together;
    if (library) together = library->gather_launches();
    for (Waiting& w : all)
        if (w.launched) w.launched = together ? w.comm->put_on_stream(*w.request) : together;
    if (library && together) together = library->launch_gathered();
    for (Waiting& w : all)
        if (w.launched) w.launched = together ? w.comm->settle_launch(*w.request) : together;
    std::optional<Error> first;
    for (Waiting& w : all)
        if (const auto done = w.comm->finish_launch(*w.request, w.launched); !done && !first)
            first = done.error();
    if (first) return tl::unexpected(*first);
    return {};
}

}  // namespace tutti
