// Watches the processes of the host's other ranks. The end of a socket says that a process has
// ended only once its memory is freed, which may take a tenth of a second; the board (board.h) says
// so before that.
//
// A thread owns this rank's words of the board, and sleeps on the other ranks' words for this one.
// It must be the library's own: the words tell of its end. It needs no other thread, so a rank that
// computes, or whose threads are busy, learns of a death as soon as any other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "os/forks.h"
#include "os/thread.h"
#include "transports/shm/board_join.h"
#include "wait/futex.h"

namespace tutti::shm {

struct EndedProcess {
    Rank rank = nobody;
    std::string cause;
};

/// Any thread may call any function.
class Watch {
public:
    /// Called on the watch's thread, with no lock held.
    using Report = std::function<void(std::span<const EndedProcess>)>;

    Watch(Rank rank, Rank job_size, net::AuthKey key, Report report);
    ~Watch() { join(); }
    Watch(const Watch&) = delete;

    /// A rank of this host asks this one, its leader, for a row.
    void give_row(UniqueFd socket, const ShmHello& hello) {
        host_.answer(std::move(socket), hello);
    }
    /// Begins to watch the ranks of this host, given by their addresses; call it once. If the
    /// system cannot do that, the ends of sockets report deaths, and the log says so.
    void start(std::vector<PeerAddress> peers);
    /// Whether the kernel has reported the end of that rank's process. Then its threads write no
    /// memory any more.
    bool has_ended(Rank rank) const;
    /// The number of ranks that it watches now.
    std::size_t watched() const { return watched_; }
    /// Tells the other ranks that this one ends in order, and reports no more. Waits for the thread
    /// until the deadline, unless it is the calling one.
    void close(Deadline deadline);
    /// After close(): waits until the thread makes no report any more.
    void join();

private:
    void run(const std::vector<PeerAddress>& peers);
    Result<> watch_until_closed(const std::vector<PeerAddress>& peers);
    Result<BoardPlace> find_row(const std::vector<PeerAddress>& peers);
    bool take_row(const BoardPlace& place, uint32_t thread);
    void leave_row();
    void check_row(uint32_t row, std::vector<EndedProcess>& ended);
    void check_word(uint32_t row, Rank rank, std::vector<EndedProcess>& ended);

    const Rank rank_, job_size_;
    const net::AuthKey key_;
    const Report report_;
    const HomeProcess home_;
    BoardHost host_;
    std::atomic<bool> closed_{false};
    std::atomic<uint32_t> wake_{0};  // the thread sleeps on it, too
    std::atomic<std::size_t> watched_{0};
    mutable std::mutex mutex_;  // guards the next four members
    BoardPlace own_;            // no board: this rank has no row, or has left it
    std::set<Rank> ended_;
    bool running_ = false;
    std::condition_variable stopped_;
    // Only the thread uses the next three members.
    BoardPlace place_;
    std::vector<bool> over_;  // by row: its rank has left or ended
    std::vector<futex::WaitedWord> words_;
    Thread thread_;
};

}  // namespace tutti::shm
