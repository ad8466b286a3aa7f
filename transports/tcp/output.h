// A connection's outgoing direction: it chooses the next frames, and writes them.
//
// Frames of small messages are copied into one batch and sent together. The payload of a large
// message is written directly from its memory, after the batch that ends with its header.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>

#include "transport/posted/ready_list.h"
#include "transports/tcp/late.h"
#include "transports/tcp/socket.h"

namespace tutti::tcp {

/// One batch at a time is being written. A message counts as sent, and its memory is the caller's
/// again, once the kernel has accepted all of it; small messages count once their batch is written.
class Output {
public:
    Output(ReadyList<Flow>& ready, LateMessages& late, const SleeperWaker& waker)
        : ready_(ready),
          late_(late),
          waker_(waker),
          batch_(std::make_unique_for_overwrite<std::byte[]>(batch_bytes)) {}

    bool pending() const { return out_[0].iov_len + out_[1].iov_len > 0; }
    /// Makes the next batch. False: there is nothing to send. closing: adds the goodbye last.
    bool gather(bool closing);
    /// True if the batch is written; false if the kernel's buffer is full or the connection broke.
    bool write(DataSocket& socket);
    /// The errno with which the connection broke; 0: it did not.
    int broken_errno() const { return broken_errno_; }
    bool bye_sent() const { return bye_sent_; }
    /// Replaces the flow's unsent messages by copies, so that the caller's memory is not read any
    /// more. False: there is no memory for the copies.
    bool copy_unsent(Flow& flow);
    /// Drops all output.
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
    std::unique_ptr<std::byte[]> batch_;  // headers and small payloads of the current batch
    std::size_t batched_ = 0;
    std::array<Flow*, batch_frames> small_{};  // flows with messages in the batch
    std::size_t small_count_ = 0;
    Flow* large_ = nullptr;  // its payload is sent from the message's memory, after the batch
    iovec out_[2] = {};      // the unwritten rest of both
    int broken_errno_ = 0;
    bool bye_sent_ = false;
};

}  // namespace tutti::tcp
