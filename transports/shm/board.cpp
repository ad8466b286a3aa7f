#include "transports/shm/board.h"

#include <cassert>

#include "base/bytes.h"
#include "transport/mapped/segments.h"

namespace tutti::shm {
namespace {

struct alignas(cache_line_bytes) Header {
    std::atomic<uint32_t> changes;
};

constexpr std::size_t words_offset(uint32_t rows) {
    return round_up(sizeof(Header) + rows * sizeof(BoardRow), cache_line_bytes);
}

constexpr std::size_t board_bytes(uint32_t rows) {
    return round_up(words_offset(rows) + std::size_t{rows} * rows * sizeof(LifeWord), page_bytes);
}

}  // namespace

Result<Board> Board::make(uint32_t rows) {
    assert(rows > 0 && rows <= board_most_rows);
    const std::size_t bytes = board_bytes(rows);
    TUTTI_ASSIGN(SharedMemory memory, make_shared_memory("tutti-board", bytes, bytes));
    return Board(std::move(memory.data), rows, std::move(memory.fd));
}

Result<Board> Board::map(UniqueFd fd, uint32_t rows) {
    TUTTI_ASSIGN(auto data, map_shared_memory(fd.get(), board_bytes(rows)));
    return Board(std::move(data), rows, UniqueFd());
}

std::atomic<uint32_t>& Board::changes() const {
    return reinterpret_cast<Header*>(data_.get())->changes;
}

BoardRow& Board::row(uint32_t row) const {
    assert(row < rows_);
    return reinterpret_cast<BoardRow*>(data_.get() + sizeof(Header))[row];
}

std::span<LifeWord> Board::words(uint32_t owner) const {
    assert(owner < rows_);
    auto* const first = reinterpret_cast<LifeWord*>(data_.get() + words_offset(rows_));
    return {first + std::size_t{owner} * rows_, rows_};
}

}  // namespace tutti::shm
