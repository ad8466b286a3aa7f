#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "units.h"

namespace tutti::sim {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Network& n) {
    const auto medium = [](const Medium& m) {
        return Json{{"bytes_per_s", m.bytes_per_s},
                    {"latency_us", m.latency_us},
                    {"overhead_us", m.overhead_us}};
    };
    return {{"hosts", n.hosts},
            {"switches", n.switches},
            {"oversubscription", n.oversubscription},
            {"wire", medium(n.wire)},
            {"memory", medium(n.memory)},
            {"reduce_bytes_per_s", n.reduce_bytes_per_s},
            {"credits", n.credits}};
}

Json ranks_json(const Report& report) {
    Json ranks = Json::array();
    for (const RankTotals& r : report.ranks)
        ranks.push_back({{"messages_sent", r.messages_sent},
                         {"bytes_sent", r.bytes_sent},
                         {"messages_received", r.messages_received},
                         {"bytes_received", r.bytes_received},
                         {"busy_us", microseconds(r.busy)},
                         {"finished_us", microseconds(r.finished)}});
    return ranks;
}

Json links_json(const Report& report) {
    Json links = Json::array();
    for (const NetworkLink& l : report.links)
        if (l.messages > 0)
            links.push_back({{"name", l.name()},
                             {"messages", l.messages},
                             {"bytes", l.bytes},
                             {"busy_us", microseconds(l.busy)},
                             {"utilisation", report.utilisation(l)}});
    return links;
}

Json result_json(const Row& row, const Report& report) {
    return {{"bytes", row.bytes},
            {"time_us", row.us},
            {"chosen", row.chosen},
            {"lanes", row.lanes},
            {"max_messages_per_rank", row.max_messages},
            {"max_bytes_per_rank", row.max_bytes},
            {"busiest_link", row.busiest_link},
            {"utilisation", row.utilisation},
            {"ranks", ranks_json(report)},
            {"links", links_json(report)}};
}

}  // namespace

Row row_of(const Outcome& outcome, bool chosen) {
    const Report& report = outcome.report;
    Row row;
    row.bytes = outcome.bytes;
    row.us = microseconds(report.time);
    for (const RankTotals& rank : report.ranks) {
        row.max_messages = std::max(row.max_messages, rank.messages_sent);
        row.max_bytes = std::max(row.max_bytes, rank.bytes_sent);
    }
    const NetworkLink& busiest = report.busiest_link();
    row.busiest_link = busiest.messages > 0 ? busiest.name() : "-";
    row.utilisation = report.utilisation(busiest);
    row.lanes = outcome.choice.lanes;
    row.chosen = chosen;
    return row;
}

std::string heading(const Options& o) {
    const Network& n = o.network;
    std::string text =
        fmt::format("# tutti-sim {}: {} on {}, {}", collective_name(o.collective),
                    plural(o.ranks, "rank"), plural(n.hosts, "host"), plural(n.switches, "switch"));
    if (n.switches > 1) text += fmt::format(" oversubscribed {:g} times", n.oversubscription);
    text +=
        fmt::format("\n# between hosts: {}, latency {:g} us, overhead {:g} us a message\n",
                    format_bits_per_s(n.wire.bytes_per_s), n.wire.latency_us, n.wire.overhead_us);
    if (n.hosts < o.ranks)
        text += fmt::format("# within a host: {}, latency {:g} us, overhead {:g} us a message\n",
                            format_bytes_per_s(n.memory.bytes_per_s), n.memory.latency_us,
                            n.memory.overhead_us);
    return text + fmt::format("# {} elements, reduced at {}; * is the library's choice\n",
                              dtype_name(o.dtype), format_bytes_per_s(n.reduce_bytes_per_s));
}

std::string format_table(const Table& table) {
    std::string text =
        fmt::format("\n{}: {}; {} steps a rank\n", table.algorithm, table.summary, table.steps);
    if (!table.refusal.empty()) return text + fmt::format("  {}\n", table.refusal);
    constexpr const char* columns = "{:>12} {:>14} {:>12} {:>14}  {}\n";
    text += fmt::format(columns, "size", "time", "messages", "bytes", "busiest link");
    text += fmt::format(columns, "(B)", "(us)", "(per rank)", "(per rank)", "(busy)");
    for (const Row& row : table.rows)
        text += fmt::format("{:>12} {:>14}{} {:>11} {:>14}  {} ({:.0f} %)\n", row.bytes,
                            format_us(row.us), row.chosen ? '*' : ' ', row.max_messages,
                            row.max_bytes, row.busiest_link, 100 * row.utilisation);
    return text;
}

std::string format_choices(const std::vector<Table>& tables) {
    std::vector<const Table*> ran;
    for (const Table& t : tables)
        if (!t.rows.empty()) ran.push_back(&t);
    if (ran.size() < 2) return {};
    std::string text =
        fmt::format("\n{:>12}  {:<36} {}\n", "size (B)", "library's choice", "fastest here");
    for (std::size_t i = 0; i < ran[0]->rows.size(); ++i) {
        const Table *fastest = ran[0], *chosen = nullptr;
        for (const Table* t : ran) {
            if (t->rows[i].us < fastest->rows[i].us) fastest = t;
            if (t->rows[i].chosen) chosen = t;
        }
        const auto cell = [&](const Table* t) {
            return t ? fmt::format("{}, {} us", t->algorithm, format_us(t->rows[i].us)) : "-";
        };
        const bool same = chosen && chosen->rows[i].us <= fastest->rows[i].us;
        text += fmt::format("{:>12}  {:<36} {}\n", ran[0]->rows[i].bytes, cell(chosen),
                            same ? "the same" : cell(fastest));
    }
    return text;
}

std::string to_json(const Options& o, const std::vector<Table>& tables) {
    Json root{{"collective", collective_name(o.collective)},
              {"ranks", o.ranks},
              {"root", o.root},
              {"dtype", dtype_name(o.dtype)},
              {"network", to_json(o.network)},
              {"algorithms", Json::array()}};
    for (const Table& table : tables) {
        Json results = Json::array();
        for (std::size_t i = 0; i < table.rows.size(); ++i)
            results.push_back(result_json(table.rows[i], table.reports[i]));
        Json entry{{"name", table.algorithm}, {"summary", table.summary}, {"steps", table.steps}};
        if (!table.refusal.empty()) entry["refusal"] = table.refusal;
        entry["results"] = std::move(results);
        root["algorithms"].push_back(std::move(entry));
    }
    return root.dump(1) + "\n";
}

}  // namespace tutti::sim
