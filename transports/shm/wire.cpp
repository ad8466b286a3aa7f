#include "transports/shm/wire.h"

#include "transports/shm/board.h"

namespace tutti::shm {
namespace {

// The largest text that fits in a frame with an answer's other fields.
constexpr std::size_t max_text_bytes =
    max_frame_bytes - 64 - SegmentTable::max_segments * sizeof(uint64_t);

}  // namespace

Bytes encode(const ShmHello& hello) {
    ByteWriter out;
    out.put(hello.kind).put(hello.rank).put(hello.comm).put(hello.size).put(hello.streams);
    out.put(hello.segments).put(hello.bells);
    return out.take();
}

Bytes encode(const PairMessage& message) {
    ByteWriter out;
    out.put(message.kind).put(message.comm).put(message.lane).put(message.place).put(message.bytes);
    return out.take();
}

Bytes encode(const GroupAnswer& answer) {
    ByteWriter out;
    out.put(answer.code).put(answer.place).put(answer.bells).put(answer.first_segment);
    out.put(static_cast<uint32_t>(answer.segment_bytes.size()));
    for (const uint64_t bytes : answer.segment_bytes) out.put(bytes);
    out.put_text(std::string_view(answer.text).substr(0, max_text_bytes));
    return out.take();
}

Bytes encode(const BoardAnswer& answer) {
    ByteWriter out;
    out.put(answer.code).put(answer.row).put(answer.rows);
    out.put_text(std::string_view(answer.text).substr(0, max_text_bytes));
    return out.take();
}

Result<ShmHello> decode_hello(ByteView in) {
    ByteReader reader(in);
    ShmHello hello;
    hello.kind = reader.get_enum(HelloKind::pair, HelloKind::board);
    hello.rank = reader.get<Rank>();
    hello.comm = reader.get<uint32_t>();
    hello.size = reader.get<Rank>();
    hello.streams = reader.get<uint32_t>();
    hello.segments = reader.get<uint32_t>();
    hello.bells = reader.get<uint64_t>();
    if (!reader.at_end())
        return fail(Code::invalid, "shm: malformed hello of {} bytes and kind {}", in.size(),
                    static_cast<int>(hello.kind))
            .advice(same_version);
    return hello;
}

Result<PairMessage> decode_pair_message(ByteView in) {
    ByteReader reader(in);
    PairMessage message;
    message.kind = reader.get_enum(PairMessageKind::doorbell, PairMessageKind::bye);
    message.comm = reader.get<uint32_t>();
    message.lane = reader.get<uint16_t>();
    message.place = reader.get<SegmentPlace>();
    message.bytes = reader.get<uint64_t>();
    if (!reader.at_end())
        return fail(Code::invalid, "shm: malformed message of {} bytes and kind {}", in.size(),
                    static_cast<int>(message.kind))
            .advice(same_version);
    return message;
}

Result<GroupAnswer> decode_answer(ByteView in) {
    ByteReader reader(in);
    GroupAnswer answer;
    answer.code = reader.get_enum(Code::ok, Code::no_memory);
    answer.place = reader.get<SegmentPlace>();
    answer.bells = reader.get<uint64_t>();
    answer.first_segment = reader.get<uint32_t>();
    const auto segments = reader.get<uint32_t>();
    for (uint32_t i = 0; i < segments && reader.ok(); ++i)
        answer.segment_bytes.push_back(reader.get<uint64_t>());
    answer.text = reader.get_text(max_frame_bytes);
    if (!reader.at_end())
        return fail(Code::invalid, "shm: malformed answer of {} bytes", in.size())
            .advice(same_version);
    return answer;
}

Result<BoardAnswer> decode_board_answer(ByteView in) {
    ByteReader reader(in);
    BoardAnswer answer;
    answer.code = reader.get_enum(Code::ok, Code::no_memory);
    answer.row = reader.get<uint32_t>();
    answer.rows = reader.get<uint32_t>();
    answer.text = reader.get_text(max_frame_bytes);
    const bool valid =
        answer.code != Code::ok || (answer.row < answer.rows && answer.rows <= board_most_rows);
    if (!reader.at_end() || !valid)
        return fail(Code::invalid,
                    "shm: malformed answer of {} bytes to a request for row {} of {}", in.size(),
                    answer.row, answer.rows)
            .advice(same_version);
    return answer;
}

}  // namespace tutti::shm
