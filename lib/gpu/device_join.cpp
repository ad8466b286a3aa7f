// How the ranks of a communicator come to a device library's group: each says what it has, rank 0's
// identifier goes round, all join, and all hear whether all could. Calls come in the same order on
// every rank, so the first one on device memory is where everyone does this.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "base/told_error.h"
#include "comm/communicator.h"
#include "transports/catalog.h"

namespace tutti {
namespace {

constexpr int64_t idle_poll_us = 50;

/// What each rank tells the others: the same bytes everywhere.
struct Seat {
    int32_t code = 0;  // why it cannot take part
    int32_t version = 0;
    uint64_t machine = 0;
    std::array<char, 16> device{};  // its place on the bus
    int32_t capability = 0;         // 90 for compute capability 9.0
    uint8_t shares = 0;
    std::array<char, 219> why{};
};
static_assert(sizeof(Seat) == 256);

void put(std::span<char> field, std::string_view text) {
    std::copy_n(text.begin(), std::min(text.size(), field.size() - 1), field.begin());
}
std::string_view get(std::span<const char> field) {
    return {field.data(), ::strnlen(field.data(), field.size())};
}

Call host_call(Collective collective, std::size_t bytes) {
    Call call;
    call.collective = collective;
    call.count = bytes;
    return call;
}

/// unsupported, in the same words on every rank, unless all can join one group, or those of each
/// host one of their own.
Result<> check_seats(const std::vector<Seat>& seats, const Hosts* by_host) {
    const auto apart = [by_host](std::size_t a, std::size_t b) {
        return by_host &&
               by_host->host_of(static_cast<Rank>(a)) != by_host->host_of(static_cast<Rank>(b));
    };
    for (std::size_t r = 0; r < seats.size(); ++r) {
        const Seat& seat = seats[r];
        const auto rank = static_cast<Rank>(r);
        const auto first = static_cast<std::size_t>(
            by_host ? by_host->member(by_host->host_of(rank), 0) : Rank{0});
        if (seat.code != 0)
            return tl::unexpected(told_error(
                static_cast<Code>(seat.code), rank, static_cast<Rank>(seats.size()),
                fmt::format("rank {} cannot use a device library: {}. With TUTTI_DEVICE=staged on "
                            "every rank, device memory goes through the host's",
                            r, get(seat.why))));
        if (seat.version != seats[first].version)
            return fail_rank(Code::unsupported, rank,
                             "rank {} has NCCL's version {}, rank {} has {}: all need the same",
                             first, seats[first].version, r, seat.version);
        for (std::size_t other = 0; other < r; ++other)
            if (!apart(other, r) && seats[other].machine == seat.machine &&
                seats[other].device == seat.device && !(seat.shares && seats[other].shares))
                return fail_rank(Code::unsupported, rank,
                                 "ranks {} and {} both use the GPU {}: give each its own, set "
                                 "TUTTI_DEVICE=staged, or NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL "
                                 "2.30 or newer",
                                 other, r, get(seat.device));
    }
    return {};
}

}  // namespace

Result<> Communicator::join_devices(device::Ordinal device) {
    const device::Driver* driver = device::driver();
    if (!driver) return fail(Code::unsupported, "rank {}: there is no CUDA driver", rank());
    if (!devices_.joined()) {
        TUTTI_ASSIGN(device::Context context, device::Context::retain(*driver, device));
        TUTTI_ASSIGN(devices_.staging, StagingArea::make(*driver, device));
        devices_.context.emplace(std::move(context));
        devices_.device = device;
        device_planner_.use({nullptr, devices_.staging});
    }
    if (endpoint_->config().device == DeviceWay::staged) return {};
    return join_library(device);
}

Result<> Communicator::join_library(device::Ordinal device) {
    const uint64_t generation = generation_.load();
    if (devices_.settled && devices_.generation == generation) return {};
    // What the old one had bound must not be used again.
    for (PlanCache& plans : plans_) plans.drop(by_group);
    device_planner_.use({nullptr, devices_.staging});
    devices_.group.reset();
    devices_.settled = false;
    TUTTI_ASSIGN(const DeviceWay way, agree_on_devices(device));
    const bool of_host = way == DeviceWay::hierarchical;
    if (way != DeviceWay::staged) {
        TUTTI_ASSIGN(devices_.group, make_device_group(device, of_host));
    }
    devices_.settled = true;
    devices_.of_host = of_host;
    devices_.generation = generation;
    device_planner_.use({devices_.group, devices_.staging, of_host});
    if (devices_.group) TUTTI_TRY(tell_device_memory());
    return {};
}

// The same on every rank: it follows from the setting, the hosts, and what all have said.
Result<DeviceWay> Communicator::agree_on_devices(device::Ordinal device) {
    const Hosts& hosts = *group_.hosts();
    const HostShape& shape = hosts.shape();
    const bool several = shape.hosts > 1 && shape.largest > 1;
    DeviceWay way = endpoint_->config().device;
    if (way == DeviceWay::hierarchical && shape.hosts == 1) way = DeviceWay::library;
    if (way == DeviceWay::hierarchical && !several) {
        log::info("rank {}: device memory goes through the host's: no host has several ranks",
                  rank());
        return DeviceWay::staged;
    }
    const Config& config = endpoint_->config();
    Result<> own;
    if (!devices_.library) {
        auto loaded = device_libraries()[0].load(config.nccl_library);
        if (loaded) {
            devices_.library = std::move(*loaded);
        } else {
            own = tl::unexpected(std::move(loaded).error());
        }
    }
    Seat mine;
    mine.machine = endpoint_->machine_hash();
    if (!own) {
        mine.code = static_cast<int32_t>(own.error().code);
        put(mine.why, own.error().message);
    } else {
        mine.version = devices_.library->version();
        mine.shares = devices_.library->shares_devices();
        devices_.context->driver().pci_bus_id(mine.device.data(), mine.device.size(), device);
        mine.capability = device::capability_of(devices_.context->driver(), device);
    }
    std::vector<Seat> seats(static_cast<std::size_t>(size()));
    TUTTI_TRY(begin("device join"));
    TUTTI_TRY(run_own(host_call(Collective::allgather, sizeof(Seat)), &mine, seats.data()));
    devices_.capability =
        std::min_element(seats.begin(), seats.end(), [](const auto& a, const auto& b) {
            return a.capability < b.capability;
        })->capability;
    if (way != DeviceWay::automatic) {
        TUTTI_TRY(check_seats(seats, way == DeviceWay::hierarchical ? &hosts : nullptr));
        return way;
    }
    const auto all = check_seats(seats, nullptr);
    if (all) return DeviceWay::library;
    const bool inside = several && check_seats(seats, &hosts);
    log::info("rank {}: device memory goes {}: {}", rank(),
              inside ? "the hierarchical way" : "through the host's", all.error().message);
    return inside ? DeviceWay::hierarchical : DeviceWay::staged;
}

// The first of each group makes it; all hear whether all could.
Result<std::vector<std::byte>> Communicator::share_device_id(bool of_host) {
    const Hosts& hosts = *group_.hosts();
    const auto leader = [&](Rank host) { return of_host ? hosts.member(host, 0) : Rank{0}; };
    const Rank mine = hosts.host_of(rank());
    const auto rings = static_cast<std::size_t>(endpoint_->config().device_rings);
    std::vector<std::byte> message(1 + rings * devices_.library->id_bytes());
    std::optional<Error> failed;
    auto at = message.begin() + 1;
    for (std::size_t ring = 0; ring < rings && rank() == leader(mine) && !failed; ++ring) {
        if (auto id = devices_.library->make_id()) {
            at = std::copy(id->begin(), id->end(), at);
        } else {
            failed = std::move(id).error();
        }
    }
    message[0] = failed ? std::byte{0} : std::byte{1};
    const std::size_t bytes = message.size();
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(of_host ? size() : 1));
    if (of_host) {
        TUTTI_TRY(run_own(host_call(Collective::allgather, bytes), message.data(), all.data()));
    } else {
        all = message;
        TUTTI_TRY(run_own(host_call(Collective::broadcast, bytes), all.data(), all.data()));
    }
    if (failed) return tl::unexpected(*failed);
    const auto of = [&](Rank rank) {
        return all.begin() + static_cast<std::ptrdiff_t>(bytes) * (of_host ? rank : 0);
    };
    for (Rank h = 0; h < (of_host ? hosts.count() : 1); ++h)
        if (*of(leader(h)) == std::byte{0})
            return fail_rank(Code::system, leader(h),
                             "rank {} could not make an identifier for the devices", leader(h));
    const auto id = of(leader(mine));
    return std::vector(id + 1, id + static_cast<std::ptrdiff_t>(bytes));
}

