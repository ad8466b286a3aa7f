// Fills a call's input buffers and counts the wrong elements in its output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "contents.h"
#include "data.h"

namespace bench {

class Checker {
public:
    explicit Checker(int ranks) : ranks_(ranks) {}

    /// Fills memory with patterns of the call's type and operator.
    void fill(std::byte* memory, const Contents& contents, const Call& call);
    uint64_t count_wrong(const std::byte* memory, const Contents& contents, const Call& call);

private:
    const Pattern& pattern_of(const ContentRange& range, const Call& call);

    int ranks_;
    tutti_dtype dtype_ = -1;  // of the patterns
    tutti_op op_ = -1;
    std::map<std::pair<Source, int>, Pattern> patterns_;
};

}  // namespace bench
