#include "base/result.h"

#include <cerrno>
#include <cstring>

namespace tutti {

std::string_view code_name(Code code) {
    static constexpr std::string_view names[] = {
        "ok",      "in progress", "invalid argument", "mismatch", "timeout",   "peer lost",
        "aborted", "unsupported", "authentication",   "system",   "no memory", "revoked"};
    const auto index = static_cast<std::size_t>(code);
    return index < std::size(names) ? names[index] : "unknown";
}

namespace {

// The advice for an error that has none of its own.
std::string code_advice(const Error& error) {
    const bool named = error.rank != nobody;
    const std::string culprit = named ? fmt::format("rank {}", error.rank) : "the other ranks";
    switch (error.code) {
        case Code::invalid:
            return "correct the argument or the setting and call again";
        case Code::mismatch:
            return "make every rank call the same collectives with the same arguments in the same "
                   "order; this communicator goes on working";
        case Code::timeout:
            return fmt::format("look at what {} {}; if {} only slow, raise TUTTI_TIMEOUT_MS",
                               culprit, named ? "does" : "do", named ? "it is" : "they are");
        case Code::peer_lost:
            return fmt::format(
                "read the output of {}, whose end is the cause, then restart the job, or go on "
                "without it (tutti_comm_shrink)",
                culprit);
        case Code::aborted:
            return fmt::format("look at why {} aborted, then make a new communicator", culprit);
        case Code::revoked:
            return "call tutti_comm_shrink for a communicator of the ranks that remain";
        case Code::unsupported:
            return "use what the documentation lists, or a build of tutti that has this feature";
        case Code::auth:
            return "give every process of the job the same TUTTI_SECRET and TUTTI_JOB";
        case Code::no_memory:
            return "free memory or lower the limits of what uses it, and retry";
        default:
            return "look at the limits (ulimit -a) and the log of the machine (dmesg)";
    }
}

// The advice for a system call that failed because a limit of the process or the machine is
// reached.
std::string_view errno_advice(int number) {
    switch (number) {
        case EMFILE:
            return "raise this process's limit of open files (ulimit -n)";
        case ENFILE:
            return "raise the machine's limit of open files (sysctl fs.file-max)";
        case EAGAIN:
            return "raise the limit of processes and threads (ulimit -u, pids.max)";
        case EACCES:
        case EPERM:
            return "give this user the permission, or allow the system call in the container";
        case ENOSPC:
            return "free space on that file system";
        case EFBIG:
            return "raise the limit of file sizes (ulimit -f)";
        default:
            return {};
    }
}

}  // namespace

std::string error_text(const Error& error) {
    std::string text = error.message;
    if (error.reporter != nobody) text.insert(0, fmt::format("rank {}: ", error.reporter));
    if (text.find(advice_marker) != std::string::npos) return text;
    return text.append(advice_marker)
        .append(error.advice.empty() ? code_advice(error) : error.advice);
}

ErrorResult fail_errno(int saved_errno, std::string_view what) {
    char text[128];
    const char* reason = strerror_r(saved_errno, text, sizeof text);
    const Code code = saved_errno == ENOMEM ? Code::no_memory : Code::system;
    return ErrorResult({code, nobody, saved_errno, fmt::format("{}: {}", what, reason),
                        std::string(errno_advice(saved_errno))});
}

ErrorResult wrap(Error error, std::string_view doing) {
    error.message = fmt::format("{}: {}", doing, error.message);
    return ErrorResult(std::move(error));
}

Error on_rank(Rank reporter, Error error) {
    if (error.reporter == nobody) error.reporter = reporter;
    return error;
}

}  // namespace tutti
