#include "gpu/device_join.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "base/told_error.h"
#include "gpu/device_group_batch.h"
#include "transports/catalog.h"

namespace tutti {
namespace {

/// A rank's device and whether it can join, for agree()'s allgather. Same layout on every host.
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

/// unsupported, with the same text on every rank, unless all ranks can join one group, or the ranks
/// of each host a group of their own.
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
            return ErrorResult(
                       told_error(static_cast<Code>(seat.code), rank,
                                  static_cast<Rank>(seats.size()),
                                  fmt::format("rank {} cannot use NCCL: {}", r, get(seat.why))))
                .advice(
                    "install NCCL on every host, or name it with TUTTI_NCCL_LIBRARY; or set "
                    "TUTTI_DEVICE=staged on every rank, which needs no NCCL");
        if (seat.version != seats[first].version)
            return fail_rank(Code::unsupported, rank,
                             "rank {} has NCCL's version {}, but rank {} has {}", first,
                             seats[first].version, r, seat.version)
                .advice(
                    "install one NCCL version on every host, or name it with "
                    "TUTTI_NCCL_LIBRARY");
        for (std::size_t other = 0; other < r; ++other)
            if (!apart(other, r) && seats[other].machine == seat.machine &&
                seats[other].device == seat.device && !(seat.shares && seats[other].shares))
                return fail_rank(Code::unsupported, rank, "ranks {} and {} both use the GPU {}",
                                 other, r, get(seat.device))
                    .advice(
                        "give each rank its own GPU; or set on every rank TUTTI_DEVICE=staged, "
                        "or NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL 2.30 or newer");
    }
    return {};
}

}  // namespace

Result<> DeviceJoin::join(device::Ordinal device) {
    const device::Driver* driver = device::driver();
    if (!driver)
        return fail(Code::unsupported, "there is no CUDA driver in this process")
            .advice("set TUTTI_CUDA_LIBRARY to auto, or to the driver's path");
    if (!side_.devices.joined()) {
        TUTTI_ASSIGN(device::Context context, device::Context::retain(*driver, device));
        TUTTI_ASSIGN(side_.devices.staging, StagingArea::make(*driver, device));
        side_.devices.context.emplace(std::move(context));
        side_.devices.device = device;
        side_.planner.use({nullptr, side_.devices.staging});
    }
    if (side_.core.config().device == DeviceMode::staged) return {};
    return join_library(device);
}

Result<> DeviceJoin::join_library(device::Ordinal device) {
    const uint64_t generation = side_.core.generation.load();
    if (side_.devices.path_agreed && side_.devices.generation == generation) return {};
    // Plans that were bound to the previous group must not be used again.
    for (PlanCache& plans : side_.core.plans) plans.drop(by_group);
    side_.planner.use({nullptr, side_.devices.staging});
    side_.devices.group.reset();
    side_.devices.path_agreed = false;
    TUTTI_ASSIGN(const DeviceMode way, agree(device));
    const bool of_host = way == DeviceMode::hierarchical;
    if (way != DeviceMode::staged) {
        TUTTI_ASSIGN(side_.devices.group, make_group(device, of_host));
    }
    side_.devices.path_agreed = true;
    side_.devices.of_host = of_host;
    side_.devices.generation = generation;
    side_.planner.use({side_.devices.group, side_.devices.staging, of_host});
    if (side_.devices.group) TUTTI_TRY(register_memory());
    return {};
}

