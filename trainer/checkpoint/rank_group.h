// The ranks that save or restore together: what they tell each other. Without a communicator, one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/result.h"

namespace tutti::trainer::checkpoint {

class RankGroup {
public:
    explicit RankGroup(tutti_comm* comm)
        : comm_(comm),
          rank_(comm ? tutti_comm_rank(comm) : 0),
          size_(comm ? tutti_comm_size(comm) : 1) {}

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool is_root() const { return rank_ == 0; }

    /// Every rank's text, at rank 0; nothing elsewhere. name is what the ranks are to do: those
    /// that do something else get MISMATCH. The one call that has the communicator's deadline: the
    /// others may not have come to it. What follows waits for as long as it takes.
    Result<std::vector<std::string>> begin_and_gather(const char* name,
                                                      const std::string& text) const;
    /// Rank 0's text, or its error, on every rank.
    Result<std::string> broadcast(Result<std::string> text) const;
    Result<> broadcast(std::span<std::byte> bytes) const;
    Result<> send(std::span<const std::byte> bytes, int rank) const;
    Result<> receive(std::span<std::byte> bytes, int rank) const;
    /// Every rank says how it fared; the error of the lowest rank that has one, on every rank.
    Result<> agree(const Result<>& own) const;

private:
    Result<std::vector<std::string>> gather(const std::string& text) const;
    tutti_comm* comm_;
    int rank_;
    int size_;
};

}  // namespace tutti::trainer::checkpoint
