// The Offload of a build without GPU support: it takes every buffer for host memory.
#include "comm/offload.h"

namespace tutti {
namespace {

ErrorResult none() {
    return fail(Code::unsupported, "this build of tutti has no GPU support")
        .advice("use a build with -Ddevice=enabled");
}

class NoOffload final : public Offload {
public:
    Result<bool> takes(OffloadCall& call) override {
        if (call.queue) return wrap(none().value(), "a device stream was given");
        return false;
    }
    bool appeared() override { return false; }
    Result<std::unique_ptr<Plan>> bind(const Call&, uint32_t, Deadline) override { return none(); }
    Result<> may_block(const Call&, uint32_t) const override { return {}; }
    Result<> may_wait(const Request&) const override { return {}; }
    Result<> may_wait_for_all() const override { return {}; }

    Result<> run(const OffloadCall&) override { return none(); }
    Result<std::unique_ptr<Request>> start(const OffloadCall&) override { return none(); }
    Result<> run(const std::vector<OffloadMessage>&) override { return none(); }
    Result<std::unique_ptr<Request>> start(const std::vector<OffloadMessage>&, int64_t,
                                           void*) override {
        return none();
    }
    Result<> sync(int64_t) override { return {}; }

    Result<bool> owns(const void*) const override { return false; }
    Result<> use(int) override { return none(); }
    Result<> set_queue(void*) override { return none(); }
    Result<> hold_own_queue(void*) override { return none(); }
    Result<> hold_queue(void*) override { return none(); }
    Result<std::byte*> allocate(std::size_t) override { return none(); }
    Result<> add_memory(std::byte*, std::size_t) override { return none(); }
    Result<bool> remove_memory(std::byte*, bool) override { return none(); }

    bool splits() const override { return false; }
    std::unique_ptr<OffloadShare> split(const OffloadSplit&) override { return nullptr; }
    Result<> adopt(std::unique_ptr<OffloadShare>) override { return {}; }
    void finish(int64_t) override {}
    void leave() override {}
};

class NoLaunches final : public LaunchBatch {
public:
    Result<> open() override { return none(); }
    Result<> close() override { return none(); }
    bool gathering() const override { return false; }
    void after_close(std::function<void()> work) override { work(); }
};

}  // namespace

Result<> check_offload(const Config& config) {
    if (config.cuda_library.empty() || config.cuda_library == "auto") return {};
    return wrap(none().value(), fmt::format("TUTTI_CUDA_LIBRARY is {}", config.cuda_library))
        .on(config.rank);
}

std::unique_ptr<Offload> make_offload(const OffloadHost&) {
    return std::make_unique<NoOffload>();
}

LaunchBatch& launch_batch() {
    static NoLaunches none;
    return none;
}

}  // namespace tutti
