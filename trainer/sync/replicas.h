// The replicas of a model: every device of every rank has one.
#pragma once

#include <memory>
#include <vector>

#include "trainer/device/device.h"

namespace tutti::trainer {

/// Whether the error may be the consequence of another rank's end or failure.
bool is_loss(const Error& error);

/// The trainer's own communicator. Other objects refer to this one, which stays, while shrink
/// replaces the communicator.
class Comm {
public:
    /// A copy of comm; of this process alone if that is NULL.
    static Result<Comm> copy_of(tutti_comm* comm);
    tutti_comm* get() const { return comm_.get(); }
    int rank() const { return tutti_comm_rank(get()); }
    int size() const { return tutti_comm_size(get()); }
    int rings() const { return tutti_comm_ring_count(get()); }
    int local_size() const { return tutti_comm_local_size(get()); }
    /// Aborts the communicator after a failure of this rank alone, so that other ranks do not wait
    /// for it. If this rank can go on after a loss, it revokes the communicator instead.
    void abort_after(const Error& cause) const;
    /// Whether this rank takes part in shrink after a loss.
    void set_recovers(bool recovers) { recovers_ = recovers; }
    bool recovers() const { return recovers_; }
    /// Revokes the communicator and replaces it by one of the ranks that are left. No request of
    /// it is pending.
    Result<> shrink();
    /// True if every rank that is left says yes: the same answer on all of them. REVOKED if another
    /// rank calls shrink.
    Result<bool> all_say(bool yes) const;
    /// Whether a rank was lost by the time of the last all_say or shrink.
    bool has_losses() const;
    /// The ranks' communicator with so many newcomers, which call copy_of at the same time.
    Result<Comm> grown_by(int newcomers) const;
    /// Ends the operations of all its ranks.
    void abort() const { tutti_comm_abort(get()); }
    /// Leaves, after abort_after, so that the other ranks go on without this one.
    void leave() { comm_.reset(); }

private:
    explicit Comm(tutti_comm* own) : comm_(own) {}
    struct Destroy {
        void operator()(tutti_comm* comm) const { tutti_comm_destroy(comm); }
    };
    std::unique_ptr<tutti_comm, Destroy> comm_;
    bool recovers_ = false;
};

/// Numbered by rank, then by device. Every rank has the same number of devices.
struct Replicas {
    Comm comm;
    std::vector<Device*> devices;  // of this process

    int local() const { return static_cast<int>(devices.size()); }
    int count() const { return local() * comm.size(); }
    int number(int device) const { return comm.rank() * local() + device; }
    Device& device(int index) const { return *devices[static_cast<std::size_t>(index)]; }
};

}  // namespace tutti::trainer
