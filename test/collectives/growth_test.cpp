// Tests that generating a rank's lanes takes the steps that the catalog states, memory for these
// alone, and no time that grows with the ranks where the steps do not.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "collectives/catalog.h"
#include "support/allocations.h"
#include "support/catch.h"

using namespace tutti;

namespace {

constexpr Rank per_host = 8;
constexpr Rank few = 64, many = 4096;

struct Effort {
    long steps = 0, bytes = 0;
    std::size_t lanes = 0;
};

Effort effort_of(const Algorithm& a, const ScheduleRequest& request) {
    Effort effort;
    allocated_bytes = 0;
    counting = true;
    const Schedule schedule = a.make(request);
    counting = false;
    effort.bytes = allocated_bytes;
    effort.lanes = schedule.lanes.size();
    for (const Lane& lane : schedule.lanes) effort.steps += static_cast<long>(lane.size());
    return effort;
}

/// The root and its neighbours, the ends, and some between.
std::vector<ScheduleRequest> requests(const Algorithm& a, const Hosts& hosts, uint32_t lanes) {
    const Rank n = hosts.ranks(), root = traits_of(a.collective).rooted ? n / 3 : 0;
    std::vector<ScheduleRequest> list;
    for (const Rank rank :
         {0, 1, 2, 7, 8, n / 3 - 1, n / 3, n / 3 + 1, n / 2 - 1, n / 2, n / 7 * 5, n - 2, n - 1})
        list.push_back({n, rank, root, lanes, &hosts});
    return list;
}

/// The most that any of them takes.
Effort worst_of(const Algorithm& a, Rank ranks, uint32_t lanes) {
    const Hosts hosts = Hosts::in_blocks(ranks, per_host);
    Effort worst;
    for (const ScheduleRequest& request : requests(a, hosts, lanes)) {
        const Effort e = effort_of(a, request);
        worst.steps = std::max(worst.steps, e.steps);
        worst.bytes = std::max(worst.bytes, e.bytes);
        worst.lanes = std::max(worst.lanes, e.lanes);
    }
    return worst;
}

double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The least of several attempts: other load on the machine only adds time.
double seconds_of(const Algorithm& a, const ScheduleRequest& request) {
    double least = 1e9;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const double before = processor_seconds();
        const Schedule schedule = a.make(request);
        least = std::min(least, processor_seconds() - before);
    }
    return least;
}

std::string name_of(const Algorithm& a) {
    return std::string(a.name) + "_" + std::string(collective_name(a.collective));
}

/// The docstring's "Generated in O(…)", without the line breaks.
std::string stated_growth(const Algorithm& a) {
    std::ifstream file(std::string(TUTTI_SOURCE_ROOT) + "/collectives/" + name_of(a) + ".cpp");
    std::string text, line;
    while (std::getline(file, line))
        if (line.starts_with("///")) text += line.substr(3);
    const auto at = text.find("Generated in O(");
    if (at == std::string::npos) return {};
    const auto start = at + std::string("Generated in ").size();
    return text.substr(start, text.find(')', start) + 1 - start);
}

}  // namespace

TEST_CASE("growth: a rank has as many steps as the catalog says, as ranks grow") {
    for (const Algorithm& a : algorithms())
        for (const uint32_t lanes : {1u, 2u}) {
            std::vector<double> steps;
            for (Rank n = few; n <= many; n *= 4)
                steps.push_back(static_cast<double>(worst_of(a, n, lanes).steps));
            INFO(name_of(a) << " lanes " << lanes << ": " << steps[0] << ", " << steps[1] << ", "
                            << steps[2] << ", " << steps[3] << " steps for 64, 256, 1024 and 4096");
            for (std::size_t i = 1; i < steps.size(); ++i) switch (a.steps) {
                    case Growth::constant:
                        REQUIRE(steps[i] == steps[0]);
                        break;
                    case Growth::logarithmic:
                        // log2 is 6, 8, 10 and 12: no more than in proportion, but for two.
                        REQUIRE(steps[i] <= (steps[0] + 2) * (6 + 2 * static_cast<double>(i)) / 6);
                        break;
                    case Growth::linear:
                        REQUIRE(steps[i] <= 4.2 * steps[i - 1]);
                        REQUIRE(steps[i] >= 3 * steps[i - 1]);
                        break;
                }
        }
}

TEST_CASE("growth: generating asks for the memory of the steps, and for no tables") {
    for (const Algorithm& a : algorithms())
        for (Rank n = few; n <= many; n *= 4) {
            const Effort e = worst_of(a, n, 2);
            INFO(name_of(a) << " ranks " << n << ": " << e.bytes << " bytes, " << e.steps
                            << " steps");
            // Vectors double: twice what they end with, all in all, and that is twice what is in
            // them. Two levels generate the outer schedule first.
            const long lists = a.inner_cost ? 2 : 1;
            const long step_bytes = 4 * static_cast<long>(sizeof(Step)) * e.steps;
            const long list_bytes = 8 * static_cast<long>(sizeof(Lane) * e.lanes) + 512;
            REQUIRE(e.bytes <= lists * (step_bytes + list_bytes));
        }
}

TEST_CASE("growth: where steps do not grow with the ranks, neither does the time") {
    // A loop over all of these would take a tenth of a second, and a table a gigabyte.
    constexpr Rank all = Rank{1} << 27;
    for (const Algorithm& a : algorithms()) {
        if (a.steps == Growth::linear) continue;
        INFO(name_of(a));
        REQUIRE(worst_of(a, all, 1).bytes <= 1 << 17);
        const Hosts hosts = Hosts::in_blocks(all, per_host);
        for (const ScheduleRequest& request : requests(a, hosts, 1)) {
            INFO("rank " << request.rank);
            REQUIRE(seconds_of(a, request) < 0.01);
        }
    }
}

TEST_CASE("growth: the catalog and the docstrings say the same") {
    for (const Algorithm& a : algorithms()) {
        const std::string stated = stated_growth(a);
        INFO(name_of(a) << ": the catalog says " << growth_name(a.steps) << ", the file "
                        << stated);
        switch (a.steps) {
            case Growth::constant:
                REQUIRE((stated == "O(1)" || stated == "O(L)"));
                break;
            case Growth::logarithmic:
                REQUIRE(stated.find("log ") != std::string::npos);
                break;
            case Growth::linear:
                REQUIRE((stated == "O(n)" || stated == "O(L·H)"));
                break;
        }
    }
}

TEST_CASE("growth: docs/explanation/algorithms.md lists every algorithm's, as the catalog has it") {
    std::ifstream file(std::string(TUTTI_SOURCE_ROOT) + "/docs/explanation/algorithms.md");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const Growth growth : {Growth::constant, Growth::logarithmic, Growth::linear}) {
        std::string row = "| ";
        row.append(growth_name(growth)).append(" | ");
        for (const Algorithm& a : algorithms())
            if (a.steps == growth) row.append("`").append(name_of(a)).append("`, ");
        row.replace(row.size() - 2, 2, " |");
        INFO("docs/explanation/algorithms.md needs this row:\n" << row);
        REQUIRE(text.find(row) != std::string::npos);
    }
}
