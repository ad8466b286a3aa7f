// Measures blocks of different lengths: each v form beside the even form of the same total, in
// turns.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/complain.h"
#include "bench/median.h"
#include "tutti/tutti.hpp"

namespace {

using Counts = std::vector<std::size_t>;
using Clock = std::chrono::steady_clock;

constexpr int blocks = 20;     // measurements of each form, in turns
constexpr int iterations = 5;  // in one measurement

/// A division of a total among the ranks.
struct Shape {
    const char* name;
    std::function<Counts(std::size_t total, std::size_t ranks)> share;
};

Counts even(std::size_t total, std::size_t ranks) {
    return Counts(ranks, total / ranks);
}
Counts half_to_first(std::size_t total, std::size_t ranks) {
    Counts counts(ranks, total / 2 / std::max<std::size_t>(1, ranks - 1));
    counts[0] = total / 2;
    return counts;
}
Counts all_to_first(std::size_t total, std::size_t ranks) {
    Counts counts(ranks, 0);
    counts[0] = total;
    return counts;
}
Counts rising(std::size_t total, std::size_t ranks) {
    Counts counts(ranks);
    for (std::size_t r = 0; r < ranks; ++r) counts[r] = 2 * total * (r + 1) / (ranks * (ranks + 1));
    return counts;
}

const std::vector<Shape> shapes = {{"equal", even},
                                   {"rising", rising},
                                   {"half to the first", half_to_first},
                                   {"all to the first", all_to_first}};

struct Bench {
    tutti::Communicator& comm;
    std::vector<float> in, out;