Result<std::shared_ptr<DeviceGroup>> Communicator::make_device_group(device::Ordinal device,
                                                                     bool of_host) {
    const Config& config = endpoint_->config();
    const Hosts& hosts = *group_.hosts();
    DeviceGroupRequest request;
    request.rank = of_host ? hosts.local_of(rank()) : rank();
    request.size = of_host ? hosts.size_of(hosts.host_of(rank())) : size();
    request.device = device;
    request.timeout_ms = config.timeout_ms;
    request.rings = config.device_rings;
    request.capability = devices_.capability;
    request.shares = config.device_split == DeviceSplit::share;
    TUTTI_ASSIGN(request.id, share_device_id(of_host));
    request.all_begun = [this](bool mine) { return all_agree(mine).value_or(false); };
    auto group = devices_.library->join(request, Deadline::after_ms(config.timeout_ms));
    const auto agreed = all_agree(group.has_value());
    if (!group) return wrap(std::move(group).error(), fmt::format("rank {}", rank()));
    if (!agreed) return tl::unexpected(agreed.error());
    if (!*agreed)
        return fail(Code::system, "rank {}: another rank could not join the devices' group",
                    rank());
    return *group;
}

/// Whether every rank says so.
Result<bool> Communicator::all_agree(bool mine) {
    std::array<uint8_t, 1> all{mine ? uint8_t{1} : uint8_t{0}};
    Call agree = host_call(Collective::allreduce, 1);
    agree.op = Op::min;
    TUTTI_TRY(run_own(agree, all.data(), all.data()));
    return all[0] != 0;
}

