// Errors that the C++ faces throw.
#pragma once

#include <functional>
#include <string>

#include "errors/ledger.h"
#include "tutti/buffers.hpp"

namespace errors_test {

/// Runs work, whose exception is the row's error.
inline void take_thrown(Ledger& ledger, const std::string& row, const Want& want,
                        const std::function<void()>& work) {
    try {
        work();
        ledger.broken(row, "it was not refused");
    } catch (const tutti::cxx::Error& error) {
        ledger.take_text(row, error.status(), want, error.what(), error.rank());
    }
}

}  // namespace errors_test
