// How the ranks of a communicator come to a device library's group: each says what it has, rank 0's
// identifier goes round, all join, and all hear whether all could. Calls come in the same order on
// every rank, so the first one on device memory is where everyone does this.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

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
    uint8_t shares = 0;
    std::array<char, 223> why{};
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

/// unsupported, in the same words on every rank, unless all can join one group.
Result<> check_seats(const std::vector<Seat>& seats) {
    for (std::size_t r = 0; r < seats.size(); ++r) {
        const Seat& seat = seats[r];
        const auto rank = static_cast<Rank>(r);
        if (seat.code != 0)
            return fail_rank(static_cast<Code>(seat.code), rank,
                             "rank {} cannot use a device library: {}. With TUTTI_DEVICE=staged on "
                             "every rank, device memory goes through the host's",
                             r, get(seat.why));
        if (seat.version != seats[0].version)
            return fail_rank(Code::unsupported, rank,
                             "rank 0 has NCCL's version {}, rank {} has {}: all need the same",
                             seats[0].version, r, seat.version);
        for (std::size_t other = 0; other < r; ++other)
            if (seats[other].machine == seat.machine && seats[other].device == seat.device &&
                !(seat.shares && seats[other].shares))
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
        planner_.use({nullptr, devices_.staging});
    }
    if (endpoint_->config().device == DeviceWay::staged) return {};
    return join_library(device);
}

Result<> Communicator::join_library(device::Ordinal device) {
    const uint64_t generation = generation_.load();
    if (devices_.group && devices_.generation == generation) return {};
    // What the old one had bound must not be used again.
    for (PlanCache& plans : plans_) plans.drop(Path::library);
    planner_.use({nullptr, devices_.staging});
    devices_.group.reset();
    auto made = make_device_group(device);
    if (!made) return tl::unexpected(std::move(made).error());
    devices_.group = std::move(*made);
    devices_.generation = generation;
    planner_.use({devices_.group, devices_.staging});
    return {};
}

Result<> Communicator::agree_on_devices(device::Ordinal device, const Result<>& own) {
    Seat mine;
    mine.machine = endpoint_->machine_hash();
    if (!own) {
        mine.code = static_cast<int32_t>(own.error().code);
        put(mine.why, own.error().message);
    } else {
        mine.version = devices_.library->version();
        mine.shares = devices_.library->shares_devices();
        devices_.context->driver().pci_bus_id(mine.device.data(), mine.device.size(), device);
    }
    std::vector<Seat> seats(static_cast<std::size_t>(size()));
    TUTTI_TRY(run(host_call(Collective::allgather, sizeof(Seat)), &mine, seats.data()));
    return check_seats(seats);
}

Result<std::vector<std::byte>> Communicator::share_device_id() {
    std::vector<std::byte> message(1 + devices_.library->id_bytes());
    std::optional<Error> failed;
    if (rank() == 0) {
        if (auto id = devices_.library->make_id()) {
            message[0] = std::byte{1};
            std::copy(id->begin(), id->end(), message.begin() + 1);
        } else {
            failed = std::move(id).error();
        }
    }
    TUTTI_TRY(
        run(host_call(Collective::broadcast, message.size()), message.data(), message.data()));
    if (failed) return tl::unexpected(*failed);
    if (message[0] == std::byte{0})
        return fail_rank(Code::system, 0, "rank 0 could not make an identifier for the devices");
    message.erase(message.begin());
    return message;
}

Result<std::shared_ptr<DeviceGroup>> Communicator::make_device_group(device::Ordinal device) {
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
    TUTTI_TRY(agree_on_devices(device, own));
    DeviceGroupRequest request;
    request.rank = rank();
    request.size = size();
    request.device = device;
    request.timeout_ms = config.timeout_ms;
    TUTTI_ASSIGN(request.id, share_device_id());
    auto group = devices_.library->join(request, Deadline::after_ms(config.timeout_ms));
    std::array<uint8_t, 1> all{group ? uint8_t{1} : uint8_t{0}};
    Call agree = host_call(Collective::allreduce, 1);
    agree.op = Op::min;
    const auto agreed = run(agree, all.data(), all.data());
    if (!group) return wrap(std::move(group).error(), fmt::format("rank {}", rank()));
    if (!agreed) return tl::unexpected(agreed.error());
    if (all[0] == 0)
        return fail(Code::system, "rank {}: another rank could not join the devices' group",
                    rank());
    return *group;
}

// Pinned memory is made while no collective runs: it may have to wait for the device.
Result<> Communicator::wait_for_idle_device() {
    const Deadline deadline = Deadline::after_ms(endpoint_->config().timeout_ms);
    while (devices_.group && !devices_.group->idle()) {
        if (auto over = agreement_.over()) return tl::unexpected(*over);
        if (deadline.passed())
            return fail(Code::timeout, "rank {}: the device is still busy", rank());
        progress();
        ::usleep(idle_poll_us);
    }
    return {};
}

}  // namespace tutti
