// The messages of shm ranks over their Unix sockets: a hello after the handshake, then
// PairMessages.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "transport/mapped/segments.h"

namespace tutti::shm {

// Advice of errors.
inline constexpr char same_version[] = "install the same version of tutti on every host";
inline constexpr char same_namespace[] =
    "start the ranks of one host in one network namespace (docker run --network host), or add tcp "
    "to TUTTI_TRANSPORT";

enum class HelloKind : uint8_t {
    pair = 1,   // channels and messages between two ranks, until either ends
    group = 2,  // one request to join a flat group, one answer
    board = 3,  // one request for a row of the host's board, one answer
};

struct ShmHello {
    HelloKind kind = HelloKind::pair;
    Rank rank = nobody;  // group: the rank in the communicator; else in the job
    uint32_t comm = 0;   // this field and the following: group only
    Rank size = 0;
    uint32_t streams = 0;
    uint32_t segments = 0;  // the number of the leader's segments that the asking process has
    uint64_t bells = 0;     // members whose doorbells it has; its own bit: the leader can ring it
};

enum class PairMessageKind : uint8_t {
    doorbell = 1,  // with an eventfd: the first message of each side
    segment = 2,   // with the memory: its number and length
    channel = 3,   // comm and lane name it, place is its memory
    bye = 4,       // the sender is about to close the connection in order
};

struct PairMessage {
    PairMessageKind kind = PairMessageKind::bye;
    uint32_t comm = 0;
    uint16_t lane = 0;
    SegmentPlace place;  // segment: its number only
    uint64_t bytes = 0;  // of a segment
};

/// The leader's answer to a group request. If it is ok, descriptors come with it: of the segments
/// that the asking process does not have, then of the doorbells in `bells`, one for each bit.
struct GroupAnswer {
    Code code = Code::ok;
    SegmentPlace place;
    uint32_t first_segment = 0;
    std::vector<uint64_t> segment_bytes;
    uint64_t bells = 0;
    std::string text;
};

/// The leader's answer to a request for a row. If it is ok, the board's memory comes with it.
struct BoardAnswer {
    Code code = Code::ok;
    uint32_t row = 0, rows = 0;  // the asking rank's, and of the board
    std::string text;
};

inline constexpr std::size_t max_frame_bytes = 1024;

Bytes encode(const ShmHello& hello);
Bytes encode(const PairMessage& message);
Bytes encode(const GroupAnswer& answer);
Bytes encode(const BoardAnswer& answer);
Result<ShmHello> decode_hello(ByteView in);
Result<PairMessage> decode_pair_message(ByteView in);
Result<GroupAnswer> decode_answer(ByteView in);
Result<BoardAnswer> decode_board_answer(ByteView in);

}  // namespace tutti::shm
