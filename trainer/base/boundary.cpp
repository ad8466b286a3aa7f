#include "trainer/base/boundary.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

#include "tutti/trainer_errors.h"

namespace tutti::trainer {
namespace {

// The advice for an error without its own.
std::string_view status_advice(tutti_status status) {
    switch (status) {
        case TUTTI_ERR_INVALID:
            return "correct the argument and call again, on every rank";
        case TUTTI_ERR_MISMATCH:
            return "make every rank call the same functions with the same arguments in the same "
                   "order";
        case TUTTI_ERR_TIMEOUT:
            return "look at what the other ranks do; if they are only slow, raise "
                   "TUTTI_TIMEOUT_MS";
        case TUTTI_ERR_PEER_LOST:
            return "read the output of the rank that ended first";
        case TUTTI_ERR_ABORTED:
            return "look at why another rank aborted, then start again";
        case TUTTI_ERR_REVOKED:
            return "make a new trainer on a communicator of the ranks that remain";
        case TUTTI_ERR_UNSUPPORTED:
            return "use a dtype, operator or device that docs/reference/trainer.md lists";
        case TUTTI_ERR_NO_MEMORY:
            return "free memory, or train with less of it";
        default:
            return "look at the limits (ulimit -a) and the log of the machine (dmesg)";
    }
}

// For a failed system call on a file.
std::string_view errno_advice(int number) {
    switch (number) {
        case ENOENT:
            return "check the path: the file, or the folder for a new file, does not exist";
        case ENOTDIR:
        case EISDIR:
            return "check the path: a file was found instead of a folder, or a folder instead of a "
                   "file";
        case EACCES:
        case EPERM:
        case EROFS:
            return "give this user the right to it, or name another path";
        case ENOSPC:
        case EDQUOT:
            return "free space on that file system, or name another path";
        case EFBIG:
            return "raise the limit of a file's size (ulimit -f)";
        case EMFILE:
            return "raise this process's limit of open files (ulimit -n)";
        default:
            return {};
    }
}

constexpr std::string_view marker = ". What to do: ";

}  // namespace

std::string error_text(const Error& error) {
    if (error.message.find(marker) != std::string::npos) return error.message;
    const std::string_view advice =
        error.advice.empty() ? status_advice(error.status) : std::string_view(error.advice);
    return fmt::format("{}{}{}", error.message, marker, advice);
}

std::string without_advice(const std::string& message) {
    return message.substr(0, message.find(marker));
}

Error& last_error() {
    thread_local Error last{TUTTI_OK, -1, -1, {}};
    return last;
}

tutti_status keep(const Error& error) {
    last_error() = error;
    last_error().message = error_text(error);
    return error.status;
}

Error in_function(const char* function, Error error) {
    error.message = fmt::format("{}: {}", function, error.message);
    return error;
}

Error current_exception() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return {TUTTI_ERR_NO_MEMORY, -1, -1, "out of memory"};
    } catch (const std::exception& error) {
        return {TUTTI_ERR_SYSTEM, -1, -1, error.what()};
    } catch (...) {
        return {TUTTI_ERR_SYSTEM, -1, -1, "an exception of unknown type"};
    }
}

ErrorResult fail_errno(int saved_errno, std::string_view what) {
    char text[128];
    // The GNU variant, which may return a constant instead of filling the buffer.
    return fail(saved_errno == ENOMEM ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_SYSTEM, "{}: {}", what,
                strerror_r(saved_errno, text, sizeof text))
        .advice("{}", errno_advice(saved_errno));
}

Result<> from_call(tutti_status status, std::string_view doing) {
    if (status == TUTTI_OK) return {};
    const std::string cause = tutti_last_error();
    return tl::unexpected<Error>(
        Error{status, tutti_last_error_rank(), -1,
              fmt::format("{}: {}", doing, cause.empty() ? tutti_status_string(status) : cause)});
}

Result<> begin_named(tutti_comm* comm, const char* name) {
    if (!comm || tutti_comm_size(comm) == 1) return {};
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.stream = 0;
    opts.name = name;
    tutti_request* request = nullptr;
    TRAINER_TRY(from_call(tutti_ibarrier(comm, &opts, &request), name));
    return from_call(tutti_wait(&request, -1), name);
}

}  // namespace tutti::trainer

extern "C" {
const char* tutti_trainer_last_error(void) {
    return tutti::trainer::last_error().message.c_str();
}
int tutti_trainer_last_error_rank(void) {
    return tutti::trainer::last_error().rank;
}
int tutti_trainer_last_error_device(void) {
    return tutti::trainer::last_error().device;
}
}