// The same on every rank: it follows from the setting, the hosts, and the seats of all ranks.
Result<DeviceMode> DeviceJoin::agree(device::Ordinal device) {
    const Hosts& hosts = *side_.core.group.hosts();
    const HostShape& shape = hosts.shape();
    const bool several = shape.hosts > 1 && shape.largest > 1;
    DeviceMode way = side_.core.config().device;
    if (way == DeviceMode::hierarchical && shape.hosts == 1) way = DeviceMode::library;
    if (way == DeviceMode::hierarchical && !several) {
        log::info("rank {}: device memory goes through host memory: no host has several ranks",
                  side_.rank());
        return DeviceMode::staged;
    }
    const Config& config = side_.core.config();
    Result<> own;
    if (!side_.devices.library) {
        auto loaded = device_libraries()[0].load(config.nccl_library);
        if (loaded) {
            side_.devices.library = std::move(*loaded);
        } else {
            own = tl::unexpected(std::move(loaded).error());
        }
    }
    Seat mine;
    mine.machine = side_.core.endpoint->hashes().machine;
    if (!own) {
        mine.code = static_cast<int32_t>(own.error().code);
        put(mine.why, own.error().message);
    } else {
        mine.version = side_.devices.library->version();
        mine.shares = side_.devices.library->shares_devices();
        side_.devices.context->driver().pci_bus_id(mine.device.data(), mine.device.size(), device);
        mine.capability = device::capability_of(side_.devices.context->driver(), device);
    }
    std::vector<Seat> seats(static_cast<std::size_t>(side_.core.size()));
    TUTTI_TRY(side_.issuer.begin("device join"));
    TUTTI_TRY(
        side_.issuer.run_own(host_call(Collective::allgather, sizeof(Seat)), &mine, seats.data()));
    side_.devices.capability =
        std::min_element(seats.begin(), seats.end(), [](const auto& a, const auto& b) {
            return a.capability < b.capability;
        })->capability;
    if (way != DeviceMode::automatic) {
        TUTTI_TRY(check_seats(seats, way == DeviceMode::hierarchical ? &hosts : nullptr));
        return way;
    }
    const auto all = check_seats(seats, nullptr);
    if (all) return DeviceMode::library;
    const bool inside = several && check_seats(seats, &hosts);
    log::info("rank {}: device memory goes {}: {}", side_.rank(),
              inside ? "the hierarchical way" : "through host memory", all.error().message);
    return inside ? DeviceMode::hierarchical : DeviceMode::staged;
}

// The first rank of each group makes the identifier; every rank learns whether all could.
Result<std::vector<std::byte>> DeviceJoin::share_id(bool of_host) {
    const Hosts& hosts = *side_.core.group.hosts();
    const auto leader = [&](Rank host) { return of_host ? hosts.member(host, 0) : Rank{0}; };
    const Rank mine = hosts.host_of(side_.rank());
    const auto rings = static_cast<std::size_t>(side_.core.config().device_rings);
    std::vector<std::byte> message(1 + rings * side_.devices.library->id_bytes());
    std::optional<Error> failed;
    auto at = message.begin() + 1;
    for (std::size_t ring = 0; ring < rings && side_.rank() == leader(mine) && !failed; ++ring) {
        if (auto id = side_.devices.library->make_id()) {
            at = std::copy(id->begin(), id->end(), at);
        } else {
            failed = std::move(id).error();
        }
    }
    message[0] = failed ? std::byte{0} : std::byte{1};
    const std::size_t bytes = message.size();
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(of_host ? side_.core.size() : 1));
    if (of_host) {
        TUTTI_TRY(side_.issuer.run_own(host_call(Collective::allgather, bytes), message.data(),
                                       all.data()));
    } else {
        all = message;
        TUTTI_TRY(
            side_.issuer.run_own(host_call(Collective::broadcast, bytes), all.data(), all.data()));
    }
    if (failed) return tl::unexpected(*failed);
    const auto of = [&](Rank rank) {
        return all.begin() + static_cast<std::ptrdiff_t>(bytes) * (of_host ? rank : 0);
    };
    for (Rank h = 0; h < (of_host ? hosts.count() : 1); ++h)
        if (*of(leader(h)) == std::byte{0})
            return fail_rank(Code::system, leader(h),
                             "rank {} could not make an identifier of NCCL", leader(h))
                .advice("read the error of rank {}", leader(h));
    const auto id = of(leader(mine));
    return std::vector(id + 1, id + static_cast<std::ptrdiff_t>(bytes));
}

Result<std::shared_ptr<DeviceGroup>> DeviceJoin::make_group(device::Ordinal device, bool of_host) {
    const Config& config = side_.core.config();
    const Hosts& hosts = *side_.core.group.hosts();
    DeviceGroupRequest request;
    request.rank = of_host ? hosts.local_of(side_.rank()) : side_.rank();
    request.size = of_host ? hosts.size_of(hosts.host_of(side_.rank())) : side_.core.size();
    request.device = device;
    request.timeout_ms = config.timeout_ms;
    request.rings = config.device_rings;
    request.capability = side_.devices.capability;
    request.shares = config.device_split == DeviceSplit::share;
    TUTTI_ASSIGN(request.id, share_id(of_host));
    request.all_begun = [this](bool mine) { return side_.issuer.all_agree(mine).value_or(false); };
    auto group = side_.devices.library->join(request, Deadline::after_ms(config.timeout_ms));
    const auto agreed = side_.issuer.all_agree(group.has_value());
    if (!group) return tl::unexpected(std::move(group).error());
    if (!agreed) return tl::unexpected(agreed.error());
    if (!*agreed)
        return fail(Code::system, "another rank could not join NCCL")
            .advice("read the errors of the other ranks");
    return *group;
}