// ---- parts of a communicator -------------------------------------------------------------------

/// Whether what is split off this communicator shares its group's resources.
bool Communicator::splits_devices() const {
    return endpoint_->config().device_split == DeviceSplit::share && devices_.group &&
           !devices_.of_host && devices_.settled && devices_.generation == generation_;
}

// A part of which some rank got no group has none: it joins like any other.
Result<> Communicator::take_devices(const Devices& from,
                                    Result<std::shared_ptr<DeviceGroup>> group) {
    TUTTI_ASSIGN(const bool all, all_agree(group.has_value()));
    if (!all) {
        log::info("rank {}: the communicator's part joins its devices anew: {}", rank(),
                  group ? "another rank's could not be split" : group.error().message);
        return {};
    }
    devices_.device = from.device;
    devices_.context = from.context;
    devices_.library = from.library;
    devices_.group = *group;
    TUTTI_ASSIGN(devices_.staging, StagingArea::make(from.context->driver(), from.device));
    devices_.settled = true;
    devices_.generation = generation_;
    device_planner_.use({devices_.group, devices_.staging, false});
    return {};
}

// Pinned memory is made while no collective runs: it may have to wait for the device. What is
// staged another thread moves meanwhile, if there is one.
Result<> Communicator::wait_for_idle_device() {
    const Deadline deadline = Deadline::after_ms(endpoint_->config().timeout_ms);
    while ((devices_.group && !devices_.group->idle()) || (manual() && streams_.busy_outside())) {
        if (auto over = agreement_.over()) return tl::unexpected(*over);
        if (deadline.passed())
            return fail(Code::timeout, "rank {}: the device is still busy", rank());
        progress();
        ::usleep(idle_poll_us);
    }
    return {};
}

}  // namespace tutti
