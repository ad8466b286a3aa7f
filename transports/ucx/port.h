// A UCP worker as a port of the fabric engine. Messages are active messages. Up to eager_bytes the
// payload travels with its header; above that UCX chooses, and uses rendezvous for large ones: the
// receiver reads the payload out of the sender's memory, or the sender writes it into the
// receiver's, if the network can. That is the one-sided path: puts and flags of our own would first
// need an answer with the address, which is what rendezvous does.
//
// Over sockets, messages larger than a piece are sent in pieces, each with the header: UCX would
// assemble them in memory of its own, and they would be copied once more.
//
// UCX copies payloads in and out of shared memory, and reads each piece through a callback
// (payload.h). So a failed operation gets its buffers back at once, whatever the peer does.
//
// UCX registers memory: its cache keeps registrations, evicts, and watches for unmapped memory, so
// that the same address mapped again is registered again.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/port.h"
#include "transports/ucx/context_memory.h"
#include "transports/ucx/cuda_messages.h"
#include "transports/ucx/library.h"
#include "transports/ucx/payload.h"
#include "transports/ucx/pool.h"
#include "transports/ucx/queries.h"
#include "transports/ucx/receive_check.h"

namespace tutti::ucx {

using fabric::Arrival;
using fabric::PortEvents;
using fabric::PortLimits;
using fabric::Progress;

class UcxPort final : public fabric::Port,
                      private fabric::PortDoorbell,
                      private fabric::SecondPath,
                      private fabric::PayloadMover {
public:
    UcxPort(const Library& ucx, PortEvents& events)
        : ucx_(ucx), events_(events), memory_(ucx), receive_check_(ucx) {}
    ~UcxPort() override;
    /// Takes ownership of the context.
    Result<> open(ucp_context_h context);

    const PortLimits& limits() const override { return limits_; }
    const Bytes& address() const override { return address_; }
    Result<> connect(Rank peer, ByteView address) override;
    void disconnect(Rank peer) override;
    Progress send(Rank peer, const std::byte* header, const std::byte* data, std::size_t bytes,
                  void* context) override;
    Progress fetch(void* hold, std::byte* where, std::size_t bytes, void* context) override;
    void release(void* hold) override;
    bool progress() override;
    void flush(Deadline deadline) override;
    fabric::PortDoorbell* doorbell() override { return this; }
    fabric::PortMemory* memory() override { return &memory_; }
    fabric::SecondPath* second_path() override { return this; }
    fabric::PayloadMover* payload_mover() override { return this; }
    fabric::PortDevices* devices() override { return devices_.get(); }

private:
    friend class PortCudaMessages;
    int wake_fd() const override { return wake_fd_; }
    bool arm() override { return ucx_.ucp_worker_arm(worker_) != UCS_ERR_BUSY; }
    // Only arming empties the descriptor of shared memory.
    void drain() override { (void)ucx_.ucp_worker_arm(worker_); }
    /// Over sockets the second way is a connection of its own.
    Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                           std::size_t bytes, unsigned way) override;
    bool move(void* context, std::byte* where) override;

    static constexpr unsigned message_id = 0, piece_id = 1, check_id = 2;
    /// Up to this size a payload always travels with its header, whatever UCX_RNDV_THRESH says.
    static constexpr std::size_t eager_bytes = 8192;
    /// Payloads up to this size are sent with their header as one piece: UCX sends one piece at
    /// once, but needs a request for two.
    static constexpr std::size_t joined_bytes = 448;
    /// With all headers it fits the bytes that UCX reads from a socket at once (the setting
    /// TCP_RX_SEG_SIZE), nearly fills them, and holds a whole message of 64 KiB. Larger pieces take
    /// up to twice as long.
    static constexpr std::size_t piece_bytes = 124 * 1024;
    /// The most incomplete messages of one peer: more than its credits on all its channels allow.
    static constexpr std::size_t most_arriving = 65'536;

