#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "complain.h"
#include "machine.h"

namespace bench {
namespace {

constexpr auto quiet_at_first = std::chrono::seconds(2);
constexpr auto between_lines = std::chrono::seconds(5);

std::string format_time(double us) {
    return us < 1000      ? fmt::format("{:.2f}", us)
           : us < 100'000 ? fmt::format("{:.1f}", us)
                          : fmt::format("{:.0f}", us);
}

std::string transport_of(const Options& options) {
    if (!options.transport.empty()) return options.transport;
    const char* value = std::getenv("TUTTI_TRANSPORT");
    return value != nullptr && *value != '\0' ? value : "default";
}

struct Labels {
    std::string type, op, root;
};

Labels labels_of(const Call& call) {
    const Collective& c = *call.collective;
    if (!c.moves_data()) return {"-", "-", "-1"};
    return {tutti_dtype_name(call.dtype), c.reduces() ? tutti_op_name(call.op) : "none",
            c.rooted() ? std::to_string(call.root) : "-1"};
}

}  // namespace

Report::Report(const Options& options)
    : options_(options), table_(options.json == "-" ? stderr : stdout) {
    if (options.json.empty()) return;
    // Open it for appending: the file keeps its old contents until the sweep is over.
    json_ = options.json == "-" ? stdout : std::fopen(options.json.c_str(), "ae");
    if (json_ == nullptr) json_failed();
}

Report::~Report() {
    if (json_ != nullptr && json_ != stdout) std::fclose(json_);
}

void Report::begin_table(const Setting& setting) {
    setting_ = setting;
    const std::string rings = setting.nrings > 0 ? std::to_string(setting.nrings) : "default";
    note(fmt::format("tutti {} {}: ranks {}, transport {}, rings {}, algorithm {}, {}{}",
                     tutti_version(), options_.collective->name, setting.ranks,
                     transport_of(options_), rings,
                     setting.algorithm.empty() ? "by size" : setting.algorithm,
                     mode_name(options_, setting.algorithm),
                     options_.streams > 1 ? fmt::format(", {} in flight", options_.streams) : ""));
    note("");
    fmt::print(table_, "# {:>10}  {:>12}  {:>12}  {:>6}  {:>6}  {:^33}  {:^33}\n", "", "", "", "",
               "", "out-of-place", "in-place");
    constexpr const char* half = "  {:>8}  {:>7}  {:>7}  {:>6}";
    const auto place = [&](const char* a, const char* b, const char* c, const char* d) {
        return fmt::format(fmt::runtime(half), a, b, c, d);
    };
    const std::string names = place("time", "algbw", "busbw", "#wrong");
    const std::string units = place("(us)", "(GB/s)", "(GB/s)", "");
    fmt::print(table_, "# {:>10}  {:>12}  {:>12}  {:>6}  {:>6}{}{}\n", "size", "count", "type",
               "redop", "root", names, names);
    fmt::print(table_, "# {:>10}  {:>12}  {:>12}  {:>6}  {:>6}{}{}\n", "(B)", "(elements)", "", "",
               "", units, units);
    std::fflush(table_);
}

std::string Report::cells(const Row& row, const std::optional<Outcome>& outcome) const {
    if (!outcome) return fmt::format("  {:>8}  {:>7}  {:>7}  {:>6}", "-", "-", "-", "-");
    const double algbw = to_gbs(row.bytes, outcome->timing.median_us);
    return fmt::format("  {:>8}  {:>7.2f}  {:>7.2f}  {:>6}", format_time(outcome->timing.median_us),
                       algbw, algbw * options_.collective->busbw(setting_.ranks),
                       options_.check ? std::to_string(outcome->wrong) : "N/A");
}

void Report::add(const Row& row) {
    const Labels labels = labels_of(row.call);
    fmt::print(table_, "{:>12}  {:>12}  {:>12}  {:>6}  {:>6}{}{}\n", row.bytes, row.call.count,
               labels.type, labels.op, labels.root, cells(row, row.out_of_place),
               cells(row, row.in_place));
    for (const bool in_place : {false, true}) {
        const std::optional<Outcome>& outcome = in_place ? row.in_place : row.out_of_place;
        if (!outcome) continue;
        wrong_ += outcome->wrong;
        busbw_sum_ += to_gbs(row.bytes, outcome->timing.median_us) *
                      options_.collective->busbw(setting_.ranks);
        ++busbw_count_;
        add_json(row, *outcome, in_place);
        if (outcome->peer) print_peer(in_place ? "in-place" : "out-of-place", *outcome);
        if (options_.stats) print_stats(in_place ? "in-place" : "out-of-place", outcome->timing);
    }
    std::fflush(table_);
}

void Report::print_peer(const char* place, const Outcome& outcome) {
    note(fmt::format("  {:>12}: nccl {} us: its time is {:.3f} of ours, {:.2f} us added", place,
                     format_time(outcome.peer->median_us), outcome.peer->ratio,
                     outcome.peer->added_us));
}

void Report::print_stats(const char* place, const Timing& t) {
    note(fmt::format(
        "  {:>12}: p50 {}, mean {}, p99 {}, min {} us; medians of the ranks: min {}, avg {}, "
        "max {} us; {} iterations",
        place, format_time(t.median_us), format_time(t.mean_us), format_time(t.p99_us),
        format_time(t.min_us), format_time(t.fastest_us), format_time(t.average_us),
        format_time(t.median_us), t.iterations));
}

void Report::add_json(const Row& row, const Outcome& outcome, bool in_place) {
    const Labels labels = labels_of(row.call);
    const Timing& t = outcome.timing;
    const double algbw = to_gbs(row.bytes, t.median_us);
    nlohmann::ordered_json json = {
        {"collective", options_.collective->name},
        {"bytes", row.bytes},
        {"count", row.call.count},
        {"dtype", labels.type},
        {"op", labels.op},
        {"root", std::stoi(labels.root)},
        {"in_place", in_place},
        {"ranks", setting_.ranks},
        {"transport", transport_of(options_)},
        {"algorithm", row.algorithm},
        {"mode", mode_name(options_, setting_.algorithm)},
        {"streams", options_.streams},
        {"iterations", t.iterations},
        {"median_us", t.median_us},
        {"mean_us", t.mean_us},
        {"p99_us", t.p99_us},
        {"min_us", t.min_us},
        {"rank_median_min_us", t.fastest_us},
        {"rank_median_avg_us", t.average_us},
        {"rank_median_max_us", t.median_us},
        {"algbw_gbs", algbw},
        {"busbw_gbs", algbw * options_.collective->busbw(setting_.ranks)}};
    if (outcome.peer) {
        json["nccl_median_us"] = outcome.peer->median_us;
        json["nccl_ratio"] = outcome.peer->ratio;
        json["added_us"] = outcome.peer->added_us;
    }
    json["nrings"] =
        setting_.nrings > 0 ? nlohmann::ordered_json(setting_.nrings) : nlohmann::ordered_json();
    json["wrong"] =
        options_.check ? nlohmann::ordered_json(outcome.wrong) : nlohmann::ordered_json();
    rows_.push_back(std::move(json));
}

void Report::note(const std::string& text) {
    fmt::print(table_, "#{}{}\n", text.empty() ? "" : " ", text);
    std::fflush(table_);
}

void Report::finish() {
    const std::string wrong = std::to_string(wrong_) + (wrong_ == 0 ? " OK" : " FAILED");
    note(fmt::format("wrong elements: {}", options_.check ? wrong : "not checked"));
    if (busbw_count_ > 0 && options_.collective->moves_data())
        note(fmt::format("average busbw:  {:.2f} GB/s", busbw_sum_ / busbw_count_));
    if (std::ferror(table_) != 0)
        throw std::runtime_error(command_line::with_advice(
            "cannot write the table", "send standard output to a file system with free space"));
    write_json();
}

void Report::write_json() {
    if (json_ == nullptr) return;
    const nlohmann::ordered_json all = {{"program", "tutti-bench"},
                                        {"version", tutti_version()},
                                        {"host", describe_machine()},
                                        {"rows", rows_}};
    const std::string text = all.dump(2) + "\n";
    const bool truncated = json_ == stdout || ::ftruncate(::fileno(json_), 0) == 0;
    if (!truncated && errno != EINVAL)
        json_failed();  // EINVAL: not a regular file, which has no length
    if (std::fwrite(text.data(), 1, text.size(), json_) != text.size() || std::fflush(json_) != 0)
        json_failed();
}

void Report::json_failed() const {
    throw std::runtime_error(command_line::with_advice(
        fmt::format("--json: cannot write {}: {}", options_.json, std::strerror(errno)),
        "name a file in a folder that exists and that this user may write to"));
}

Progress::Progress(std::size_t steps)
    : steps_(steps), start_(std::chrono::steady_clock::now()), last_line_(start_) {
    const bool behind_launcher = std::getenv("TUTTI_RUN_TERMINAL") != nullptr;
    style_ = ::isatty(STDERR_FILENO) == 1 ? Style::rewrite
             : behind_launcher            ? Style::lines
                                          : Style::none;
}

void Progress::step(const std::string& doing) {
    const auto now = std::chrono::steady_clock::now();
    const std::size_t at = done_++;
    if (style_ == Style::none || now - start_ < quiet_at_first) return;
    const std::string text = fmt::format("tutti-bench: {} of {}: {}", at + 1, steps_, doing);
    if (style_ == Style::rewrite) {
        fmt::print(stderr, "\r{}\033[K", text);
    } else if (now - last_line_ >= between_lines) {
        fmt::print(stderr, "{}\n", text);
        last_line_ = now;
    }
    std::fflush(stderr);
}

void Progress::clear() {
    if (style_ == Style::rewrite) fmt::print(stderr, "\r\033[K");
}

}  // namespace bench
