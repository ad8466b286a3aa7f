// Writes a tuning file, and keeps the old file's rules for unmeasured cells.
#pragma once

#include <span>
#include <string>

#include "measure.h"

namespace tutti::tune {

struct Found {
    std::string wire;
    Rank ranks = 1;
    Constants constants{};
    std::span<const Cell> cells;  // by collective, sizes ascending
    uint32_t widening = 1;        // of the sums that were measured
};

/// The new file's text: the found rules first, then the other rules of the old file.
std::string updated(const std::string& old_text, const Found& found, const std::string& machine);

/// Checks before the measurement whether write_tuning will be able to write the file.
Result<> check_tuning(const std::string& path);
/// Reads the old file if there is one, and replaces it.
Result<> write_tuning(const std::string& path, const Found& found);

}  // namespace tutti::tune
