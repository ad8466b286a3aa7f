// Tests that a rank notices when a dead peer keeps it from receiving through UCX's shared memory.
#include <atomic>
#include <thread>

#include "transport/ucx_ports.h"

namespace tutti::test {
namespace {

/// The payload of a message whose sender has claimed the next place in its receiver's queue, and
/// does not finish writing until it may: it was killed there, or is slow.
struct HeldPayload {
    static void* start_pack(void* self, const void*, std::size_t) { return self; }
    static void* start_unpack(void* self, void*, std::size_t) { return self; }
    static std::size_t packed_size(void*) { return bytes; }
    static std::size_t pack(void* self, std::size_t, void*, std::size_t room) {
        auto& held = *static_cast<HeldPayload*>(self);
        held.begun = true;
        while (!held.may_end) std::this_thread::yield();
        return std::min(room, bytes);
    }
    static ucs_status_t unpack(void*, std::size_t, const void*, std::size_t) { return UCS_OK; }
    static void finish(void*) {}

    static constexpr std::size_t bytes = 4096;
    std::atomic<bool> begun{false}, may_end{false};
};
HeldPayload* held_payload = nullptr;

ucs_status_ptr_t hold_payload(ucp_ep_h endpoint, unsigned id, const void* header,
                              std::size_t header_bytes, const void* data, std::size_t bytes,
                              const ucp_request_param_t* param) {
    static const ucp_generic_dt_ops_t operations = {
        &HeldPayload::start_pack, &HeldPayload::start_unpack, &HeldPayload::packed_size,
        &HeldPayload::pack,       &HeldPayload::unpack,       &HeldPayload::finish};
    ucp_request_param_t changed = *param;
    if ((param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0)
        REQUIRE(ucx_library().ucp_dt_create_generic(&operations, held_payload, &changed.datatype) ==
                UCS_OK);
    return ucx_library().ucp_am_send_nbx(endpoint, id, header, header_bytes, data, bytes, &changed);
}

/// Rank 1 is in the middle of a message to rank 0, which takes it for dead. Rank 2 sends as well.
struct InTheMiddle {
    InTheMiddle() {
        held_payload = &held;
        holding.ucp_am_send_nbx = &hold_payload;
        for (auto [from, to, rank] : {std::tuple{&receiver, &writer, 1},
                                      {&receiver, &other, 2},
                                      {&writer, &receiver, 0},
                                      {&other, &receiver, 0}})
            REQUIRE(from->port->connect(rank, to->port->address()));
        for (PortEnd* from : {&writer, &other}) send_to_receiver(*from, 100);
        REQUIRE(turning({&receiver, &writer, &other},
                        [&] { return receiver.log.messages.size() == 2; }));
        write = std::thread([this] { send_to_receiver(writer, HeldPayload::bytes); });
        REQUIRE(turning({&receiver}, [&] { return held.begun.load(); }));
        receiver.port->disconnect(1);
        send_to_receiver(other, 100);
    }
    ~InTheMiddle() { end(); }
    void end() {
        held.may_end = true;
        if (write.joinable()) write.join();
    }
    static void send_to_receiver(PortEnd& from, std::size_t bytes) {
        send_patiently({&from}, from, 0, 1, pattern(bytes, 1), nullptr);
    }
    bool arrive(std::size_t messages) {
        return turning({&receiver, &other},
                       [&] { return receiver.log.messages.size() == messages; });
    }

    HeldPayload held;
    ucx::Library holding = ucx_library();
    PortEnd receiver{plain_ucx(ucx_library()), 0}, writer{plain_ucx(holding), 1},
        other{plain_ucx(ucx_library()), 2};
    std::thread write;
};

TEST_CASE("ucx: a rank that a dead peer has cut off from its shared memory says so") {
    InTheMiddle middle;
    PortLog& log = middle.receiver.log;
    REQUIRE(turning({&middle.receiver, &middle.other}, [&] { return !log.losses.empty(); }));
    CHECK(log.messages.size() == 2);
    REQUIRE(log.losses.size() == 1);
    CHECK(log.losses[0].first == 2);
    CHECK(log.losses[0].second.find("no message reaches it any more") != std::string::npos);
    CHECK(log.culprits[0] == fabric::Culprit::own);
}

TEST_CASE("ucx: a sender in shared memory may be slow after another peer's end") {
    InTheMiddle middle;
    // The check has begun, and waits behind the message.
    REQUIRE_FALSE(turning(
        {&middle.receiver, &middle.other}, [] { return false; }, 500));
    middle.end();
    REQUIRE(middle.arrive(4));
    // Longer than a check takes that fails.
    REQUIRE_FALSE(turning(
        {&middle.receiver, &middle.other}, [] { return false; }, 3500));
    CHECK(middle.receiver.log.losses.empty());
}

}  // namespace
}  // namespace tutti::test
