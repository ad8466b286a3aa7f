// A connection's outgoing direction: which frames are next, and writing them.
//
// Frames of small messages are copied into one batch and go out together; the payload of a large
// one is written from where it lies, behind the batch that ends with its header.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>

#include "transport/posted/ready_list.h"
#include "transports/tcp/late.h"
#include "transports/tcp/socket.h"

namespace tutti::tcp {

/// One batch at a time is on its way. A message's memory is the caller's again, and it counts as
/// sent, once the kernel has taken all of it; small ones count once their batch is written.
class Output {
public:
    Output(ReadyList<Flow>& ready, LateMessages& late, const SleeperWaker& waker)
        : ready_(ready),
          late_(late),
          waker_(waker),
          batch_(std::make_unique_for_overwrite<std::byte[]>(batch_bytes)) {}

    bool pending() const { return out_[0].iov_len + out_[1].iov_len > 0; }
    /// Makes the next batch. False: there is nothing to send. closing: the goodbye goes last.
    bool gather(bool closing);
    /// True if the batch is out; false if the kernel is full or the connection broke.
    bool write(DataSocket& socket);
    /// Why the connection broke; 0: it did not.
    int broken_errno() const { return broken_errno_; }
    bool bye_sent() const { return bye_sent_; }
    /// Nothing of the flow is sent from the caller's memory afterwards, but from copies. False:
    /// there is no memory for that.
    bool copy_unsent(Flow& flow);
    /// Nothing more is written.
    void clear();

private:
    bool batch(Flow& flow);
    bool batch_late_credits();
    void add_header(const Header& out);
    void batch_message(Flow& flow);
    void sent(Flow& flow);

    static constexpr std::size_t batch_bytes = 16 * 1024;
    static constexpr std::size_t batch_frames = 64;

    ReadyList<Flow>& ready_;
    LateMessages& late_;
    const SleeperWaker& waker_;
    std::unique_ptr<std::byte[]> batch_;  // headers and small payloads of the frames under way
    std::size_t batched_ = 0;
    std::array<Flow*, batch_frames> small_{};  // whose messages lie in the batch
    std::size_t small_count_ = 0;
    Flow* large_ = nullptr;  // whose payload is sent from where it lies, behind the batch
    iovec out_[2] = {};      // what is left to write of both
    int broken_errno_ = 0;
    bool bye_sent_ = false;
};

}  // namespace tutti::tcp
