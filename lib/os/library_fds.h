// Descriptors that a foreign library opens in this process without close-on-exec. Its sockets would
// stay open in every program that this process executes, which hides the end of this process from
// its peers and keeps its ports in use.
#pragma once

#include <vector>

namespace tutti {

class LibraryFds {
public:
    /// Construct before the library opens anything: earlier descriptors are not the library's.
    LibraryFds();
    /// Call afterwards. Treats new sockets, pipes and unnamed descriptors as the library's: if
    /// another thread of the program opens one at this moment, it gets close-on-exec too.
    void take_new();
    /// Marks the descriptors that the library's epolls watch by now: later connections, from either
    /// side. It reads /proc, so do not call it often; without /proc it does nothing.
    void mark() const;

private:
    std::vector<int> before_;
    std::vector<int> polls_;
};

}  // namespace tutti
