/**
 * @file recovery.hpp
 * @brief The calls after a failure of Communicator (tutti.hpp). Not meant to be included alone.
 */
#ifndef TUTTI_RECOVERY_HPP
#define TUTTI_RECOVERY_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/buffers.hpp"
#include "tutti/handles.hpp"
#include "tutti/tutti.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// This process's handle, which other processes need for Communicator::reconfigure. config: nullptr
/// is the environment.
inline std::vector<std::byte> get_handle(const Config* config = nullptr) {
    std::vector<std::byte> handle(TUTTI_MAX_HANDLE_BYTES);
    std::size_t bytes = 0;
    check(tutti_comm_get_handle(config ? config->get() : nullptr, handle.data(), handle.size(),
                                &bytes));
    handle.resize(bytes);
    return handle;
}

/// A base of Communicator: its get() is the tutti_comm.
template <class Communicator>
class Recovery {
public:
    /// From any thread: ends every pending and later operation on all ranks with TUTTI_ERR_REVOKED,
    /// also after another failure, so that no rank waits in an operation any more.
    void revoke() { check(tutti_comm_revoke(comm())); }
    /// Takes this rank out of the communicator: it finishes its operations and says goodbye. The
    /// others' next collective ends with TUTTI_ERR_PEER_LOST, their next shrink() does not wait for
    /// this rank. Later calls here throw.
    void leave() { check(tutti_comm_leave(comm())); }
    /// A communicator of the ranks that are still alive and have not left, ranked in their order
    /// here. All of them call it. This communicator stays as it is.
    Communicator shrink() {
        tutti_comm* smaller = nullptr;
        check(tutti_comm_shrink(comm(), &smaller));
        return Communicator(smaller);
    }
    /// The same without the named ranks, alive or not, which do not call it. All callers name the
    /// same ranks.
    Communicator shrink_without(std::span<const int> ranks) {
        tutti_comm* smaller = nullptr;
        check(tutti_comm_shrink_without(comm(), ranks.data(), ranks.size(), &smaller));
        return Communicator(smaller);
    }
    /// The processes that wait to join. Rank 0 asks the job's store alone, and tells the others.
    int waiting() {
        int newcomers = 0;
        check(tutti_comm_waiting(comm(), &newcomers));
        return newcomers;
    }
    /// A communicator of these ranks, which keep their numbers, and of so many new processes, which
    /// make theirs with the setting join. All ranks call it, and wait for the newcomers.
    Communicator grow(int newcomers) {
        tutti_comm* larger = nullptr;
        check(tutti_comm_grow(comm(), newcomers, &larger));
        return Communicator(larger);
    }
    /// The bitwise and of all callers' bits, the same on all of them.
    uint64_t agree(uint64_t bits = ~uint64_t{0}) {
        check(tutti_comm_agree(comm(), &bits));
        return bits;
    }
    /// The ranks that are no members any more, as the last agree or shrink has decided; ascending.
    std::vector<int> lost() const {
        std::vector<int> ranks(static_cast<std::size_t>(std::max(tutti_comm_size(comm()), 0)));
        std::size_t count = 0;
        check(tutti_comm_lost(comm(), ranks.data(), ranks.size(), &count));
        ranks.resize(count);
        return ranks;
    }
    /// A communicator of the processes of these handles, in their order, which all of them call
    /// with the same uuid and handles; no store is needed. uuid: no earlier call had it.
    static Communicator reconfigure(const std::string& uuid,
                                    std::span<const std::vector<std::byte>> handles,
                                    int64_t timeout_ms = -1, const Config* config = nullptr) {
        std::vector<const void*> starts;
        std::vector<std::size_t> sizes;
        for (const auto& handle : handles) {
            starts.push_back(handle.data());
            sizes.push_back(handle.size());
        }
        tutti_comm* made = nullptr;
        check(tutti_comm_reconfigure(config ? config->get() : nullptr, uuid.c_str(), starts.data(),
                                     sizes.data(), static_cast<int>(starts.size()), timeout_ms,
                                     &made));
        return Communicator(made);
    }

private:
    tutti_comm* comm() const { return static_cast<const Communicator*>(this)->get(); }
};

}  // namespace cxx
}  // namespace tutti

#endif
