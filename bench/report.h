// Rank 0's output: the table, the JSON file, and the progress of a long sweep.
#pragma once

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "measure.h"
#include "options.h"

namespace bench {

/// One line of the table.
struct Row {
    Call call;
    std::size_t bytes = 0;
    std::string algorithm;  // the algorithm that ran
    std::optional<Outcome> out_of_place;
    std::optional<Outcome> in_place;
};

/// The communicator's and algorithm's options, which are the same in a whole table.
struct Setting {
    int ranks = 0;
    int nrings = 0;         // 0: the library's default
    std::string algorithm;  // "": the library chooses
};

class Report {
public:
    /// Writes the table to standard output, or to standard error if the JSON goes to standard
    /// output. If the file of --json cannot be written, throws std::runtime_error at once, not
    /// after the sweep.
    explicit Report(const Options& options);
    ~Report();
    Report(const Report&) = delete;

    void begin_table(const Setting& setting);
    void add(const Row& row);
    /// Prints a line that is not data. It starts with "#".
    void note(const std::string& text);
    /// The last lines of the table, and the JSON: the rows and the machine.
    void finish();

private:
    void write_json();
    [[noreturn]] void json_failed() const;
    void print_peer(const char* place, const Outcome& outcome);
    void print_stats(const char* place, const Timing& timing);
    void add_json(const Row& row, const Outcome& outcome, bool in_place);
    std::string cells(const Row& row, const std::optional<Outcome>& outcome) const;

    const Options& options_;
    std::FILE* table_;
    std::FILE* json_ = nullptr;
    Setting setting_;
    nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
    uint64_t wrong_ = 0;
    double busbw_sum_ = 0;
    int busbw_count_ = 0;
};

/// On a terminal, rewrites one line. Under a tutti-run that writes to a terminal, prints whole
/// lines from time to time. Into a pipe or a file, prints nothing.
class Progress {
public:
    explicit Progress(std::size_t steps);
    void step(const std::string& doing);
    /// Clears the line, so that a row of the table can be printed.
    void clear();

private:
    enum class Style { none, rewrite, lines };
    Style style_;
    std::size_t steps_;
    std::size_t done_ = 0;
    std::chrono::steady_clock::time_point start_;
    std::chrono::steady_clock::time_point last_line_;
};

}  // namespace bench
