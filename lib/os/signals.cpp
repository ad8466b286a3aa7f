#include "os/signals.h"

#include <link.h>

#include <algorithm>

namespace tutti {
namespace {

int add_code(dl_phdr_info* info, std::size_t, void* ranges) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
        const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        static_cast<std::vector<LibraryCode::CodeRange>*>(ranges)->push_back(
            {begin, begin + part.p_memsz});
    }
    return 0;
}

bool contains(const std::vector<LibraryCode::CodeRange>& ranges,
              const LibraryCode::CodeRange& range) {
    return std::find(ranges.begin(), ranges.end(), range) != ranges.end();
}

// SIG_DFL and SIG_IGN are small integers, which lie in no library's code.
uintptr_t handler_address(const struct sigaction& action) {
    return action.sa_flags & SA_SIGINFO ? reinterpret_cast<uintptr_t>(action.sa_sigaction)
                                        : reinterpret_cast<uintptr_t>(action.sa_handler);
}

}  // namespace

std::vector<LibraryCode::CodeRange> LibraryCode::loaded() {
    std::vector<CodeRange> out;
    dl_iterate_phdr(add_code, &out);
    return out;
}

void LibraryCode::add_since(const std::vector<CodeRange>& before) {
    const std::vector<CodeRange> now = loaded();
    const std::scoped_lock lock(mutex_);
    for (const CodeRange& range : now)
        if (!contains(before, range) && !contains(ranges_, range)) ranges_.push_back(range);
}

bool LibraryCode::holds(uintptr_t address) const {
    const std::scoped_lock lock(mutex_);
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const CodeRange& range) {
        return range.begin <= address && address < range.end;
    });
}

SavedSignalHandlers::SavedSignalHandlers(LibraryCode& library) : library_(library) {
    for (int signal = 1; signal < NSIG; ++signal)
        ::sigaction(signal, nullptr, &before_[static_cast<std::size_t>(signal)]);
}

SavedSignalHandlers::~SavedSignalHandlers() {
    library_.add_since(loaded_before_);
    for (int signal = 1; signal < NSIG; ++signal) {
        const struct sigaction& before = before_[static_cast<std::size_t>(signal)];
        struct sigaction now {};
        if (::sigaction(signal, nullptr, &now) == 0 && library_.holds(handler_address(now)) &&
            !library_.holds(handler_address(before)))
            ::sigaction(signal, &before, nullptr);
    }
}

}  // namespace tutti
