// The process that has taken a rank's number, as its claim in the store names it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace tutti {

struct RankOwner {
    std::string machine;         // this boot of it
    uint64_t pid_namespace = 0;  // elsewhere the same number is another process; 0: not known
    pid_t pid = 0;
    uint64_t start_ticks = 0;  // since the machine's; a later process of that number has another

    static RankOwner this_process(std::string machine);
    std::string encode() const;
    /// A malformed text yields an owner on no machine, which never counts as gone.
    static RankOwner decode(const std::string& text);

    /// Whether this process sees the other's number as the other does.
    bool sees(const RankOwner& other) const;
    /// Whether the other has ended, as far as this process can see. Of its own number it is an
    /// earlier program, if that started at another time, or else another rank of this one.
    bool outlived(const RankOwner& other) const;
};

}  // namespace tutti
