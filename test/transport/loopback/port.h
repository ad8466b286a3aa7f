// The smallest port of a message library: its messages move between ports of one process, through
// queues. docs/how-to/new-transport.md walks through it; a new transport's port starts as a copy.
//
// send() copies small payloads. A large one stays in the sender's memory until the receiver has
// fetched it, or the sender takes it back, which disconnect() does.
//
// The engine lets one thread at a time into a port, but two ports may have two threads. So one
// mutex guards all queues, and the port holds it in no event, since the engine may call connect()
// or fetch() there.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/port.h"

namespace tutti::test {

class LoopbackPort : public fabric::Port {
public:
    explicit LoopbackPort(fabric::PortEvents& events);
    ~LoopbackPort() override;

    const fabric::PortLimits& limits() const override { return limits_; }
    const Bytes& address() const override { return address_; }
    Result<> connect(Rank peer, ByteView address) override;
    void disconnect(Rank peer) override;
    fabric::Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context) override;
    fabric::Progress fetch(void* hold, std::byte* where, std::size_t bytes, void* context) override;
    void release(void* hold) override;
    bool progress() override;
    void flush(Deadline) override {}  // a message that was sent lies at its receiver already

protected:  // for FakePort (fake_port.h), which misbehaves; a library's port has it private
    /// A message on its way. Both ports have it, until neither needs it any more.
    struct Message {
        uint64_t sender = 0;  // the number of its port
        std::array<std::byte, fabric::header_bytes> header{};
        std::size_t bytes = 0;            // of payload
        Bytes copy;                       // of a small one
        const std::byte* data = nullptr;  // a large one: until it was fetched or taken back
        bool hangs_up = false;            // instead of a message: the sender has disconnected
    };
    using MessagePtr = std::shared_ptr<Message>;
    /// A send that is pending.
    struct Pending {
        Rank to = nobody;
        void* context = nullptr;
        MessagePtr message;
    };

    /// As send(): copies the payload, or leaves it in its place.
    fabric::Progress post(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context, bool copies);
    void deliver(const MessagePtr& message);
    void hang_up(uint64_t number);

    // The ports of this process. A port's number is its address.
    static inline std::mutex mutex_;
    static inline std::map<uint64_t, LoopbackPort*> ports_;
    static inline uint64_t last_number_ = 0;

    fabric::PortEvents& events_;
    fabric::PortLimits limits_;
    uint64_t number_ = 0;
    Bytes address_;
    std::map<Rank, uint64_t> peers_;  // the numbers of their ports
    std::deque<MessagePtr> inbox_;
    std::vector<Pending> pending_;
    std::map<void*, MessagePtr> held_;  // arrivals, by what names them to the engine
};

}  // namespace tutti::test
