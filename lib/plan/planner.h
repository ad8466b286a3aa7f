// Turns a call into a bound plan: checks, choice of an algorithm, tag, binding.
#pragma once

#include <memory>
#include <string>

#include "engine/bind.h"
#include "job/endpoint.h"
#include "plan/channel_table.h"
#include "plan/plan.h"
#include "plan/reduction.h"
#include "select/selection.h"

namespace tutti {

/// Checks a communicator's calls, chooses their algorithms and makes their plans. Only the issuing
/// thread calls members that are not const.
class Planner {
public:
    /// The planning rank and the ranks that it plans for.
    struct PlannerScope {
        Rank rank = 0, size = 1;
        bool one_host = false;
    };
    Planner(Endpoint& endpoint, ChannelTable& channels, const PlannerScope& place);

    /// Uses these intrinsics for small collectives from now on. Does nothing if there are none.
    void use(Endpoint::Intrinsics intrinsics);
    /// Sets the map of ranks to hosts, which must outlive the planner.
    void use(const Hosts& hosts);
    /// Sets the cost model's constants, here and in parts that are split off. They are the same on
    /// every rank.
    void use(const Constants& constants);
    /// Called after a mismatch, while no operation runs.
    void reset_intrinsics();

    /// The largest message that every transport in use can carry.
    std::size_t max_message_bytes() const { return selection_input_.max_message_bytes; }

    /// Checks a call's arguments, and whether the communicator supports it. stream < 0: any.
    Result<> check(const Call& call, int stream) const;
    Result<Choice> choose(const Call& call) const;
    /// The same for a call on host memory; the error names rank and call.
    Result<Choice> choose_on_host(const Call& call) const;
    /// All algorithms that could serve the call, with their predicted times.
    std::vector<Choice> candidates(const Call& call) const;
    /// The microseconds that the cost model predicts for a call on host memory that was checked.
    Result<double> predict_us(const Call& call) const;
    const SelectionInput& selection_input() const { return selection_input_; }
    /// The choice and its reasons in a few lines, or why there is none.
    std::string explain(const Call& call) const;

    /// Makes a sum that multiplies this rank's contribution by the scalar first. Every rank makes
    /// its own, in the same order.
    Result<Op> make_premul_sum(const void* scalar, Dtype dtype);

    /// Binds a call on host memory that was checked; talks to peers and the store until the
    /// deadline.
    Result<std::unique_ptr<Plan>> make(const Call& call, uint32_t stream, Deadline deadline) {
        begin(deadline);
        return make_host(call, stream);
    }

    // Parts of plans for other memory.
    const PlannerScope& place() const { return place_; }
    /// nullptr until it is known.
    const Hosts* hosts() const { return hosts_; }
    /// Sets the deadline of the bindings that follow.
    void begin(Deadline deadline) { deadline_ = deadline; }
    /// folded: the call's inputs are already combined into one, in the accumulator's form.
    Result<std::unique_ptr<Plan>> make_host(const Call& call, uint32_t stream, bool folded = false);
    Result<Reduction> reduction(const Call& call) const;
    Question question(const Call& call) const;
    void make_tag(Plan& plan, const Choice& choice, const Reduction& reduction) const;
    BindRequest schedule_request(const Plan& plan, const Choice& choice, const Reducer& reducer,
                                 const ScheduleRequest& wanted) const;
    ScheduleRequest whole_schedule(const Call& call, const Choice& choice) const;
    /// Puts the rank and the call's name before the error.
    Error annotate(const Error& error, const Call& call) const;

    /// The size of the work memory that bound plans share.
    std::size_t work_bytes() const;

    std::size_t bytes_of(const Call& call) const {
        return total_elements(call, place_.size) * dtype_bytes(call.dtype);
    }

private:
    Result<> check_arguments(const Call& call, int stream) const;
    Result<std::unique_ptr<Operation>> bind_operation(const Plan& plan, const Choice& choice,
                                                      const Reduction& reduction, bool folded);
    Result<std::unique_ptr<Operation>> bind_intrinsic(const Plan& plan, const Reducer& reducer);
    Result<std::unique_ptr<Operation>> bind_schedule(const Plan& plan, const Choice& choice,
                                                     const Reducer& reducer);

    Endpoint& endpoint_;
    const Config& config_;
    ChannelTable& channels_;
    const PlannerScope place_;
    SelectionInput selection_input_;
    const Hosts* hosts_ = nullptr;
    Endpoint::Intrinsics intrinsics_;
    // Work memory of a stream's operations. An operation may need both blocks at once: its prepared
    // input must not lie in its scratch memory.
    struct StreamMemory {
        WorkMemory prepared, scratch;
    };
    std::vector<StreamMemory> memory_;
    Deadline deadline_;         // of the current binding
    const uint64_t serial_;     // unique in this process
    uint32_t premul_sums_ = 0;  // made so far
};

}  // namespace tutti