// Registers the known memory with a new group, in the order in which it was added.
Result<> DeviceJoin::register_memory() {
    for (const Devices::RegisteredMemory& known : side_.devices.memory)
        TUTTI_TRY(side_.devices.group->add_memory(known.data, known.bytes, known.window));
    return {};
}

Result<> DeviceJoin::may_join() const {
    const bool joined =
        side_.devices.joined() &&
        (side_.core.config().device == DeviceMode::staged || side_.has_agreed_path());
    if (joined || side_.core.size() == 1 || !DeviceGroupBatch::here().gathering()) return {};
    return fail(
               Code::invalid,
               "the ranks have not joined on their GPUs, and tutti_launch_start cannot gather that")
        .advice(
            "call tutti_comm_use_device on every rank, each on a thread of its own, before "
            "tutti_launch_start");
}

Result<> DeviceJoin::use(device::Ordinal device) {
    TUTTI_TRY(side_.core.may_call());
    TUTTI_TRY(side_.need_driver());
    if (side_.devices.joined() && side_.devices.device != device)
        return fail(Code::invalid, "the communicator's device is {}, not {}", side_.devices.device,
                    device)
            .advice("pass device {}, or make a communicator of its own for device {}",
                    side_.devices.device, device);
    TUTTI_TRY(side_.issuer.admission().enter(0, side_.core.limit_ms(-1)));
    return join(device);
}

// ---- parts of a communicator -------------------------------------------------------------------

namespace {

struct DeviceShare final : OffloadShare {
    explicit DeviceShare(const Devices& whole) : from(whole) {}
    Devices from;
    Result<std::shared_ptr<DeviceGroup>> group;
};

}  // namespace

bool DeviceJoin::splits() const {
    return side_.core.config().device_split == DeviceSplit::share && side_.devices.group &&
           !side_.devices.of_host && side_.has_agreed_path();
}

std::unique_ptr<OffloadShare> DeviceJoin::split(const OffloadSplit& part) {
    const auto all_begun = [this](bool begun) {
        return side_.issuer.all_agree(begun).value_or(false);
    };
    auto group = side_.devices.group->split({part.color, part.rank, part.size, all_begun},
                                            Deadline::after_ms(side_.core.config().timeout_ms));
    if (part.color < 0) return nullptr;
    auto share = std::make_unique<DeviceShare>(side_.devices);
    share->group = std::move(group);
    return share;
}

Result<> DeviceJoin::adopt(std::unique_ptr<OffloadShare> share) {
    auto& [from, group] = static_cast<DeviceShare&>(*share);
    TUTTI_ASSIGN(const bool all, side_.issuer.all_agree(group.has_value()));
    if (!all) {
        log::info(
            "rank {}: the new communicator joins NCCL by itself: {}", side_.rank(),
            group ? "another rank could not split NCCL's communicator" : group.error().message);
        return {};
    }
    Devices& devices = side_.devices;
    devices.device = from.device;
    devices.context = from.context;
    devices.library = from.library;
    devices.group = *group;
    TUTTI_ASSIGN(devices.staging, StagingArea::make(from.context->driver(), from.device));
    devices.path_agreed = true;
    devices.generation = side_.core.generation;
    side_.planner.use({devices.group, devices.staging, false});
    return {};
}

void DeviceJoin::leave() {
    constexpr int64_t most_ms = 1000;
    Devices& devices = side_.devices;
    for (PlanCache& plans : side_.core.plans)
        plans.drop([](Path path) { return path != Path::host; });
    side_.planner.use({});
    for (const Devices::RegisteredMemory& known : devices.memory) {
        if (devices.group) devices.group->remove_memory(known.data);
        if (known.window) devices.library->free(devices.device, known.data);
    }
    devices.memory.clear();
    if (devices.group && devices.generation == side_.core.generation &&
        !side_.core.failure_protocol.fatal_error())
        devices.group->leave(Deadline::after_ms(most_ms));
    devices.group.reset();
    devices.staging.reset();
    devices.context.reset();
}

}  // namespace tutti
