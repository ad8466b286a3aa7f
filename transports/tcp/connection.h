// One TCP connection to a peer. It carries all channels that either side opened, in both
// directions.
#pragma once

#include <memory>
#include <string>

#include "transports/tcp/input.h"
#include "transports/tcp/output.h"

namespace tutti::tcp {

/// A thread that enters sends and receives as much as possible at once, for all channels. After the
/// connection has ended no thread reads the queues; health() tells the channels.
class Connection : public std::enable_shared_from_this<Connection> {
public:
    struct Options {
        Rank rank = nobody, peer = nobody;
        int doorbell_fd = -1;
        Reactor* data_reactor = nullptr;
        const Retired* retired = nullptr;
        std::atomic<int>* unsent = nullptr;
        ChannelEvents* events = nullptr;
        PeerLimits limits = {};
        // The largest message that this rank accepts.
        std::size_t max_message_bytes = tcp::max_message_bytes;
    };
    Connection(UniqueFd fd, const Options& options);
    ~Connection();

    /// Registers with the data reactor. Call it once a shared_ptr owns the connection.
    Result<> watch();
    Result<std::unique_ptr<Sender>> open(const ChannelId& id);
    /// Sends and receives what is possible now; does nothing if another thread is in.
    void progress();

    Rank peer() const { return options_.peer; }
    Code health() const { return health_.load(std::memory_order_acquire); }

    /// Closing: begin takes the connection for good, and waits at most until the deadline for a
    /// thread that is still delivering events. step sends and receives, and returns true once the
    /// peer's kernel has all bytes. end closes the socket.
    void begin_close(Deadline deadline);
    bool close_step();
    void end_close();
    int fd() const { return socket_.fd(); }

    // For the channels.
    Code health(const Flow&) const { return health(); }
    /// Does nothing: the socket's readiness wakes a sleeping thread.
    void arm(bool on) { static_cast<void>(on); }
    void schedule_send(Flow& flow);
    void cancel_sends(Flow& flow);
    void cancel_receives(Flow& flow);
    void close_sender(Flow& flow);
    void close_receiver(Flow& flow);
    void reject(const Flow& flow, const std::string& cause);

private:
    friend class EngineEntry<Flow>;
    friend class EngineGuard<Connection>;
    using Guard = EngineGuard<Connection>;

    bool enter() { return entry_.enter(); }
    void exit() { entry_.exit(*this); }
    void finish_turn() {
        if (flows_.any_forgotten()) forget_flows();
    }
    void forget_flows();
    bool has_more() { return entry_.ready().added(); }
    void flush();
    std::unique_ptr<Receiver> make_receiver(Flow& flow);

    void on_events(uint32_t events);
    void receive(bool everything);
    void end(const std::string& cause, Culprit culprit = Culprit::peer);
    void hang_up();

    const Options options_;
    const SleeperWaker waker_;
    DataSocket socket_;
    std::atomic<Code> health_{Code::ok};
    std::atomic<std::size_t> unread_bytes_{0};  // bytes of large messages, in cells

    EngineEntry<Flow> entry_;
    // Used by the owner only.
    FlowTable<Flow> flows_;
    LateMessages late_{unread_bytes_};
    Input input_;
    Output output_;
};

}  // namespace tutti::tcp
