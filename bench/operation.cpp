#include "operation.h"

namespace bench {
namespace {

using tutti::check;

class BlockingOperation : public Operation {
public:
    BlockingOperation(tutti_comm* comm, const Call& call, Buffers buffers)
        : comm_(comm), call_(call), buffers_(buffers) {}

    void run() override { check(call_.collective->functions.run(comm_, call_, buffers_)); }

private:
    tutti_comm* comm_;
    Call call_;
    Buffers buffers_;
};

tutti_call_opts call_opts(const Call& call, int stream) {
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = stream;
    opts.algorithm = call.algorithm.empty() ? nullptr : call.algorithm.c_str();
    return opts;
}

void wait_all(std::vector<tutti_request*>& requests) {
    for (tutti_request*& request : requests) check(tutti_wait(&request, -1));
}

class RequestOperation : public Operation {
public:
    RequestOperation(tutti_comm* comm, const Call& call, const std::vector<Buffers>& buffers)
        : comm_(comm), call_(call), buffers_(buffers), requests_(buffers.size()) {}

    void run() override {
        // stream < 0 takes the rings in turn: k operations in flight use min(k, nrings) of them
        const tutti_call_opts opts = call_opts(call_, -1);
        for (std::size_t i = 0; i < buffers_.size(); ++i)
            check(
                call_.collective->functions.start(comm_, call_, buffers_[i], &opts, &requests_[i]));
        wait_all(requests_);
    }

private:
    tutti_comm* comm_;
    Call call_;
    std::vector<Buffers> buffers_;
    std::vector<tutti_request*> requests_;
};

class PlanOperation : public Operation {
public:
    PlanOperation(tutti_comm* comm, const Call& call, const std::vector<Buffers>& buffers,
                  bool async)
        : blocking_(!async && buffers.size() == 1), buffers_(buffers), requests_(buffers.size()) {
        for (std::size_t i = 0; i < buffers.size(); ++i) plans_.emplace_back(make(comm, call));
    }

    void run() override {
        if (blocking_) {
            check(tutti_plan_run(plans_[0].get(), buffers_[0].in, buffers_[0].out));
            return;
        }
        for (std::size_t i = 0; i < plans_.size(); ++i)
            check(
                tutti_plan_start(plans_[i].get(), buffers_[i].in, buffers_[i].out, &requests_[i]));
        wait_all(requests_);
    }

private:
    struct Destroy {
        void operator()(tutti_plan* plan) const { tutti_plan_destroy(plan); }
    };
    using PlanHandle = std::unique_ptr<tutti_plan, Destroy>;

    static PlanHandle make(tutti_comm* comm, const Call& call) {
        const tutti_call_opts opts = call_opts(call, -1);
        tutti_plan* plan = nullptr;
        check(call.collective->functions.plan(comm, call, &opts, &plan));
        return PlanHandle(plan);
    }

    bool blocking_;
    std::vector<Buffers> buffers_;
    std::vector<tutti_request*> requests_;
    std::vector<PlanHandle> plans_;
};

bool uses_plans(const Options& options, const std::string& algorithm) {
    return options.persistent || (!algorithm.empty() && !options.async);
}

}  // namespace

std::unique_ptr<Operation> make_operation(tutti_comm* comm, const Options& options,
                                          const Call& call, const std::vector<Buffers>& buffers) {
    if (uses_plans(options, call.algorithm))
        return std::make_unique<PlanOperation>(comm, call, buffers, options.async);
    if (options.async) return std::make_unique<RequestOperation>(comm, call, buffers);
    return std::make_unique<BlockingOperation>(comm, call, buffers.front());
}

std::string mode_name(const Options& options, const std::string& algorithm) {
    const bool plans = uses_plans(options, algorithm);
    if (plans && options.async) return "persistent async";
    return plans ? "persistent" : options.async ? "async" : "blocking";
}

}  // namespace bench
