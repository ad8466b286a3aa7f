// Signals belong to the program: libraries that tutti loads must not replace the program's
// handlers, and tutti's threads must not receive its signals.
#pragma once

#include <pthread.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tutti {

/// The addresses of the machine code of one library (libfabric) and of the libraries that it loads.
/// Each SavedSignalHandlers adds the code that was loaded during its life. Any thread may call any
/// function.
class LibraryCode {
public:
    struct CodeRange {
        uintptr_t begin = 0, end = 0;
        bool operator==(const CodeRange&) const = default;
    };
    /// The code of the program and of every library that is loaded in this process now.
    static std::vector<CodeRange> loaded();

    /// Adds the code that is loaded now but is not in `before`.
    void add_since(const std::vector<CodeRange>& before);
    bool holds(uintptr_t address) const;

private:
    mutable std::mutex mutex_;
    std::vector<CodeRange> ranges_;
};

/// Lives in the scope in which tutti loads or starts a library that may install signal handlers.
/// The destructor looks for signals whose handler is now one of the library's functions, and gives
/// them back the handlers of before. A handler that another thread of the program installs
/// meanwhile stays.
class SavedSignalHandlers {
public:
    explicit SavedSignalHandlers(LibraryCode& library);
    ~SavedSignalHandlers();
    SavedSignalHandlers(const SavedSignalHandlers&) = delete;

private:
    LibraryCode& library_;
    const std::vector<LibraryCode::CodeRange> loaded_before_ = LibraryCode::loaded();
    std::array<struct sigaction, NSIG> before_{};
};

/// Blocks all signals in this thread for a scope. A thread that is started in the scope inherits
/// the mask for good, so the kernel delivers the program's signals to the program's threads.
class NoSignals {
public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;

private:
    sigset_t before_;
};

}  // namespace tutti
