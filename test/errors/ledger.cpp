#include "errors/ledger.h"

#include <fmt/format.h>

namespace errors_test {

void Ledger::note(const std::string& row, tutti_status got, const Want& want, const Told& told) {
    std::vector<std::string> found;
    if (got != want.status)
        found.push_back(fmt::format("the status is '{}', not '{}'", tutti_status_string(got),
                                    tutti_status_string(want.status)));
    if (got != TUTTI_OK && told.rank != want.culprit)
        found.push_back(fmt::format("the rank at fault is {}, not {}", told.rank, want.culprit));
    if (got != TUTTI_OK)
        for (std::string& violation :
             violations(told.text, {want.names, want.reporter, want.culprit}))
            found.push_back(std::move(violation));
    const std::lock_guard lock(mutex_);
    ++rows_;
    for (const std::string& violation : found)
        problems_.push_back(fmt::format("{}: {}\n    \"{}\"", row, violation, told.text));
    if (got == TUTTI_OK || got == TUTTI_IN_PROGRESS) return;
    statuses_.insert(got);
    texts_.insert(without_reporter(told.text));
}

void Ledger::broken(const std::string& row, const std::string& why) {
    const std::lock_guard lock(mutex_);
    problems_.push_back(row + ": " + why);
}

std::vector<std::string> Ledger::problems() const {
    const std::lock_guard lock(mutex_);
    return problems_;
}

std::set<std::string> Ledger::texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
}

std::set<tutti_status> Ledger::statuses() const {
    const std::lock_guard lock(mutex_);
    return statuses_;
}

std::size_t Ledger::rows() const {
    const std::lock_guard lock(mutex_);
    return rows_;
}

}  // namespace errors_test
