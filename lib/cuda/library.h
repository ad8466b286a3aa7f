// Collectives that a device's own library does on device memory: an intrinsic whose groups are
// joined when they are first needed, with an identifier that rank 0 made.
#pragma once

#include <functional>

#include "cuda/operation.h"
#include "transport/intrinsic.h"

namespace tutti {

/// Asks all ranks that join, each time one of the library's communicators is begun: whether every
/// one of them has. Where one has not, the others would wait for it to the deadline. Blocks.
using AllBegun = std::function<bool(bool mine)>;

struct DeviceGroupRequest {
    Rank rank = 0, size = 1;
    int32_t device = 0;
    std::vector<std::byte> id;
    int64_t timeout_ms = 0;  // of operations, for what their launch may have to wait for
    int32_t rings = 1;       // communicators side by side; the identifier has as many parts
    bool shares = false;     // its resources with what is split off it
    int32_t capability = 0;  // the least of all ranks' devices: 90 for compute capability 9.0
    AllBegun all_begun;      // empty: nobody is asked
};

/// A rank's request for its part of a group that is split.
struct DeviceGroupPart {
    int32_t color = 0;  // < 0: no part of it
    Rank rank = 0, size = 1;
    AllBegun all_begun;  // all ranks of the group that is split
};

/// One of the messages that are launched together.
struct DeviceMessage {
    bool sends = false;
    Rank peer = nobody;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
};

/// One collective, for an operation that is made of several.
class DeviceStep {
public:
    virtual ~DeviceStep() = default;
    /// Puts it on a stream, the context being current; may wait as DeviceOperation::launch() may.
    virtual Result<> enqueue(const void* in, void* out, void* stream,
                             const DeviceOperation::GiveUp& give_up) = 0;
};

/// Such an operation's run, among the others of its group.
class DeviceRun {
public:
    virtual ~DeviceRun() = default;
    /// After launches that were gathered: waits until the library has taken this group's.
    virtual Result<> wait_accepted(const DeviceOperation::GiveUp& give_up) = 0;
    /// Its steps are on their streams.
    virtual void begin() = 0;
    /// They are over; nothing if it had not begun.
    virtual void end() = 0;
    /// Nothing that was launched earlier would be ended by stop().
    virtual bool may_cancel() = 0;
    virtual Result<> health() = 0;
    /// Ends the whole group's work by force.
    virtual void stop() = 0;
};

/// This rank's membership. Its operations do everything in launch() and are polled until the device
/// is done; bind and launch are the issuing thread's.
class DeviceGroup {
public:
    virtual ~DeviceGroup() = default;
    /// unsupported: the library cannot do it, and why.
    virtual Result<> serves(const IntrinsicShape& shape) const = 0;
    virtual Result<std::unique_ptr<DeviceOperation>> bind(const IntrinsicShape& shape) = 0;
    virtual Result<std::unique_ptr<DeviceStep>> bind_step(const IntrinsicShape& shape) = 0;
    /// Messages between pairs of ranks; those of one pair are matched in their order. Its buffers
    /// are the messages': launch() is given none.
    virtual Result<std::unique_ptr<DeviceOperation>> bind_messages(
        std::vector<DeviceMessage> messages, uint32_t stream) = 0;
    virtual std::unique_ptr<DeviceRun> make_run() = 0;
    /// Whether nothing that was launched is under way.
    virtual bool idle() const = 0;
    /// Collective: the part of this rank, nullptr for a negative colour. It shares what the
    /// library has allocated for this one, and is stopped when this one is, and the other way
    /// round. unsupported: the library is too old.
    virtual Result<std::shared_ptr<DeviceGroup>> split(const DeviceGroupPart& part,
                                                       Deadline deadline) = 0;
    /// Device memory that collectives and messages will often use, known to the library from now
    /// on. window: every rank gives as much of its own, from DeviceLibrary::allocate, in the same
    /// order. Nothing where the library is too old for it.
    virtual Result<> add_memory(std::byte* memory, std::size_t bytes, bool window) = 0;
    virtual void remove_memory(std::byte* memory) = 0;
    /// In order if nothing is under way and the others leave too, else by force; bounded.
    virtual void leave(Deadline deadline) = 0;
};

class DeviceLibrary {
public:
    virtual ~DeviceLibrary() = default;
    virtual std::string_view name() const = 0;
    /// For people: "NCCL 2.28.7 (libnccl.so.2)".
    virtual std::string describe() const = 0;
    virtual int version() const = 0;
    /// The schedule algorithm whose results it must equal, within what docs/reference/gpu.md says;
    /// "": it has no such collective.
    virtual std::string_view reference(Collective collective) const = 0;
    /// Whether two ranks may share a device.
    virtual bool shares_devices() const = 0;
    virtual std::size_t id_bytes() const = 0;
    virtual Result<std::vector<std::byte>> make_id() const = 0;
    /// Memory on a device that windows can be made of.
    virtual Result<std::byte*> allocate(int32_t device, std::size_t bytes) const = 0;
    virtual void free(int32_t device, std::byte* memory) const = 0;
    /// This thread's launches for several ranks, between these, are one: none waits for another.
    /// Each operation's part is finished afterwards.
    virtual Result<> gather_launches() const = 0;
    virtual Result<> launch_gathered() const = 0;
    /// Blocks until all have joined, or to the deadline.
    virtual Result<std::shared_ptr<DeviceGroup>> join(const DeviceGroupRequest& request,
                                                      Deadline deadline) const = 0;
};

}  // namespace tutti
