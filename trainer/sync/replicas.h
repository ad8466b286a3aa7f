// The replicas of a model: every device of every rank has one.
#pragma once

#include <memory>
#include <vector>

#include "trainer/device/device.h"

namespace tutti::trainer {

/// The trainer's own communicator.
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
    /// for it.
    void abort_after(const Error& cause) const;

private:
    explicit Comm(tutti_comm* own) : comm_(own) {}
    struct Destroy {
        void operator()(tutti_comm* comm) const { tutti_comm_destroy(comm); }
    };
    std::unique_ptr<tutti_comm, Destroy> comm_;
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
