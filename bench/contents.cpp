#include "contents.h"

namespace bench {
namespace {

std::size_t own_block_at(const Call& call, Seat seat) {
    return static_cast<std::size_t>(seat.rank) * call.count;
}

int ranks_combined(const Collective& collective, Seat seat) {
    if (collective.combines == Combines::all) return seat.ranks;
    return collective.combines == Combines::up_to_own ? seat.rank + 1 : seat.rank;
}

Contents result_of(const Call& call, Seat seat) {
    const Collective& c = *call.collective;
    const std::size_t first = c.in.row ? own_block_at(call, seat) : 0;
    if (c.reduces()) return {{Source::combined, ranks_combined(c, seat), first, call.count}};
    if (!c.out.row) return {{Source::input, call.root, first, call.count}};
    Contents row;
    for (int from = 0; from < seat.ranks; ++from)
        row.push_back({Source::input, from, first, call.count});
    return row;
}

Contents with_own_block(const ContentRange& row, const ContentRange& own, std::size_t at) {
    ContentRange head = row, tail = row;
    head.count = at;
    tail.first += at + own.count;
    tail.count -= at + own.count;
    return {head, own, tail};
}

}  // namespace

Layout layout_of(const Call& call, Seat seat, bool in_place) {
    const Collective& c = *call.collective;
    const ContentRange input{Source::input, seat.rank, 0, elements_of(c.in, call, seat.ranks)};
    const ContentRange poison{Source::poison, 0, 0, elements_of(c.out, call, seat.ranks)};
    // If the collective has no output on this rank, the call must leave the memory as it is.
    const Contents result = has(c.out, call, seat) ? result_of(call, seat) : Contents{poison};
    if (!in_place) return {.in = {input}, .before = {poison}, .after = result};
    if (!has(c.out, call, seat)) return {.in = {}, .before = {input}, .after = {input}};
    if (!has(c.in, call, seat)) return {.in = {}, .before = {poison}, .after = result};
    if (c.in.row == c.out.row) return {.in = {}, .before = {input}, .after = result};
    const std::size_t at = own_block_at(call, seat);
    if (c.out.row) return {.in = {}, .before = with_own_block(poison, input, at), .after = result};
    return {.in = {}, .before = {input}, .after = with_own_block(input, result.front(), at)};
}

Buffers place(const Call& call, Seat seat, std::byte* in, std::byte* out) {
    const Collective& c = *call.collective;
    if (in != out || c.in.row == c.out.row) return {in, out};
    if (!has(c.out, call, seat)) return {in, nullptr};
    if (!has(c.in, call, seat)) return {nullptr, out};
    const std::size_t at = own_block_at(call, seat) * tutti_dtype_size(call.dtype);
    return c.out.row ? Buffers{in + at, out} : Buffers{in, out + at};
}

}  // namespace bench
