// Decodes arbitrary messages of shared-memory peers, as their Unix sockets carry them.
#include "fuzz/catalog.h"
#include "transports/shm/wire.h"

namespace tutti::fuzz {
namespace {

using namespace shm;

template <typename AnyResult>
void same(const AnyResult& decoded, ByteView input) {
    if (decoded) require(as_text(encode(*decoded)) == as_text(input), "a message has two forms");
}

Bytes with_kind(uint8_t kind, const Bytes& message) {
    return joined({Bytes(1, std::byte{kind}), message});
}

}  // namespace

// The first byte says as what the rest comes.
void run_shm(ByteView input) {
    Input in(input.first(std::min<std::size_t>(input.size(), 1 + max_frame_bytes)));
    const auto kind = in.get<uint8_t>() % 4;
    const ByteView rest = in.rest();
    if (kind == 0) return same(decode_hello(rest), rest);
    if (kind == 1) return same(decode_pair_message(rest), rest);
    if (kind == 3) {
        const auto row = decode_board_answer(rest);
        if (row && row->text.empty()) same(row, rest);
        return;
    }
    const auto answer = decode_answer(rest);
    // A longer text is cut when it is encoded.
    if (answer && answer->text.empty()) same(answer, rest);
}

std::vector<Bytes> seeds_shm() {
    const ShmHello pair{.kind = HelloKind::pair, .rank = 3};
    const ShmHello group{.kind = HelloKind::group,
                         .rank = 1,
                         .comm = 7,
                         .size = 4,
                         .streams = 2,
                         .segments = 1,
                         .bells = 5};
    const PairMessage channel{
        .kind = PairMessageKind::channel, .comm = 7, .lane = 3, .place = {1, 2}};
    const PairMessage segment{.kind = PairMessageKind::segment, .place = {1, 0}, .bytes = 16 << 20};
    const GroupAnswer taken{
        .place = {0, 1}, .first_segment = 0, .segment_bytes = {16 << 20, 64 << 20}, .bells = 3};
    const GroupAnswer refused{.code = Code::invalid, .text = "its size is another"};
    const BoardAnswer row{.row = 2, .rows = 4};
    const BoardAnswer no_row{.code = Code::unsupported, .text = "all rows are taken"};
    return {with_kind(0, encode(pair)),    with_kind(0, encode(group)),
            with_kind(1, encode(channel)), with_kind(1, encode(segment)),
            with_kind(2, encode(taken)),   with_kind(2, encode(refused)),
            with_kind(3, encode(row)),     with_kind(3, encode(no_row))};
}

}  // namespace tutti::fuzz
