#include "transports/shm/watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "net/serving.h"
#include "os/signals.h"

namespace tutti::shm {
namespace {

constexpr int64_t asking_ms = 10'000;
constexpr int64_t watch_close_ms = 1000;
constexpr std::size_t own_words = futex::most_words - board_most_rows;
constexpr uint32_t marks = LifeWord::died | LifeWord::watched;

}  // namespace

Watch::Watch(Rank rank, Rank job_size, net::AuthKey key, Report report)
    : rank_(rank),
      job_size_(job_size),
      key_(std::move(key)),
      report_(std::move(report)),
      host_(job_size) {}

void Watch::join() {
    close(Deadline::after_ms(watch_close_ms));
    if (home_.here())
        thread_.join();
    else
        thread_.detach();
}

void Watch::start(std::vector<PeerAddress> peers) {
    if (peers.empty() || closed_) return;
    const NoSignals for_the_thread;
    running_ = true;
    auto thread = Thread::start("the thread that watches other processes",
                                [this, peers = std::move(peers)] { run(peers); });
    if (thread) {
        thread_ = std::move(*thread);
        return;
    }
    running_ = false;
    log::info("rank {}: {}", rank_, thread.error().message);
}

void Watch::run(const std::vector<PeerAddress>& peers) {
    if (const auto watched = watch_until_closed(peers); !watched && !closed_)
        log::info(
            "rank {}: learns of the end of a process of this host by its sockets' ends, late if "
            "the process has much memory: {}",
            rank_, error_text(watched.error()));
    leave_row();
    const std::lock_guard lock(mutex_);
    running_ = false;
    stopped_.notify_all();
}

Result<BoardPlace> Watch::find_row(const std::vector<PeerAddress>& peers) {
    const auto lowest = std::min_element(
        peers.begin(), peers.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (rank_ < lowest->rank) return host_.place(rank_);
    return ask_for_row(rank_, *lowest, key_, Deadline::after_ms(asking_ms));
}

Result<> Watch::watch_until_closed(const std::vector<PeerAddress>& peers) {
    if (!futex::can_sleep_on_any())
        return fail(Code::unsupported, "the system call futex_waitv is missing or forbidden")
            .advice("use Linux 5.16 or newer, and allow the call in the seccomp filter");
    const net::CancelWaitsWhen closing(closed_);
    TUTTI_ASSIGN(place_, find_row(peers));
    const Board& board = *place_.board;
    TUTTI_ASSIGN(const auto own, OwnedLifeWords::take(board.words(place_.row)));
    if (!take_row(place_, own->owner())) return {};
    over_.assign(board.rows(), false);
    over_[place_.row] = true;
    while (!closed_) {
        words_.clear();
        words_.push_back({&wake_, 0, false});
        words_.push_back({&board.changes(), board.changes().load(), true});
        std::vector<EndedProcess> ended;
        for (uint32_t row = 0; row < board.rows(); ++row)
            if (!over_[row]) check_row(row, ended);
        watched_ = words_.size() - own_words;
        if (!ended.empty())
            report_(ended);
        else if (!futex::sleep_on_any(words_))
            return fail_errno(errno, "waiting for the end of other processes");
    }
    // Before this thread gives the words up: they would tell of its end.
    leave_row();
    return {};
}

bool Watch::take_row(const BoardPlace& place, uint32_t thread) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    own_ = place;
    for (LifeWord& word : place.board->words(place.row)) word.value.store(thread);
    BoardRow& row = place.board->row(place.row);
    row.pid.store(::getpid());
    // Read first: a rank that sees the row taken sees its words.
    row.rank_plus_1.store(static_cast<uint32_t>(rank_) + 1);
    place.board->changes().fetch_add(1);
    futex::wake_all(place.board->changes(), true);
    return true;
}

void Watch::leave_row() {
    BoardPlace own;
    {
        const std::lock_guard lock(mutex_);
        std::swap(own, own_);
    }
    if (!own.board) return;
    for (LifeWord& word : own.board->words(own.row))
        if ((word.value.exchange(LifeWord::left) & LifeWord::watched) != 0)
            futex::wake_all(word.value, true);
}

void Watch::check_row(uint32_t row, std::vector<EndedProcess>& ended) {
    const uint32_t taken = place_.board->row(row).rank_plus_1.load();
    if (taken == 0) return;
    // Another process has written the number.
    const auto rank = static_cast<Rank>(taken - 1);
    if (rank < 0 || rank >= job_size_ || rank == rank_) {
        over_[row] = true;
        return;
    }
    check_word(row, rank, ended);
}

void Watch::check_word(uint32_t row, Rank rank, std::vector<EndedProcess>& ended) {
    std::atomic<uint32_t>& word = place_.board->words(row)[place_.row].value;
    uint32_t value = word.load();
    while ((value & ~LifeWord::watched) != LifeWord::left && (value & LifeWord::died) == 0) {
        if ((value & LifeWord::watched) != 0 ||
            word.compare_exchange_weak(value, value | LifeWord::watched)) {
            words_.push_back({&word, value | LifeWord::watched, true});
            return;
        }
    }
    over_[row] = true;
    if ((value & ~marks) != 0) return;  // it has left in order
    {
        const std::lock_guard lock(mutex_);
        ended_.insert(rank);
    }
    ended.push_back({rank, fmt::format("shm: process {} has ended without a goodbye, as the kernel "
                                       "reports (its own log may have the reason)",
                                       place_.board->row(row).pid.load())});
}

bool Watch::has_ended(Rank rank) const {
    const std::lock_guard lock(mutex_);
    return ended_.contains(rank);
}

void Watch::close(Deadline deadline) {
    // A forked child has the parent's board, but not its thread.
    if (!home_.here()) return;
    closed_ = true;
    leave_row();
    wake_.store(1);
    futex::wake_all(wake_, false);
    if (thread_.is_this()) return;
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(watch_close_ms)),
                      [this] { return !running_; });
}

}  // namespace tutti::shm
