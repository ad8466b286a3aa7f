// PMI-1's wire: a line "cmd=name key=value …" for each request, and one for its answer.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "base/fd.h"
#include "net/serving.h"
#include "rendezvous/key_space.h"

namespace tutti {
namespace {

constexpr std::string_view pmi_key = "tutti-store";
constexpr std::size_t longest_pmi_line = 4096;
constexpr std::string_view without_launcher =
    "set TUTTI_STORE, so that the ranks find each other without the launcher";

class Pmi {
public:
    Pmi(int fd, Deadline deadline) : fd_(fd), deadline_(deadline) {}

    /// The answer's fields; "rc" other than 0 is an error.
    Result<std::string> ask(const std::string& request, std::string_view answer);

private:
    Result<> send(std::string_view line);
    Result<std::string> receive();
    Result<> wait(short events);

    const int fd_;
    const Deadline deadline_;
};

// " name=value" in a line; empty: not there.
std::string pmi_field(const std::string& line, std::string_view name) {
    const std::string begin = fmt::format(" {}=", name);
    const auto at = line.find(begin);
    if (at == std::string::npos) return {};
    const auto from = at + begin.size();
    return line.substr(from, line.find(' ', from) - from);
}

Result<> Pmi::wait(short events) {
    while (true) {
        pollfd entry{fd_, events, 0};
        if (net::poll_serving(&entry, static_cast<int>(deadline_.left_ms(100))) > 0) return {};
        if (deadline_.passed() || net::wait_cancelled())
            return fail(Code::timeout, "timed out waiting for MPICH's launcher to answer on PMI_FD")
                .advice("check that all ranks of the job have begun to join");
    }
}

Result<> Pmi::send(std::string_view line) {
    while (!line.empty()) {
        TUTTI_TRY(wait(POLLOUT));
        const ssize_t sent = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (sent < 0) return fail_errno(errno, "cannot write to MPICH's launcher (PMI_FD)");
        line.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
}

// Reads byte by byte, because bytes after the line belong to the next reader.
Result<std::string> Pmi::receive() {
    std::string line;
    while (line.size() < longest_pmi_line) {
        TUTTI_TRY(wait(POLLIN));
        char c = 0;
        const ssize_t got = ::recv(fd_, &c, 1, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return fail_errno(errno, "cannot read from MPICH's launcher (PMI_FD)");
        if (got == 0)
            return fail(Code::system, "MPICH's launcher has closed PMI_FD")
                .advice(without_launcher);
        if (c == '\n') return " " + line;
        line += c;
    }
    return fail(Code::system, "MPICH's launcher sent a line without an end on PMI_FD")
        .advice(without_launcher);
}

Result<std::string> Pmi::ask(const std::string& request, std::string_view answer) {
    TUTTI_TRY(send(request + "\n"));
    TUTTI_ASSIGN(std::string line, receive());
    const std::string status = pmi_field(line, "rc");
    if (pmi_field(line, "cmd") != answer || (!status.empty() && status != "0"))
        return fail(Code::system, "MPICH's launcher answered '{}' with '{}'", request,
                    line.substr(1))
            .advice(without_launcher);
    return line;
}

// The launcher ends the whole job if a process that has used PMI ends without "finalize". By then
// MPI may have finalized and closed the descriptor, and its number may be another file's, so this
// keeps a copy.
void end_pmi_at_exit(int fd) {
    static std::mutex mutex;
    static UniqueFd copy;
    static pid_t owner;
    const std::lock_guard lock(mutex);
    if (copy) return;
    copy = UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    owner = ::getpid();
    std::atexit([] {
        constexpr int patience_ms = 1000;
        if (owner != ::getpid()) return;
        (void)Pmi(copy.get(), Deadline::after_ms(patience_ms)).ask("cmd=finalize", "finalize_ack");
    });
}

}  // namespace

Result<std::string> share_over_pmi(const GetEnv& get_env, Rank rank, const std::string& value,
                                   Deadline deadline) {
    const char* number = get_env("PMI_FD");
    if (!number)
        return fail(Code::invalid, "PMI_FD is not set")
            .advice("start the ranks with mpiexec, or set TUTTI_STORE");
    const int fd = std::atoi(number);
    end_pmi_at_exit(fd);
    Pmi pmi(fd, deadline);
    TUTTI_ASSIGN(const std::string space, pmi.ask("cmd=get_my_kvsname", "my_kvsname"));
    const std::string place =
        fmt::format("kvsname={} key={}", pmi_field(space, "kvsname"), pmi_key);
    if (rank == 0)
        TUTTI_TRY(pmi.ask(fmt::format("cmd=put {} value={}", place, value), "put_result"));
    TUTTI_TRY(pmi.ask("cmd=barrier_in", "barrier_out"));
    TUTTI_ASSIGN(const std::string found, pmi.ask("cmd=get " + place, "get_result"));
    return pmi_field(found, "value");
}

}  // namespace tutti