    std::size_t ranks() const { return static_cast<std::size_t>(comm.size()); }
    double time_us(const std::function<void()>& operation) {
        comm.barrier();
        const auto start = Clock::now();
        for (int i = 0; i < iterations; ++i) operation();
        comm.barrier();
        const auto took = Clock::now() - start;
        std::array<double, 1> us{std::chrono::duration<double, std::micro>(took).count() /
                                 iterations};
        comm.allreduce(us, TUTTI_MAX);
        return us[0];
    }
};

/// A v form with given counts, the even form with equal counts, and the largest number of elements
/// that one rank must send or receive.
struct Form {
    const char* name;
    std::function<void(Bench&, const Counts&)> run;
    std::function<void(Bench&, std::size_t each)> run_even;
    std::function<std::size_t(const Counts&)> busiest;
};

std::size_t sum(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}
std::size_t all_but_smallest(const Counts& c) {
    return sum(c) - *std::min_element(c.begin(), c.end());
}

/// The lengths that a rank sends to each other rank: all send the same lengths.
Counts pair(Counts counts) {
    for (std::size_t& n : counts) n /= counts.size();
    return counts;
}

std::span<float> first(std::vector<float>& data, std::size_t count) {
    return std::span(data).first(count);
}

const std::vector<Form> forms = {
    {"allgatherv",
     [](Bench& b, const Counts& c) {
         const std::size_t own = c[static_cast<std::size_t>(b.comm.rank())];
         b.comm.allgatherv(first(b.in, own), first(b.out, sum(c)), c);
     },
     [](Bench& b, std::size_t n) { b.comm.allgather(first(b.in, n), first(b.out, n * b.ranks())); },
     all_but_smallest},
    {"reduce_scatterv",
     [](Bench& b, const Counts& c) {
         const std::size_t own = c[static_cast<std::size_t>(b.comm.rank())];
         b.comm.reduce_scatterv(first(b.in, sum(c)), first(b.out, own), c);
     },
     [](Bench& b, std::size_t n) {
         b.comm.reduce_scatter(first(b.in, n * b.ranks()), first(b.out, n));
     },
     all_but_smallest},
    {"gatherv",
     [](Bench& b, const Counts& c) {
         const std::size_t own = c[static_cast<std::size_t>(b.comm.rank())];
         b.comm.gatherv(first(b.in, own), first(b.out, sum(c)), c, 0);
     },
     [](Bench& b, std::size_t n) { b.comm.gather(first(b.in, n), first(b.out, n * b.ranks())); },
     [](const Counts& c) {
         return std::max(sum(c) - c[0], *std::max_element(c.begin() + 1, c.end()));
     }},
    {"scatterv",
     [](Bench& b, const Counts& c) {
         const std::size_t own = c[static_cast<std::size_t>(b.comm.rank())];
         b.comm.scatterv(first(b.in, sum(c)), c, first(b.out, own), 0);
     },
     [](Bench& b, std::size_t n) { b.comm.scatter(first(b.in, n * b.ranks()), first(b.out, n)); },
     [](const Counts& c) {
         return std::max(sum(c) - c[0], *std::max_element(c.begin() + 1, c.end()));
     }},
    {"alltoallv",
     [](Bench& b, const Counts& c) {
         const std::size_t own = pair(c)[static_cast<std::size_t>(b.comm.rank())];
         const Counts incoming(c.size(), own);
         b.comm.alltoallv(first(b.in, sum(pair(c))), pair(c), first(b.out, sum(incoming)),
                          incoming);
     },
     [](Bench& b, std::size_t n) {
         const std::size_t row = n / b.ranks() * b.ranks();
         b.comm.alltoall(first(b.in, row), first(b.out, row));
     },
     [](const Counts& c) {
         std::size_t most = 0;
         const Counts p = pair(c);
         for (const std::size_t own : p)
             most = std::max({most, sum(p) - own, own * (p.size() - 1)});
         return most;
     }},
};

void measure(Bench& bench, const Form& form, std::size_t total) {
    const auto ranks = static_cast<std::size_t>(bench.comm.size());
    const Counts equal = even(total, ranks);
    for (const Shape& shape : shapes) {
        const Counts counts = shape.share(total, ranks);
        // Scales the even form's time to the bytes of the busiest rank of this division.
        const double scale = std::max(1.0, static_cast<double>(form.busiest(counts)) /
                                               static_cast<double>(form.busiest(equal)));
        std::vector<double> ratios, times;
        for (int block = 0; block < blocks; ++block) {
            // Alternate the order, because the second form finds the machine as the first left it.
            double even_us = 0, uneven_us = 0;
            for (const bool uneven : {block % 2 == 0, block % 2 != 0}) {
                if (uneven)
                    uneven_us = bench.time_us([&] { form.run(bench, counts); });
                else
                    even_us = bench.time_us([&] { form.run_even(bench, equal[0]); });
            }
            times.push_back(uneven_us);
            ratios.push_back(uneven_us / (even_us * scale));
        }
        const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
        if (bench.comm.rank() == 0)
            fmt::print("{:<16} {:<18} {:>9.0f}  {:>5.2f}  {:.2f}–{:.2f}\n", form.name, shape.name,
                       bench::median(times), bench::median(ratios), *low, *high);
    }
}

std::size_t mebibytes(const std::string& text) {
    std::size_t mib = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, mib);
    if (error != std::errc() || rest != end || mib == 0 || mib > 1 << 20)
        throw std::runtime_error(command_line::with_advice(
            "'" + text + "' is not a size in MiB", "give a whole number from 1 to 1048576"));
    return mib;
}

constexpr const char* usage =
    "tutti-uneven-bench - measure blocks of different lengths\n\n"
    "Measures each v form (allgatherv, ...) beside the even form of the same total, in turns.\n"
    "MIB is the size of all blocks together (default 16).\n\n"
    "Usage: tutti-run -n N tutti-uneven-bench [MIB]\n";

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc > 1 && std::string_view(argv[1]) == "--help") {
            fmt::print("{}", usage);
            return 0;
        }
        tutti::Communicator comm;
        if (comm.size() < 2)
            throw std::runtime_error(command_line::with_advice(
                "this bench measures two ranks or more, and this job has one",
                "start it with tutti-run -n 2, or more ranks"));
        const std::size_t mib = argc > 1 ? mebibytes(argv[1]) : 16;
        const std::size_t total = mib * (std::size_t{1} << 20) / sizeof(float);
        Bench bench{comm, std::vector<float>(total + 4096, 1.0F), std::vector<float>(total + 4096)};
        if (comm.rank() == 0)
            fmt::print(
                "# {} MiB in all, {} ranks; ratio to the even form's time for the busiest "
                "rank's bytes\n# {:<14} {:<18} {:>9}  {:>5}  spread\n",
                mib, comm.size(), "form", "blocks", "us", "ratio");
        for (const Form& form : forms) measure(bench, form, total);
    } catch (const std::exception& error) {
        command_line::complain("tutti-uneven-bench", error.what());
        return 1;
    }
}
