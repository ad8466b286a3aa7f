// A program run by a test: its output, its exit code, and signals to it on the way.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::test {

class Child {
public:
    /// The first argument is the program's path. Variables: "NAME=VALUE" on top of this process's.
    explicit Child(std::vector<std::string> arguments, std::vector<std::string> variables = {});
    ~Child();
    Child(const Child&) = delete;

    /// Reads standard output until it contains text; false if it ends, or 30 s pass, before.
    bool wait_for_output(const std::string& text);
    void signal(int number) const;
    /// Reads all output and waits for the end: the exit code, or 128 + the signal.
    int finish();

    const std::string& out() const { return out_; }
    const std::string& err() const { return err_; }

private:
    bool read_some(int timeout_ms);
    pid_t pid_ = -1;
    UniqueFd out_pipe_;
    UniqueFd err_pipe_;
    std::string out_;
    std::string err_;
};

/// Polls until the condition holds; false after 30 s.
bool eventually(const std::function<bool()>& condition);

/// Whether the process exists and is no zombie.
bool alive(pid_t pid);

}  // namespace tutti::test
