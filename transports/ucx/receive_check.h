// A check after a peer's end: whether this worker still receives messages through shared memory.
//
// There, UCX has one queue for all senders to a worker. A sender claims the queue's next place,
// writes its message there, and then marks the place as written; the receiver reads the places in
// order. A process that is killed in between leaves a place that is never marked, and UCX has no
// remedy: no message of any peer arrives behind it. The check sends the worker a message from this
// process, which takes a place behind all those of the ended peer.
#pragma once

#include <cstdint>

#include "transports/ucx/library.h"

namespace tutti::ucx {

/// Only the port's owner uses it.
class ReceiveCheck {
public:
    explicit ReceiveCheck(const Library& ucx) : ucx_(ucx) {}
    ~ReceiveCheck() { stop(); }
    ReceiveCheck(const ReceiveCheck&) = delete;

    /// Names the worker. id: of the check's messages.
    ucs_status_t prepare(ucp_context_h context, ucp_worker_h worker, unsigned id);
    /// A peer has ended: checks in a moment, because this process may be about to leave, too.
    void schedule();
    bool under_way() const { return under_way_; }
    /// Call after the worker's progress while the check is under way. False: it has failed.
    bool follow();
    /// Gives back what a check needs.
    void stop();

private:
    static ucs_status_t on_message(void* self, const void* header, std::size_t header_length,
                                   void* data, std::size_t length,
                                   const ucp_am_recv_param_t* param);
    bool begin();
    bool send();

    const Library& ucx_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    unsigned id_ = 0;

    bool under_way_ = false, arrived_ = false;
    int64_t last_ns_ = 0, left_ns_ = 0;
    uint64_t number_ = 0;  // the message; UCX reads it until the message is sent
    ucp_worker_h sender_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucs_status_ptr_t request_ = nullptr;
};

}  // namespace tutti::ucx
