// Makes the bound plan of a call on device memory, which uses the device library, the host's
// operations on pinned copies, or both.
#pragma once

#include <memory>

#include "cuda/library.h"
#include "gpu/operations/across.h"
#include "gpu/operations/staged.h"
#include "plan/planner.h"

namespace tutti {

/// Only the issuing thread uses it, like the Planner on which it builds.
class DevicePlanner {
public:
    DevicePlanner(Planner& planner, const Config& config, ChannelTable& channels)
        : planner_(planner), config_(config), channels_(channels) {}

    /// The library's group and pinned memory for calls on device memory; empty: there are no such
    /// calls.
    struct Means {
        std::shared_ptr<DeviceGroup> group;
        std::shared_ptr<const StagingArea> staging;
        bool of_host = false;  // the group has this host's ranks only
    };
    void use(Means means) { means_ = std::move(means); }

    /// The path of a call; unsupported if the call names an algorithm whose path cannot serve it.
    struct Buffers {
        bool in_place = false;
        bool mixed = false;  // one of them is the host's
    };
    Result<Path> path_of(const Call& call, const Buffers& buffers, DeviceMode way) const;

    /// As Planner::make, for all paths except the host's.
    Result<std::unique_ptr<Plan>> make(const Call& call, uint32_t stream, Deadline deadline);

private:
    const Hosts& host_map() const { return *planner_.hosts(); }
    const Planner::PlannerScope& place() const { return planner_.place(); }
    Result<IntrinsicShape> shape_of(const Call& call) const;
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

    Planner& planner_;
    const Config& config_;
    ChannelTable& channels_;
    Means means_;
};

}  // namespace tutti
