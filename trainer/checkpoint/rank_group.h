// Messages among the ranks that save or restore together; one rank without a communicator.
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

    /// Every rank's text, at rank 0; empty on other ranks. MISMATCH if ranks give different names
    /// of their operation. Only this call has the communicator's deadline, because other ranks may
    /// never make it. Later calls have none.
    Result<std::vector<std::string>> begin_and_gather(const char* name,
                                                      const std::string& text) const;
    /// Rank 0's text, or its error, on every rank.
    Result<std::string> broadcast(Result<std::string> text) const;
    Result<> broadcast(std::span<std::byte> bytes) const;
    Result<> send(std::span<const std::byte> bytes, int rank) const;
    Result<> receive(std::span<std::byte> bytes, int rank) const;
    /// Every rank gives its result; all return the error of the lowest rank that has one.
    Result<> agree(const Result<>& own) const;

private:
    Result<std::vector<std::string>> gather(const std::string& text) const;
    tutti_comm* comm_;
    int rank_;
    int size_;
};

}  // namespace tutti::trainer::checkpoint
