// A connection's incoming direction: it reads bytes from the socket and puts messages in their
// places. It checks everything that a peer sends before use.
#pragma once

#include <memory>
#include <string>

#include "transport/peer_limits.h"
#include "transport/posted/engine_entry.h"
#include "transports/tcp/late.h"

namespace tutti::tcp {

/// At most one message is arriving. Its bytes go to the memory that its receiver offered, or to a
/// cell of its flow. A malformed frame ends the connection, and no later bytes are read.
class Input {
public:
    /// Both directions of the connection share these.
    struct ConnectionParts {
        Rank peer = nobody;
        EngineEntry<Flow>& entry;
        FlowTable<Flow>& flows;
        LateMessages& late;
        const SleeperWaker& waker;
        std::atomic<std::size_t>& unread_bytes;
    };
    struct InputFailure {
        Culprit culprit = Culprit::peer;
        std::string cause;
    };
    Input(const ConnectionParts& shared, const PeerLimits& limits, std::size_t longest);

    /// Reads until the kernel has no more, or a large message should wait for its offer. False: the
    /// connection has ended.
    bool receive(int fd, bool everything);
    const InputFailure& failure() const { return failure_; }
    bool bye_received() const { return bye_received_; }
    bool is_arriving(const Flow& flow) const { return flow_ == &flow; }
    /// Moves the flow's messages, whole or arriving, out of the caller's memory. False: there is no
    /// memory for copies.
    bool copy_offered(Flow& flow);
    /// Forgets the message that is arriving.
    void clear() { flow_ = nullptr; }

private:
    enum class Next : uint8_t { read, later };

    bool fail(std::string cause, Culprit culprit = Culprit::peer);
    bool read_some(int fd, bool& dry);
    Next parse(bool everything);
    bool begin_frame(const Header& header);
    bool begin_channel(const Header& header);
    bool begin_data(Flow& flow, const Header& header);
    bool handle_credits(Flow& flow, uint32_t credits);
    bool fill_offer(ReceiveQueue& in, uint64_t position);
    bool fill_cell(ReceiveQueue& in);
    void finish_message();
    void finish_late();

    static constexpr std::size_t input_bytes = 64 * 1024;

    const ConnectionParts shared_;
    const PeerLimits limits_;
    const std::size_t max_message_bytes_;
    bool bye_received_ = false, failed_ = false;
    InputFailure failure_;

    std::unique_ptr<std::byte[]> input_;
    std::size_t begin_ = 0, end_ = 0;
    std::size_t limit_ = input_bytes;
    Flow* flow_ = nullptr;  // the flow of the arriving message
    Header header_;
    std::byte* to_ = nullptr;
    int cell_ = CellPool::none;
    std::size_t done_ = 0;
    bool served_ = false;  // this turn has completed a message
};

}  // namespace tutti::tcp
