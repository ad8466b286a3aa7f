// Tests tutti-bench's statistics of its samples and its command-line options.
#include "bench/statistics.h"

#include <numeric>
#include <string>
#include <vector>

#include "bench/command_line.h"
#include "bench/options.h"
#include "support/catch.h"

using namespace bench;

namespace {

Parsed parse(std::vector<std::string> words) {
    words.insert(words.begin(), "tutti-bench");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return parse_options(static_cast<int>(words.size()), argv.data());
}

}  // namespace

TEST_CASE("statistics: median, nearest-rank p99, mean and minimum of any order") {
    std::vector<double> hundred(100);
    std::iota(hundred.rbegin(), hundred.rend(), 1.0);
    const Summary many = summarize(hundred);
    REQUIRE(many.median == 50.5);
    REQUIRE(many.p99 == 99);
    REQUIRE(many.mean == 50.5);
    REQUIRE(many.min == 1);
    const Summary three = summarize({9, 1, 2});
    REQUIRE(three.median == 2);
    REQUIRE(three.p99 == 9);
    const Summary one = summarize({7});
    REQUIRE((one.median == 7 && one.p99 == 7 && one.mean == 7 && one.min == 7));
}

TEST_CASE("statistics: small operations share a clock read, large ones never") {
    for (int iterations : {1, 19, 20, 399, 2000, 200'000}) {
        const Batches small = cut_into_batches(iterations, 8);
        INFO(iterations);
        REQUIRE(small.batch >= 1);
        REQUIRE(small.batch <= 100);
        REQUIRE(small.batch * small.samples <= std::max(iterations, small.batch));
        if (iterations >= 20) REQUIRE(small.samples >= 20);
        const Batches large = cut_into_batches(iterations, 64 * 1024);
        REQUIRE(large.batch == 1);
        REQUIRE(large.samples == iterations);
    }
}

TEST_CASE("statistics: GB are 10^9 bytes") {
    REQUIRE(to_gbs(1'000'000, 1000) == 1.0);
    REQUIRE(to_gbs(8, 0) == 0);
}

TEST_CASE("options: sizes in powers of 1024, anything else is none") {
    REQUIRE(parse_bytes("8") == 8);
    REQUIRE(parse_bytes("64K") == 65536);
    REQUIRE(parse_bytes("128M") == std::size_t{128} << 20);
    REQUIRE(parse_bytes("1GiB") == std::size_t{1} << 30);
    for (const char* wrong : {"", "K", "-1", "1.5M", "8 ", "8X", "8Kb", "99999999999999G"}) {
        INFO(wrong);
        REQUIRE_FALSE(parse_bytes(wrong).has_value());
    }
}

TEST_CASE("options: a sweep has whole elements, each size once, both ends") {
    Options options;
    options.collective = find_collective("allreduce");
    options.begin_bytes = 1;
    options.end_bytes = 100;
    options.factor = 2;
    REQUIRE(sweep_counts(options, 1, 3) == std::vector<std::size_t>{1, 2, 4, 8, 16, 32, 64});
    const std::vector<std::size_t> wide = sweep_counts(options, 8, 3);
    REQUIRE(std::adjacent_find(wide.begin(), wide.end()) == wide.end());
    REQUIRE(wide.back() == 8);
    options.begin_bytes = options.end_bytes = 1024;
    REQUIRE(sweep_counts(options, 4, 3) == std::vector<std::size_t>{256});
}

TEST_CASE("options: the size of a row of blocks is rounded down to equal blocks") {
    Options options;
    options.begin_bytes = 8;
    options.end_bytes = 1024;
    options.factor = 4;
    for (const char* name : {"allgather", "reduce_scatter", "gather", "scatter", "alltoall"}) {
        INFO(name);
        options.collective = find_collective(name);
        REQUIRE(sweep_counts(options, 4, 3) == std::vector<std::size_t>{0, 2, 10, 42});
        REQUIRE(sweep_counts(options, 4, 100) == std::vector<std::size_t>{0, 1});
    }
}

TEST_CASE("options: what makes no sense ends with the usage exit code") {
    REQUIRE_FALSE(parse({"allreduce", "-b", "8", "-e", "1K"}).exit_code.has_value());
    for (const auto& words :
         std::vector<std::vector<std::string>>{{},
                                               {"teleport"},
                                               {"allreduce", "-b", "big"},
                                               {"allreduce", "-b", "1M", "-e", "1K"},
                                               {"allreduce", "--dtype", "float31"},
                                               {"allreduce", "--op", "mean"},
                                               {"allreduce", "-f", "1"},
                                               {"broadcast", "--out-of-place-only"}}) {
        const Parsed parsed = parse(words);
        REQUIRE(parsed.exit_code == command_line::exit_usage);
    }
    REQUIRE(parse({"--help"}).exit_code == 0);
    for (const Collective& collective : collectives())
        REQUIRE(parse({collective.name}).options.collective == &collective);
}
