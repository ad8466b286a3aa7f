// The program's signals belong to the program: its handlers, and the threads that take them.
#pragma once

#include <pthread.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tutti {

/// The machine code of a library and of what it loads: grows while SavedSignalHandlers watches. Any
/// thread.
class LibraryCode {
public:
    struct CodeRange {
        uintptr_t begin = 0, end = 0;
        bool operator==(const CodeRange&) const = default;
    };
    /// All that is loaded in this process now.
    static std::vector<CodeRange> loaded();

    /// Adds what is loaded now and was not `before`.
    void add_since(const std::vector<CodeRange>& before);
    bool holds(uintptr_t address) const;

private:
    mutable std::mutex mutex_;
    std::vector<CodeRange> ranges_;
};

/// For as long as a library is loaded or started that may install handlers of its own: at the end,
/// signals that one of the library's functions would handle get their former handlers back. The
/// handlers that the program installs meanwhile, in another thread, stay.
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

/// No signal for this thread, nor for those that it starts meanwhile: they inherit the mask.
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
