// From a call to a bound plan: checks, choice of an algorithm, tag, binding.
#pragma once

#include <memory>
#include <string>

#include "cuda/library.h"
#include "engine/bind.h"
#include "gpu/across.h"
#include "gpu/staged.h"
#include "job/endpoint.h"
#include "plan/channel_table.h"
#include "plan/plan.h"
#include "plan/reduction.h"
#include "select/selection.h"

namespace tutti {

/// What a communicator can do with a call. The issuing thread's, but for what is const.
class Planner {
public:
    /// Who plans, and over what.
    struct Place {
        Rank rank = 0, size = 1;
        bool one_host = false;
    };
    Planner(Endpoint& endpoint, ChannelTable& channels, const Place& place);

    /// Small collectives go to these from now on; nothing if there are none.
    void use(Endpoint::Intrinsics intrinsics);
    /// Who shares a host with whom, from now on; outlives the planner.
    void use(const Hosts& hosts);
    /// The cost model's constants from now on, here and in the parts that are split off. The same
    /// on every rank.
    void use(const Constants& constants);
    /// What calls on device memory need; nothing: there are none any more.
    struct DeviceMeans {
        std::shared_ptr<DeviceGroup> group;
        std::shared_ptr<const StagingArea> staging;
        bool of_host = false;  // the group has this host's ranks only
    };
    void use(DeviceMeans means) { device_ = std::move(means); }
    /// How a call on device memory would be done; unsupported if the call insists on what cannot.
    struct DeviceBuffers {
        bool in_place = false;
        bool mixed = false;  // one of them is the host's
    };
    Result<Path> path_of(const Call& call, const DeviceBuffers& buffers, DeviceWay way) const;

    /// After a mismatch, while nothing runs.
    void reset_intrinsics();

    /// Of every transport that may be used.
    std::size_t max_message_bytes() const { return terrain_.max_message_bytes; }

    /// Checks a call's arguments and what the communicator can do with it. stream < 0: any.
    Result<> check(const Call& call, int stream) const;
    Result<Choice> choose(const Call& call) const;
    /// The same for a call on host memory; the error names rank and call.
    Result<Choice> choose_on_host(const Call& call) const;
    /// All that could serve the call, as the cost model sees them.
    std::vector<Choice> candidates(const Call& call) const;
    const Terrain& terrain() const { return terrain_; }
    /// The choice and its reasons in a few lines, or why there is none.
    std::string explain(const Call& call) const;

    /// A sum of which this rank's contribution is multiplied by the scalar first. Every rank makes
    /// its own, in the same order.
    Result<Op> make_premul_sum(const void* scalar, Dtype dtype);

    /// Binds a call that was checked; talks to peers and the store, for so long.
    Result<std::unique_ptr<Plan>> make(const Call& call, uint32_t stream, Deadline deadline);

    std::size_t bytes_of(const Call& call) const {
        return total_elements(call, place_.size) * dtype_bytes(call.dtype);
    }

private:
    Error annotate(const Error& error, const Call& call) const;
    Result<> check_arguments(const Call& call, int stream) const;
    Question question(const Call& call) const;
    Result<Reduction> reduction(const Call& call) const;
    void make_tag(Plan& plan, const Choice& choice, const Reduction& reduction) const;
    Result<std::unique_ptr<Operation>> bind_operation(const Plan& plan, const Choice& choice,
                                                      const Reduction& reduction, bool folded);
    Result<IntrinsicShape> device_shape(const Call& call) const;
    /// folded: a call's several inputs are one by then, in the accumulator's form.
    Result<std::unique_ptr<Plan>> make_host(const Call& call, uint32_t stream, bool folded = false);
    Result<std::unique_ptr<DeviceFold>> fold_on_device(const Call& call) const;
    Result<std::unique_ptr<Operation>> make_fingerprint(uint32_t stream);
    Result<std::unique_ptr<Plan>> make_library(const Call& call, uint32_t stream);
    Result<std::unique_ptr<Plan>> make_staged(const Call& call, uint32_t stream);
    Result<std::unique_ptr<Plan>> make_tiled(const Call& call, uint32_t stream);
    Result<> check_across(const Call& call) const;
    Result<Choice> choose_between_hosts(const Call& wire, std::size_t bytes) const;
    Result<std::unique_ptr<BoundSchedule>> bind_stripe(const Plan& wire, const Choice& choice,
                                                       const Reducer& reducer, Stripes stripes,
                                                       Rank stripe);
    Result<std::unique_ptr<Plan>> make_across(const Call& call, uint32_t stream);
    Result<std::unique_ptr<Operation>> bind_intrinsic(const Plan& plan, const Reducer& reducer);
    BindRequest schedule_request(const Plan& plan, const Choice& choice, const Reducer& reducer,
                                 const ScheduleRequest& wanted) const;
    ScheduleRequest whole_schedule(const Call& call, const Choice& choice) const;
    Result<std::unique_ptr<Operation>> bind_schedule(const Plan& plan, const Choice& choice,
                                                     const Reducer& reducer);

    Endpoint& endpoint_;
    const Config& config_;
    ChannelTable& channels_;
    const Place place_;
    Terrain terrain_;
    const Hosts* hosts_ = nullptr;
    Endpoint::Intrinsics intrinsics_;
    DeviceMeans device_;
    // What a stream's operations work in: what is prepared for one lies beside its scratch memory.
    struct StreamMemory {
        WorkMemory prepared, scratch;
    };
    std::vector<StreamMemory> memory_;
    Deadline deadline_;         // of what is being made
    const uint64_t serial_;     // no other communicator of the process has it
    uint32_t premul_sums_ = 0;  // made so far
};

}  // namespace tutti
