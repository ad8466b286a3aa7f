// Takes the errors that the tests provoke, and holds each text against the rule.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "errors/text_rule.h"
#include "tutti/trainer_errors.h"
#include "tutti/tutti.h"

namespace errors_test {

/// The parts of an error that a row expects.
struct Want {
    tutti_status status = TUTTI_ERR_INVALID;
    std::string names = {};
    int reporter = -1;
    int culprit = -1;
};

/// Ranks are threads here: any of them may report.
class Ledger {
public:
    /// A call of libtutti came to this status; the calling thread has its error.
    void take(const std::string& row, tutti_status got, const Want& want) {
        note(row, got, want, {tutti_last_error(), tutti_last_error_rank()});
    }
    /// A call of libtutti_trainer.
    void take_trainer(const std::string& row, tutti_status got, const Want& want) {
        note(row, got, want, {tutti_trainer_last_error(), tutti_trainer_last_error_rank()});
    }
    /// An error that came from elsewhere, such as a child process.
    void take_text(const std::string& row, tutti_status got, const Want& want,
                   const std::string& text, int rank) {
        note(row, got, want, {text, rank});
    }
    /// A step of a test that should have worked did not.
    void broken(const std::string& row, const std::string& why);

    std::vector<std::string> problems() const;
    /// Texts without the rank that reports.
    std::set<std::string> texts() const;
    std::set<tutti_status> statuses() const;
    std::size_t rows() const;

private:
    struct Told {
        std::string text;
        int rank;
    };
    void note(const std::string& row, tutti_status got, const Want& want, const Told& told);

    mutable std::mutex mutex_;
    std::vector<std::string> problems_;
    std::set<std::string> texts_;
    std::set<tutti_status> statuses_;
    std::size_t rows_ = 0;
};

}  // namespace errors_test
