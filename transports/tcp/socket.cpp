#include "transports/tcp/socket.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/errno_class.h"
#include "wait/reactor.h"

namespace tutti::tcp {
namespace {

constexpr uint32_t always_watched = EPOLLIN | EPOLLRDHUP;

}  // namespace

Result<> DataSocket::watch(std::function<void(uint32_t)> on_events) {
    return reactor_->add(fd_.get(), always_watched, std::move(on_events));
}

void DataSocket::unwatch() {
    reactor_->remove(fd_.get());
}

void DataSocket::watch_output(bool on) {
    if (on == output_watched_) return;
    output_watched_ = on;
    reactor_->modify(fd_.get(), always_watched | (on ? uint32_t{EPOLLOUT} : uint32_t{0}));
}

void DataSocket::count_unsent(bool is) {
    if (is == unsent_) return;
    unsent_ = is;
    if (unsent_count_) unsent_count_->fetch_add(is ? 1 : -1);
}

void DataSocket::finish_sending() {
    if (!std::exchange(finished_, true)) ::shutdown(fd_.get(), SHUT_WR);
}

bool DataSocket::is_acknowledged() const {
    int unacknowledged = 0;
    return ::ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

bool DataSocket::is_over() const {
    std::byte first;
    const ssize_t got = ::recv(fd_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && classify_errno(errno) == ErrnoClass::peer);
}

void DataSocket::shut_down() {
    unwatch();
    ::shutdown(fd_.get(), SHUT_RDWR);
    count_unsent(false);
}

}  // namespace tutti::tcp
