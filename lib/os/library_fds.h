// Descriptors that a foreign library opens in this process without close-on-exec. Its sockets would
// stay open in every program that this one executes, which hides the end of this process from its
// peers and keeps its ports taken.
#pragma once

#include <vector>

namespace tutti {

class LibraryFds {
public:
    /// Before the library opens anything: what there is already is not its own.
    LibraryFds();
    /// Afterwards. Takes what is new for the library's, of sockets, pipes and what has no name:
    /// another thread of the program that opens one of these at this moment gets close-on-exec.
    void take_new();
    /// Marks what the library's epolls watch by now: connections that were made since, whoever made
    /// them. It reads /proc, so it is nothing for each call; without /proc it does nothing.
    void mark() const;

private:
    std::vector<int> before_;
    std::vector<int> polls_;
};

}  // namespace tutti
