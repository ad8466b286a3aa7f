// The ranks of a stand-in communicator, threads or processes, share a file that each maps.
// Collectives take turns, in which every rank publishes, reads and confirms; messages go through
// mailboxes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace fake_nccl {

constexpr int most_ranks = 8;
constexpr std::size_t area_bytes = std::size_t{8} << 20, piece_bytes = 32 * 1024;

/// The collective that a rank calls.
struct Called {
    int kind = 0, dtype = 0, op = 0, root = 0;
    uint64_t count = 0;
};

/// From one rank to another, piece by piece; no other rank takes part.
struct Mailbox {
    std::atomic<int> full{0};
    uint64_t bytes = 0;
    bool last = false;  // of its message
    std::byte data[piece_bytes];
};

struct Seat {
    std::atomic<int> joined{0};
    std::atomic<int> left{0};
    std::atomic<int> windows{0};
    std::atomic<int> begun{0};  // its first collective
    // The splits that it has published and read; the last one's colour and key.
    std::atomic<int> splits{0}, splits_read{0};
    int color = 0, key = 0;
    char meeting[128] = {};  // of those whose first this rank is
    char device[32] = {};
    std::atomic<uint64_t> published{0}, finished{0};
    Called called;
};

struct Table {
    Seat seats[most_ranks];
    Mailbox boxes[most_ranks][most_ranks];  // sender's, receiver's
};

class SharedRanks {
public:
    static std::string make();  // a new file's path
    struct Meeting {
        std::string path;
        int rank = 0, size = 1;
    };
    /// Waits for the colors and keys of all ranks. Orders by key, then by rank. The result has size
    /// 0 if stop() ended the wait.
    Meeting split(int color, int key, const std::function<bool()>& stop);
    SharedRanks(const std::string& path, int rank, int size);
    ~SharedRanks();
    SharedRanks(const SharedRanks&) = delete;

    Seat& seat(int rank) const { return table_->seats[rank]; }
    Seat& own() const { return seat(rank_); }
    Mailbox& box(int from, int to) const { return table_->boxes[from][to]; }
    std::byte* area(int rank) const { return areas_ + static_cast<std::size_t>(rank) * area_bytes; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    template <typename Test>
    bool all(Test test) const {
        for (int r = 0; r < size_; ++r)
            if (!test(seat(r))) return false;
        return true;
    }

private:
    const std::string path_;
    const int rank_, size_;
    std::size_t mapped_ = 0;
    Table* table_ = nullptr;
    std::byte* areas_ = nullptr;
};

}  // namespace fake_nccl
