// Calls with NULL for every pointer, and the tables of which function answers how.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "errors/headers.h"
#include "errors/ledger.h"

namespace errors_test {

/// NULL for every pointer, 0 for every number.
template <typename... Arguments>
tutti_status with_nulls(tutti_status (*function)(Arguments...)) {
    return function(Arguments{}...);
}

/// The same, but for the first argument.
template <typename First, typename... Rest>
tutti_status with_nulls_behind(tutti_status (*function)(First, Rest...),
                               std::type_identity_t<First> first) {
    return function(first, Rest{}...);
}

/// A function that refuses NULL with an error, which names it.
struct Refusal {
    const char* function;
    std::function<tutti_status()> call;
};

/// A function to which NULL is no error, as its documentation has it.
struct Answer {
    const char* function;
    std::function<bool()> as_documented;
};

/// A function that may not be called with NULL.
struct Uncalled {
    const char* function;
    const char* reason;
};

struct NullTables {
    std::vector<std::string> headers;
    std::span<const Refusal> refusals;
    std::span<const Answer> answers;
    std::span<const Uncalled> uncalled;
};

/// Every function of the headers that takes a pointer has a row, and every row has its function.
inline void check_rows(Ledger& ledger, const NullTables& tables) {
    std::vector<std::string> rows;
    for (const Refusal& row : tables.refusals) rows.emplace_back(row.function);
    for (const Answer& row : tables.answers) rows.emplace_back(row.function);
    for (const Uncalled& row : tables.uncalled) rows.emplace_back(row.function);
    const std::vector<std::string> declared = functions_with_pointers(tables.headers);
    for (const std::string& name : declared)
        if (std::count(rows.begin(), rows.end(), name) != 1)
            ledger.broken(name, "the tables of NULL pointers need one row for this function");
    for (const std::string& name : rows)
        if (std::find(declared.begin(), declared.end(), name) == declared.end())
            ledger.broken(name, "the headers declare no function of this name with a pointer");
}

/// Makes the calls of the tables. take is a Ledger's, for the library or for the trainer layer.
inline void call_with_nulls(Ledger& ledger, const NullTables& tables,
                            void (Ledger::*take)(const std::string&, tutti_status, const Want&)) {
    check_rows(ledger, tables);
    for (const Refusal& row : tables.refusals)
        (ledger.*take)(std::string(row.function) + " with NULL", row.call(),
                       {.names = row.function});
    for (const Answer& row : tables.answers)
        if (!row.as_documented())
            ledger.broken(row.function, "NULL is not answered as the header says");
}

}  // namespace errors_test
