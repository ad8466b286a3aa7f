#include "run/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "base/clock.h"

namespace tutti::test {
namespace {

constexpr int patience_ms = 30'000;

struct Pipe {
    Pipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
        read_end = UniqueFd(ends[0]);
        write_end = UniqueFd(ends[1]);
    }
    UniqueFd read_end;
    UniqueFd write_end;
};

// False once the pipe is at its end.
bool read_into(std::string& text, int fd) {
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace

Child::Child(std::vector<std::string> arguments, std::vector<std::string> variables) {
    Pipe out;
    Pipe err;
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
        for (std::string& variable : variables) ::putenv(variable.data());
        // Ignored where the tests run in the background or under nohup: no shell could trap them.
        for (const int number : {SIGINT, SIGHUP}) ::signal(number, SIG_DFL);
        ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
        ::dup2(out.write_end.get(), STDOUT_FILENO);
        ::dup2(err.write_end.get(), STDERR_FILENO);
        ::execv(pointers[0], pointers.data());
        ::_exit(99);
    }
    out_pipe_ = std::move(out.read_end);
    err_pipe_ = std::move(err.read_end);
}

Child::~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

bool Child::read_some(int timeout_ms) {
    // poll() skips negative descriptors.
    pollfd entries[] = {{out_pipe_.get(), POLLIN, 0}, {err_pipe_.get(), POLLIN, 0}};
    if (::poll(entries, 2, timeout_ms) <= 0) return false;
    if (entries[0].revents != 0 && !read_into(out_, out_pipe_.get())) out_pipe_.reset();
    if (entries[1].revents != 0 && !read_into(err_, err_pipe_.get())) err_pipe_.reset();
    return true;
}

bool Child::wait_for_output(const std::string& text) {
    const Deadline deadline = Deadline::after_ms(patience_ms);
    while (out_.find(text) == std::string::npos) {
        if (!out_pipe_ || deadline.passed()) return false;
        read_some(static_cast<int>(deadline.left_ms(patience_ms)));
    }
    return true;
}

void Child::signal(int number) const {
    ::kill(pid_, number);
}

int Child::finish() {
    while (out_pipe_ || err_pipe_)
        if (!read_some(2 * patience_ms)) throw std::runtime_error("the program hangs");
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool eventually(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::after_ms(patience_ms);
    while (!condition()) {
        if (deadline.passed()) return false;
        ::usleep(10'000);
    }
    return true;
}

bool alive(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return false;
    const auto end_of_name = text.rfind(')');
    return end_of_name != std::string::npos && text.compare(end_of_name, 3, ") Z") != 0;
}

}  // namespace tutti::test
