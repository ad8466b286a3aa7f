// One TCP connection to a peer. It carries every channel that either side opened on it, both ways.
//
// Any thread may come in; an owner flag lets one in at a time. Whoever publishes something to send
// puts its flow on the ready list first and tries the flag second; whoever gives the flag back
// looks at the list afterwards. So nothing published is left lying, and nobody waits.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "os/uninherited_fd.h"
#include "transport/peer_limits.h"
#include "transport/posted/retired.h"
#include "transport/transport.h"
#include "transports/tcp/flow.h"

namespace tutti::tcp {

/// What a connection tells its transport, from whichever thread came in, without the owner flag.
class ConnectionEvents {
public:
    virtual ~ConnectionEvents() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    virtual void lost(Rank peer, const std::string& cause) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
    struct Options {
        Rank rank = nobody, peer = nobody;
        int doorbell_fd = -1;
        Reactor* data_reactor = nullptr;
        const Retired* retired = nullptr;
        std::atomic<int>* unsent = nullptr;
        ConnectionEvents* events = nullptr;
        PeerLimits limits = {};
    };
    Connection(UniqueFd fd, const Options& options);
    ~Connection();

    /// Registers with the data reactor; once a shared_ptr owns it.
    Result<> watch();
    Result<std::unique_ptr<Sender>> open(const ChannelId& id);
    /// Sends and receives what is possible now; nothing if another thread is in.
    void progress();

    Rank peer() const { return options_.peer; }
    Code health() const { return health_.load(std::memory_order_acquire); }

    /// Closing: begin takes the connection for good, waiting at most until the deadline for a
    /// thread that is still delivering news; step sends and receives, and is true once the peer's
    /// kernel has everything; end hangs up.
    void begin_close(Deadline deadline);
    bool close_step();
    void end_close();
    int fd() const { return fd_.get(); }

    // For the channels.
    Code health(const Flow& flow) const {
        static_cast<void>(flow);
        return health();
    }
    /// Its socket wakes whoever sleeps as it is.
    void arm(bool on) { static_cast<void>(on); }
    void kick(Flow& flow);
    void cancel_sends(Flow& flow);
    void cancel_offer(Flow& flow);
    void close_sender(Flow& flow);
    void close_receiver(Flow& flow);
    void reject(const std::string& cause);

private:
    class Guard;
    struct News {
        std::vector<Flow*> opened;
        Rank lost = nobody;  // at fault: the peer, or this rank
        std::string cause;
    };
    enum class Next : uint8_t { read, later };

    // Ownership.
    bool enter() { return owner_.take(closed_); }
    void leave();
    void deliver(const News& news);
    void on_events(uint32_t events);
    Flow* find(uint32_t comm, uint16_t lane);
    Flow* find_or_add(uint32_t comm, uint16_t lane);
    void half_closed(Flow& flow);
    bool in_use(const Flow& flow) const;
    void forget_flows();
    void wake(Sleeper& sleeper);
    void fail(const std::string& cause);
    void cannot_go_on(const std::string& cause);
    void end(Rank at_fault, const std::string& cause);
    void hang_up();

    // Sending.
    void flush();
    bool output_pending() const { return out_[0].iov_len + out_[1].iov_len > 0; }
    bool gather();
    bool batch(Flow& flow);
    bool batch_late_credits();
    static Header header(Kind kind, uint32_t comm, uint16_t lane);
    void add_header(const Header& out);
    void attach_credits(Header& out, Flow& flow);
    void batch_message(Flow& flow);
    bool write();
    void sent(Flow& flow);
    void watch_output(bool on);
    void count_unsent(bool is);

    // Receiving.
    void receive(bool everything);
    bool read_some(bool& dry);
    Next parse(bool everything);
    bool begin_frame(const Header& header);
    bool begin_channel(const Header& header);
    bool begin_data(Flow& flow, const Header& header);
    bool take_credits(Flow& flow, uint32_t credits);
    bool fill_offer(ReceiveQueue& in, uint64_t position);
    bool fill_cell(ReceiveQueue& in);
    bool holds_too_much();
    void drop(ReceiveQueue& in);
    void finish_message();
    void finish_late();

    static constexpr std::size_t input_bytes = 64 * 1024;
    static constexpr std::size_t batch_bytes = 16 * 1024;
    static constexpr std::size_t batch_frames = 64;

    const Options options_;
    UninheritedFd fd_;
    std::atomic<Code> health_{Code::ok};
    OwnerFlag owner_;
    std::atomic<bool> closed_{false};
    std::atomic<int> delivering_{0};
    ReadyList<Flow> ready_;

    std::atomic<std::size_t> unread_bytes_{0};  // of large messages, in cells

    // The owner's.
    std::unordered_map<uint64_t, std::unique_ptr<Flow>> flows_;
    std::size_t opened_ = 0;  // of those: ours
    Flow* last_flow_ = nullptr;
    std::vector<Flow*> forgotten_;  // without a half left; they go when nothing is under way
    std::unique_ptr<News> news_;
    bool closing_ = false, bye_sent_ = false, bye_received_ = false, shut_ = false;

    std::unique_ptr<std::byte[]> batch_;  // headers and small payloads of the frames under way
    std::size_t batched_ = 0;
    std::array<Flow*, batch_frames> small_{};  // whose messages lie in the batch
    std::size_t small_count_ = 0;
    Flow* large_ = nullptr;  // whose payload is sent from where it lies, behind the batch
    iovec out_[2] = {};      // what is left to write of both
    int output_errno_ = 0;
    bool output_watched_ = false;
    bool unsent_ = false;  // counted

    std::unique_ptr<std::byte[]> input_;
    std::size_t input_begin_ = 0, input_end_ = 0;
    std::size_t input_limit_;
    Flow* in_flow_ = nullptr;  // whose message is arriving
    Header in_;
    std::byte* in_to_ = nullptr;
    int in_cell_ = CellPool::none;
    std::size_t in_done_ = 0;
    Flow late_{0, 0};                   // takes the messages of retired communicators
    std::vector<Header> late_credits_;  // that are still to be given back for them
    bool served_ = false;               // this turn has completed a message
};

}  // namespace tutti::tcp
