// Formats the results of a simulation as tables and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiment.h"
#include "options.h"

namespace tutti::sim {

/// One line of a table.
struct Row {
    uint64_t bytes = 0;
    double us = 0;
    uint64_t max_messages = 0, max_bytes = 0;  // the most that any rank sends
    std::string busiest_link;
    double utilisation = 0;
    uint32_t lanes = 1;
    bool chosen = false;  // the library would take this algorithm
};

struct Table {
    std::string algorithm, summary;
    std::string_view steps;  // how the steps of a rank grow with the number of ranks
    std::string refusal;     // not empty: why it cannot run with this number of ranks
    std::vector<Row> rows;
    std::vector<Report> reports;  // for --json, one for each row
};

Row row_of(const Outcome& outcome, bool chosen);

/// "allreduce, 16 ranks on 4 hosts, 1 switch: 10 Gbit/s, …"
std::string heading(const Options& options);
std::string format_table(const Table& table);
/// For each size, the library's choice and the fastest; empty if there is only one table.
std::string format_choices(const std::vector<Table>& tables);
std::string to_json(const Options& options, const std::vector<Table>& tables);

}  // namespace tutti::sim
