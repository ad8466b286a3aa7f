#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/errno_class.h"
#include "net/serving.h"
#include "net/socket.h"
#include "wait/pace.h"

namespace tutti::net {
namespace {

constexpr std::size_t max_fds = 253;  // the kernel's SCM_MAX_FD

ErrorResult closed(int saved_errno) {
    return ErrorResult(
        {Code::peer_lost, nobody, saved_errno, "the other side closed the connection"});
}

ErrorResult transfer_failed(int saved_errno, std::string_view doing) {
    if (classify_errno(saved_errno) == ErrnoClass::peer) return closed(saved_errno);
    return fail_errno(saved_errno, doing);
}

struct TransferProgress {
    std::string_view verb;  // "sent", "received"
    std::size_t done;
    std::size_t total;
};

// Waits until the socket is ready (or broken, which the next transfer reports), or the deadline.
Result<> wait_ready(int fd, short events, Deadline deadline, const TransferProgress& progress) {
    pollfd waiting{.fd = fd, .events = events, .revents = 0};
    while (true) {
        const int ready = poll_serving(&waiting, static_cast<int>(deadline.left_ms(60'000)));
        if (ready > 0) return {};
        if (ready < 0 && errno != EINTR)
            return fail_errno(errno, "cannot wait for a connection (poll)");
        if (deadline.passed() || wait_cancelled())
            return fail(Code::timeout, "timed out: {} only {} of {} bytes", progress.verb,
                        progress.done, progress.total);
    }
}

bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK;
}

using Control = std::array<char, CMSG_SPACE(sizeof(int) * max_fds)>;

// Takes ownership of every received descriptor before anything can fail.
std::vector<UniqueFd> take_fds(msghdr& message) {
    std::vector<UniqueFd> fds;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            fds.emplace_back(fd);
        }
    }
    return fds;
}

Bytes frame_of(ByteView body) {
    ByteWriter writer;
    writer.put_text(as_text(body));
    return writer.take();
}

Result<> check_frame(ByteView body) {
    if (body.size() > std::numeric_limits<uint32_t>::max() - sizeof(uint32_t))
        return fail(Code::invalid, "a frame of {} bytes does not fit its 32-bit length",
                    body.size())
            .advice("send less than 4 GiB in one frame");
    return {};
}

Result<Bytes> recv_body(int fd, uint32_t bytes, std::size_t max_bytes, Deadline deadline) {
    if (bytes > max_bytes)
        return fail(Code::invalid,
                    "the other side announced a frame of {} bytes, over the limit of {}", bytes,
                    max_bytes)
            .advice("check that the other side belongs to this job and has the same tutti version");
    Bytes body(bytes);
    TUTTI_TRY(recv_all(fd, body, deadline));
    return body;
}

}  // namespace

Result<> send_all(int fd, ByteView data, Deadline deadline) {
    std::size_t done = 0;
    while (done < data.size()) {
        const ssize_t sent = send(fd, data.data() + done, data.size() - done, MSG_NOSIGNAL);
        if (sent >= 0) {
            done += static_cast<std::size_t>(sent);
        } else if (would_block(errno)) {
            TUTTI_TRY(wait_ready(fd, POLLOUT, deadline, {"sent", done, data.size()}));
        } else if (errno != EINTR) {
            return transfer_failed(errno, "cannot send");
        }
    }
    return {};
}

Result<> recv_all(int fd, std::span<std::byte> data, Deadline deadline) {
    std::size_t done = 0;
    while (done < data.size()) {
        const ssize_t got = recv(fd, data.data() + done, data.size() - done, 0);
        if (got > 0) {
            done += static_cast<std::size_t>(got);
        } else if (got == 0) {
            return closed(0);
        } else if (would_block(errno)) {
            TUTTI_TRY(wait_ready(fd, POLLIN, deadline, {"received", done, data.size()}));
        } else if (errno != EINTR) {
            return transfer_failed(errno, "cannot receive");
        }
    }
    return {};
}

Result<> send_frame(int fd, ByteView body, Deadline deadline) {
    TUTTI_TRY(check_frame(body));
    return send_all(fd, frame_of(body), deadline);
}

Result<Bytes> recv_frame(int fd, std::size_t max_bytes, Deadline deadline) {
    uint32_t bytes = 0;
    TUTTI_TRY(recv_all(fd, std::as_writable_bytes(std::span(&bytes, 1)), deadline));
    return recv_body(fd, bytes, max_bytes, deadline);
}

Result<> send_fds(int socket, std::span<const int> fds, ByteView body, Deadline deadline) {
    TUTTI_TRY(check_frame(body));
    if (fds.size() > max_fds)
        return fail(Code::invalid, "{} file descriptors in one message are over the limit of {}",
                    fds.size(), max_fds)
            .advice("send at most {} file descriptors in one message", max_fds);
    if (fds.empty()) return send_frame(socket, body, deadline);
    const Bytes frame = frame_of(body);
    alignas(cmsghdr) Control control{};
    iovec part{.iov_base = const_cast<std::byte*>(frame.data()), .iov_len = frame.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    Pace others_take(deadline, {.sleep_us = 1000});
    while (true) {
        // The descriptors go with the first byte; the rest may need further turns.
        const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent >= 0)
            return send_all(socket, ByteView(frame).subspan(static_cast<std::size_t>(sent)),
                            deadline);
        if (would_block(errno)) {
            TUTTI_TRY(wait_ready(socket, POLLOUT, deadline, {"sent", 0, frame.size()}));
        } else if (errno == ETOOMANYREFS && others_take.pause()) {
            continue;  // this user's limit of descriptors in flight is reached, until receivers
                       // take some
        } else if (errno != EINTR) {
            return transfer_failed(errno, "cannot send file descriptors");
        }
    }
}

Result<FdMessage> recv_fds(int socket, std::size_t max_bytes, Deadline deadline) {
    uint32_t bytes = 0;
    alignas(cmsghdr) Control control{};
    iovec part{.iov_base = &bytes, .iov_len = sizeof bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ssize_t got = -1;
    while (got < 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (got >= 0 || errno == EINTR) continue;
        if (!would_block(errno)) return transfer_failed(errno, "cannot receive file descriptors");
        TUTTI_TRY(wait_ready(socket, POLLIN, deadline, {"received", 0, sizeof bytes}));
    }
    FdMessage out{.body = {}, .fds = take_fds(message)};
    if (got == 0) return closed(0);
    if ((message.msg_flags & MSG_CTRUNC) != 0)
        return fail_errno(
            EMFILE,
            fmt::format("only {} of the file descriptors sent could be received", out.fds.size()));
    const auto rest = std::as_writable_bytes(std::span(&bytes, 1));
    TUTTI_TRY(recv_all(socket, rest.subspan(static_cast<std::size_t>(got)), deadline));
    TUTTI_ASSIGN(out.body, recv_body(socket, bytes, max_bytes, deadline));
    return out;
}

}  // namespace tutti::net