    struct KeptArrival;
    struct UcxPeer {
        UcxPort* port = nullptr;
        Rank rank = nobody;
        Bytes address;
        ucp_ep_h endpoint = nullptr;
        ucp_ep_h second = nullptr;  // set at the first message on the second way
        bool one_way = false;       // UCX refused the second endpoint
        bool failed = false;
        bool slow = false;       // over TCP: rendezvous only adds round trips
        uint64_t in_pieces = 0;  // count of messages sent in pieces
        std::vector<KeptArrival*> arriving;
    };
    /// Sent before each piece. Pieces may overtake each other.
    struct PieceHeader {
        std::array<std::byte, fabric::header_bytes> header;  // the message's
        uint64_t number = 0;  // counts the sender's messages in pieces
        uint64_t bytes = 0;   // of the whole payload
        uint64_t offset = 0;
    };
    /// A send or a fetch that UCX has. UCX reads the header until the operation completes.
    struct UcxRequest {
        alignas(8) std::array<std::byte, fabric::header_bytes + joined_bytes> message;
        UcxPort* port = nullptr;
        UcxPeer* peer = nullptr;
        void* context = nullptr;
        Payload payload;  // empty: UCX has the caller's pointer
        bool busy = false;
        bool fetches = false;
        UcxRequest* whole = nullptr;  // of a piece: the message's, which ends with its last piece
        std::size_t left = 0;         // of a message in pieces: unfinished pieces
        bool ok = true;               // no piece has failed so far
        UcxRequest* next = nullptr;
    };
    /// A kept arrival, or one that is arriving in pieces.
    struct KeptArrival {
        void* data = nullptr;
        UcxPeer* peer = nullptr;
        KeptArrival* next = nullptr;
        // Used for arrivals in pieces. where: nullptr: the port drops the pieces.
        bool held = false;  // held by the engine
        uint64_t number = 0;
        std::size_t bytes = 0, left = 0;
        std::byte* where = nullptr;
        void* context = nullptr;
    };
    static ucs_status_t on_message(void* self, const void* header, std::size_t header_length,
                                   void* data, std::size_t length,
                                   const ucp_am_recv_param_t* param);
    static ucs_status_t on_piece(void* self, const void* header, std::size_t header_length,
                                 void* data, std::size_t length, const ucp_am_recv_param_t* param);
    ucs_status_t handle_joined(const void* data, std::size_t length);
    UcxRequest& join(UcxPeer& peer, const std::byte* header, const std::byte* data,
                     std::size_t bytes, void* context);
    Progress send_joined(UcxRequest& request, ucp_ep_h endpoint, std::size_t bytes);
    KeptArrival* arriving(UcxPeer& peer, const PieceHeader& piece);
    void handle_piece(UcxPeer& peer, const PieceHeader& piece, const void* data,
                      std::size_t length);
    void end_arriving(UcxPeer& peer);
    Progress send_pieces(UcxPeer& peer, const std::byte* header, const std::byte* data,
                         std::size_t bytes, void* context);
    ucs_status_t handle(unsigned id, ucp_am_recv_callback_t handler);
    static void on_sent(void* request, ucs_status_t status, void* ours);
    static void on_fetched(void* request, ucs_status_t status, std::size_t length, void* ours);
    static void on_failure(void* peer, ucp_ep_h endpoint, ucs_status_t status);
    void mark_failed(UcxPeer& peer, ucs_status_t status, bool own);
    void mark_all_failed();
    ucs_status_t make_endpoint(UcxPeer& peer, ucp_ep_h& endpoint) const;
    UcxPeer* find(Rank rank) const;
    UcxRequest& take_request(UcxPeer& peer, void* context, bool fetches);
    bool copies(const UcxPeer& peer) const { return payload_type_ != 0 && !peer.slow; }
    const void* as_payload(ucp_request_param_t& param, UcxRequest& request, const std::byte* data,
                           std::size_t bytes) const;
    void drop_payloads(const UcxPeer& peer);
    void end(UcxRequest& request);
    void finish(UcxRequest& request, bool ok);
    void give(UcxRequest& request);
    Progress started(UcxRequest& request, ucs_status_ptr_t result);
    static ucp_request_param_t send_param(UcxRequest& request, uint32_t flags);
    Progress fetch(KeptArrival& kept, std::byte* where, std::size_t bytes, void* context,
                   ucs_memory_type_t memory);
    void wait(ucs_status_ptr_t request, Deadline deadline);
    Result<> make_address();

    const Library& ucx_;
    PortEvents& events_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    PortLimits limits_;
    Bytes address_;
    int wake_fd_ = -1;
    std::vector<std::unique_ptr<UcxPeer>> peers_;  // by rank
    Pool<UcxRequest> requests_;
    Pool<KeptArrival> kept_;
    ContextMemory memory_;
    ucp_datatype_t payload_type_ = 0;        // set if every network but sockets is shared memory
    std::unique_ptr<CudaMessages> devices_;  // set if UCX supports devices
    ReceiveCheck receive_check_;
};

}  // namespace tutti::ucx
