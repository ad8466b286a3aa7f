/**
 * @file recovery.hpp
 * @brief The calls after a failure of Communicator (tutti.hpp). Not meant to be included alone.
 */
#ifndef TUTTI_RECOVERY_HPP
#define TUTTI_RECOVERY_HPP

#include "tutti/buffers.hpp"
#include "tutti/tutti.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// A base of Communicator: its get() is the tutti_comm.
template <class Communicator>
class Recovery {
public:
    /// From any thread: ends every pending and later operation on all ranks with TUTTI_ERR_REVOKED,
    /// also after another failure, so that no rank waits in an operation any more.
    void revoke() { check(tutti_comm_revoke(comm())); }

private:
    tutti_comm* comm() const { return static_cast<const Communicator*>(this)->get(); }
};

}  // namespace cxx
}  // namespace tutti

#endif
