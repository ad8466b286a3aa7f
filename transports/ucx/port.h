// A UCP worker as the fabric engine wants it. Messages are active messages: up to eager_bytes with
// their header, above it as UCX chooses, which is by rendezvous for what is large: the receiver
// then reads the payload out of the sender's memory, or has it written into its own, where the
// network can. That is the one-sided path: puts and flags of our own would first need an answer
// that says where to, which is what rendezvous is.
//
// Over sockets, messages of more than a piece go in pieces, each with the header: UCX would put
// them together in memory of its own, from where they would be copied once more.
//
// Where a payload goes through shared memory, UCX copies it in and out; it asks for each piece
// (payload.h). So a failed operation gets its buffers back at once, whatever the peer does.
//
// Registration is UCX's own: its cache keeps what was registered, evicts, and watches for memory
// that is unmapped, so that the same address mapped again is registered anew.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/port.h"
#include "transports/ucx/cuda_messages.h"
#include "transports/ucx/library.h"
#include "transports/ucx/payload.h"
#include "transports/ucx/pool.h"
#include "transports/ucx/queries.h"

namespace tutti::ucx {

using fabric::Arrival;
using fabric::PortEvents;
using fabric::PortLimits;
using fabric::Progress;

class UcxPort final : public fabric::Port,
                      private fabric::PortDoorbell,
                      private fabric::PortMemory,
                      private fabric::SecondPath,
                      private fabric::PayloadMover {
public:
    UcxPort(const Library& ucx, PortEvents& events) : ucx_(ucx), events_(events) {}
    ~UcxPort() override;
    /// Takes the context over.
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
    fabric::PortMemory* memory() override { return this; }
    fabric::SecondPath* second_path() override { return this; }
    fabric::PayloadMover* payload_mover() override { return this; }
    fabric::PortDevices* devices() override { return devices_.get(); }

private:
    friend class PortCudaMessages;
    int wake_fd() const override { return wake_fd_; }
    bool arm() override { return ucx_.ucp_worker_arm(worker_) != UCS_ERR_BUSY; }
    // Only arming empties the descriptor of shared memory.
    void drain() override { (void)ucx_.ucp_worker_arm(worker_); }
    Result<> add_memory(std::byte* data, std::size_t bytes) override;
    void remove_memory(std::byte* data, std::size_t bytes) override;
    /// Over sockets the second way is a connection of its own.
    Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                           std::size_t bytes, unsigned way) override;
    bool move(void* context, std::byte* where) override;

    static constexpr unsigned message_id = 0, piece_id = 1;
    /// Always with the header, whatever UCX_RNDV_THRESH says: what the engine says to its like.
    static constexpr std::size_t eager_bytes = 8192;
    /// Payloads up to here are sent behind their header as one piece: UCX sends one piece at once,
    /// and two only by a request.
    static constexpr std::size_t joined_bytes = 448;
    /// With all headers it fits what UCX reads from a socket at a time (the setting
    /// TCP_RX_SEG_SIZE), nearly fills it, and holds a whole message of 64 KiB. Larger ones take up
    /// to twice as long.
    static constexpr std::size_t piece_bytes = 124 * 1024;
    /// Per peer: more than its credits on all its channels allow.
    static constexpr std::size_t most_arriving = 65'536;

    struct KeptArrival;
    struct UcxPeer {
        UcxPort* port = nullptr;
        Rank rank = nobody;
        Bytes address;
        ucp_ep_h endpoint = nullptr;
        ucp_ep_h second = nullptr;  // from the first message that goes the second way
        bool one_way = false;       // UCX would not have it
        bool failed = false;
        bool slow = false;       // TCP: rendezvous only adds turns
        uint64_t in_pieces = 0;  // messages that were sent so
        std::vector<KeptArrival*> arriving;
    };
    /// In front of each piece. They may overtake each other.
    struct PieceHeader {
        std::array<std::byte, fabric::header_bytes> header;  // the message's
        uint64_t number = 0;  // the message, of those that its sender sent in pieces
        uint64_t bytes = 0;   // of the whole payload
        uint64_t offset = 0;
    };
    /// A send or a fetch that the library has: UCX wants headers to stay until then.
    struct UcxRequest {
        alignas(8) std::array<std::byte, fabric::header_bytes + joined_bytes> message;
        UcxPort* port = nullptr;
        UcxPeer* peer = nullptr;
        void* context = nullptr;
        Payload payload;  // empty: UCX has the caller's pointer
        bool busy = false;
        bool fetches = false;
        UcxRequest* whole = nullptr;  // of a piece: the message's, whose event comes with the last
        std::size_t left = 0;         // of a message in pieces
        bool ok = true;               // all of them, until now
        UcxRequest* next = nullptr;
    };
    /// An arrival that was kept, or that is coming in pieces.
    struct KeptArrival {
        void* data = nullptr;
        UcxPeer* peer = nullptr;
        KeptArrival* next = nullptr;
        // In pieces. where: nullptr: they are dropped.
        bool held = false;  // by the engine
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
    std::multimap<std::pair<std::byte*, std::size_t>, ucp_mem_h> memory_;  // that was added
    ucp_datatype_t payload_type_ = 0;        // if all but sockets is shared memory
    std::unique_ptr<CudaMessages> devices_;  // where UCX knows of any
};

}  // namespace tutti::ucx
