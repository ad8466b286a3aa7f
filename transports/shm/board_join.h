// The ranks of a host get rows of its board: one request each to the leader.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "net/auth.h"
#include "transport/transport.h"
#include "transports/shm/board.h"
#include "transports/shm/wire.h"

namespace tutti::shm {

/// This rank's row.
struct BoardPlace {
    std::shared_ptr<Board> board;
    uint32_t row = 0;
};

/// The leader's side: gives each rank that asks a row, and makes the board for the first of them.
/// Any thread; the reactor's answers requests.
class BoardHost {
public:
    explicit BoardHost(Rank job_size) : job_size_(job_size) {}

    void answer(UniqueFd socket, const ShmHello& hello);
    /// The leader's own row. A rank that asks again gets the same row.
    Result<BoardPlace> place(Rank rank);

private:
    const Rank job_size_;
    std::mutex mutex_;
    std::shared_ptr<Board> board_;
    std::map<Rank, uint32_t> rows_;
};

/// The other ranks' side. Blocks at most until the deadline.
Result<BoardPlace> ask_for_row(Rank rank, const PeerAddress& leader, const net::AuthKey& key,
                               Deadline deadline);

}  // namespace tutti::shm
