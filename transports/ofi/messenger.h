// libfabric's calls, as a message port makes them: a fabric::MessengerContract.
#pragma once

#include <rdma/fi_errno.h>

#include <string>

#include "fabric/messages/messenger.h"
#include "transports/ofi/memory.h"
#include "transports/ofi/port.h"
#include "transports/ofi/wake.h"

namespace tutti::ofi {

using fabric::MessagePeer;

class OfiMessenger {
public:
    /// The addresses that a port has published.
    struct Published {
        std::string endpoint, second;
    };

    OfiMessenger(Objects objects, const PortOptions& options);
    OfiMessenger(const OfiMessenger&) = delete;
    Result<> open() { return wake_.open(); }

    const fabric::MessengerLimits& limits() const { return limits_; }
    LibraryMemory& library_memory() { return memory_; }
    const Bytes& address() const { return objects_.address; }

    void publish(ByteWriter& address) const;
    Result<Published> parse(Rank rank, ByteReader& in) const;
    Result<> connect(MessagePeer& peer, const Published& address);
    /// Used if the engine has named no address for the peer.
    Result<> take_address(MessagePeer& peer, ByteView where);
    void note_reached(const MessagePeer& peer);

    int send(fabric::StagedMessage& staged);
    int inject(const fabric::StagedMessage& staged);
    int send_in_place(fabric::PayloadOut& out);
    int post(fabric::BounceBuffer& bounce);
    int send_payload(fabric::PayloadOut& out);
    int receive_payload(fabric::PayloadIn& in, std::byte* where);
    void cancel(fabric::PayloadIn& in);
    std::size_t read(std::span<fabric::OpCompletion> completions);
    void close();

    bool is_full(int code) const { return code == -FI_EAGAIN; }
    bool is_own(int code) const { return ofi::is_own(code); }
    std::string failure(std::string_view what, std::size_t bytes, int code) const;
    std::string name() const { return fmt::format("libfabric ({})", objects_.provider()); }

    int wake_fd() const { return wake_.fd(); }
    bool arm() { return wake_.arm(); }
    void drain() { wake_.drain(); }
    void silence() { wake_.silence(); }

private:
    Result<fi_addr_t> insert(Rank rank, ByteView where);
    int hand_over(fabric::StagedMessage& staged);
    std::size_t read_error(std::span<fabric::OpCompletion> completions);

    Objects objects_;
    WakeDescriptor wake_{objects_};
    OfiRegistrar registrar_{objects_};
    LibraryMemory memory_;
    fabric::MessengerLimits limits_;
};

}  // namespace tutti::ofi
