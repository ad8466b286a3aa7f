// The board of a job on one host: memory that all its ranks there map, by which each learns at once
// when another's process has ended.
//
//   [header][rows: rank and process][words of row 0][words of row 1]…
//
// A rank has a row. Its thread owns the row's words, one for each other row, since the kernel wakes
// only one sleeper of a word (os/life_words.h). The leader, the lowest rank of the host, makes the
// board and gives the other ranks their rows. It is not needed afterwards.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "os/life_words.h"
#include "transport/mapped/shared_memory.h"

namespace tutti::shm {

/// A thread sleeps on a word of each other rank and two more (futex::most_words).
inline constexpr uint32_t board_most_rows = 126;

/// The rank of a row. Both are 0 until a rank has taken it.
struct BoardRow {
    std::atomic<uint32_t> rank_plus_1;
    std::atomic<int32_t> pid;  // for error messages
};

class Board {
public:
    /// For at most that many ranks. no_memory, system: as make_shared_memory.
    static Result<Board> make(uint32_t rows);
    /// invalid: the memory has another size than that of a board with so many rows.
    static Result<Board> map(UniqueFd fd, uint32_t rows);

    uint32_t rows() const { return rows_; }
    /// -1 if another process has made the board.
    int fd() const { return fd_.get(); }
    /// Grows when a rank has taken its row.
    std::atomic<uint32_t>& changes() const;
    BoardRow& row(uint32_t row) const;
    std::span<LifeWord> words(uint32_t owner) const;

private:
    Board(std::shared_ptr<std::byte> data, uint32_t rows, UniqueFd fd)
        : rows_(rows), fd_(std::move(fd)), data_(std::move(data)) {}

    uint32_t rows_;
    UniqueFd fd_;
    std::shared_ptr<std::byte> data_;
};

}  // namespace tutti::shm
