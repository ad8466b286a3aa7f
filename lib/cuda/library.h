// Collectives of a device library (NCCL) on device memory: an intrinsic. Ranks join its group at
// first use, with an identifier that rank 0 makes.
#pragma once

#include <functional>

#include "cuda/operation.h"
#include "transport/intrinsic.h"

namespace tutti {

/// Tells whether every joining rank has begun the library's communicator; called once for each
/// communicator. If one rank has not, the others would wait for it until the deadline. Blocks.
using AllBegun = std::function<bool(bool mine)>;

struct DeviceGroupRequest {
    Rank rank = 0, size = 1;
    int32_t device = 0;
    std::vector<std::byte> id;
    int64_t timeout_ms = 0;  // of operations: the limit for waits in their launch
    int32_t rings = 1;       // communicators side by side; the identifier has as many parts
    bool shares = false;     // shares its resources with groups that are split off it
    int32_t capability = 0;  // the least of all ranks' devices: 90 for compute capability 9.0
    AllBegun all_begun;      // empty: no rank is asked
};

/// A rank's request for its part of a group that is split.
struct DeviceGroupPart {
    int32_t color = 0;  // < 0: this rank joins no part
    Rank rank = 0, size = 1;
    AllBegun all_begun;  // all ranks of the group that is split
};

/// One message of a set that is launched together.
struct DeviceMessage {
    bool sends = false;
    Rank peer = nobody;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
};

/// One collective of an operation that has several.
class DeviceStep {
public:
    virtual ~DeviceStep() = default;
    /// Puts it on a stream; the context is current. May wait like DeviceOperation::launch().
    virtual Result<> enqueue(const void* in, void* out, void* stream,
                             const DeviceOperation::GiveUp& give_up) = 0;
};

/// The run of an operation with several collectives, in the order of its group's runs.
class DeviceRun {
public:
    virtual ~DeviceRun() = default;
    /// After gathered launches: waits until the library has accepted this group's.
    virtual Result<> wait_accepted(const DeviceOperation::GiveUp& give_up) = 0;
    /// Its steps are on their streams.
    virtual void begin() = 0;
    /// The steps are over. No effect if the run had not begun.
    virtual void end() = 0;
    /// True if stop() would end no earlier run.
    virtual bool may_cancel() = 0;
    virtual Result<> health() = 0;
    /// Ends the whole group's work by force.
    virtual void stop() = 0;
};

/// This rank's membership of a group. launch() puts all of an operation on the stream; then it is
/// polled until the device is done. Only the issuing thread calls bind and launch.
class DeviceGroup {
public:
    virtual ~DeviceGroup() = default;
    /// unsupported, with the reason, if the library cannot do it.
    virtual Result<> serves(const IntrinsicShape& shape) const = 0;
    virtual Result<std::unique_ptr<DeviceOperation>> bind(const IntrinsicShape& shape) = 0;
    virtual Result<std::unique_ptr<DeviceStep>> bind_step(const IntrinsicShape& shape) = 0;
    /// Messages between pairs of ranks; messages of one pair match in their order. The messages
    /// have the buffers: launch() gets none.
    virtual Result<std::unique_ptr<DeviceOperation>> bind_messages(
        std::vector<DeviceMessage> messages, uint32_t stream) = 0;
    virtual std::unique_ptr<DeviceRun> make_run() = 0;
    /// Whether no launched operation is still running.
    virtual bool idle() const = 0;
    /// Collective: this rank's part, nullptr for a negative colour. The two groups share the
    /// library's resources; stopping either one stops both. unsupported: the library is too
    /// old.
    virtual Result<std::shared_ptr<DeviceGroup>> split(const DeviceGroupPart& part,
                                                       Deadline deadline) = 0;
    /// Registers device memory with the library. window: collective; every rank gives as many bytes
    /// from DeviceLibrary::allocate, in the same order. No effect if the library is too old.
    virtual Result<> add_memory(std::byte* memory, std::size_t bytes, bool window) = 0;
    virtual void remove_memory(std::byte* memory) = 0;
    /// In order if no operation is running and the other ranks leave too, else by force. Ends at
    /// the deadline.
    virtual void leave(Deadline deadline) = 0;
};

class DeviceLibrary {
public:
    virtual ~DeviceLibrary() = default;
    virtual std::string_view name() const = 0;
    /// For messages: "NCCL 2.28.7 (libnccl.so.2)".
    virtual std::string describe() const = 0;
    virtual int version() const = 0;
    /// The schedule algorithm whose results it must equal, within the bounds of
    /// docs/reference/gpu.md; "": it has no such collective.
    virtual std::string_view reference(Collective collective) const = 0;
    /// Whether two ranks may share a device.
    virtual bool shares_devices() const = 0;
    virtual std::size_t id_bytes() const = 0;
    virtual Result<std::vector<std::byte>> make_id() const = 0;
    /// Device memory that can become a window.
    virtual Result<std::byte*> allocate(int32_t device, std::size_t bytes) const = 0;
    virtual void free(int32_t device, std::byte* memory) const = 0;
    /// Between these two calls, the library takes this thread's launches for several ranks as one,
    /// so that none waits for another. Each operation's part is finished afterwards.
    virtual Result<> gather_launches() const = 0;
    virtual Result<> launch_gathered() const = 0;
    /// Blocks until all ranks have joined, or until the deadline.
    virtual Result<std::shared_ptr<DeviceGroup>> join(const DeviceGroupRequest& request,
                                                      Deadline deadline) const = 0;
};

}  // namespace tutti
