// Every collective that reduces, run by every algorithm of the catalog, against its definition.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "process/rank.h"

namespace rank_test {

/// The caller's place in a communicator, which may have other ranks than the job.
struct Members {
    tutti_comm* comm = nullptr;
    int rank = 0, ranks = 1;
    explicit Members(tutti_comm* c)
        : comm(c), rank(tutti_comm_rank(c)), ranks(tutti_comm_size(c)) {}
};

/// A collective that reduces. Blocks are one after the other; a message is a single one.
struct Form {
    const char* name;  // the algorithms' catalog has it under this
    bool blocks, uneven;
    /// The ranks whose contributions come to this rank, and whether it gets a result.
    int (*last)(const Members&);
    bool (*receives)(const Members&);
};

inline bool everyone(const Members&) {
    return true;
}
inline int all(const Members& m) {
    return m.ranks;
}
inline const std::vector<Form>& forms() {
    static const std::vector<Form> list = {
        {"allreduce", false, false, all, everyone},
        {"reduce", false, false, all, [](const Members& m) { return m.rank == m.ranks - 1; }},
        {"reduce_scatter", true, false, all, everyone},
        {"reduce_scatter", true, true, all, everyone},
        {"scan", false, false, [](const Members& m) { return m.rank + 1; }, everyone},
        {"exscan", false, false, [](const Members& m) { return m.rank; },
         [](const Members& m) { return m.rank > 0; }},
    };
    return list;
}

/// Elements of each rank's block: as many for all, or from none to several times `count`.
inline std::vector<std::size_t> lengths(const Form& form, const Members& m, std::size_t count) {
    std::vector<std::size_t> counts(form.blocks ? static_cast<std::size_t>(m.ranks) : 1, count);
    for (std::size_t r = 0; form.uneven && r < counts.size(); ++r) counts[r] = count * (r % 4);
    return counts;
}

/// The type, the operator, and rank r's contribution of so many elements.
template <typename T>
struct Work {
    tutti_dtype dtype;
    tutti_op op;
    std::function<std::vector<T>(int rank, std::size_t length)> input;
    /// The reduction of the contributions of ranks 0 … last-1.
    std::function<std::vector<T>(int last, std::size_t length)> result;
};

inline tutti_status start(const Form& form, const Members& m, const void* in, void* out,
                          const std::vector<std::size_t>& counts, tutti_dtype dtype, tutti_op op,
                          const tutti_call_opts* opts, tutti_request** request) {
    const std::string name = form.name;
    const std::size_t n = counts[0];
    if (form.uneven)
        return tutti_ireduce_scatterv(m.comm, in, out, counts.data(), dtype, op, opts, request);
    if (name == "allreduce") return tutti_iallreduce(m.comm, in, out, n, dtype, op, opts, request);
    if (name == "reduce")
        return tutti_ireduce(m.comm, in, out, n, dtype, op, m.ranks - 1, opts, request);
    if (name == "reduce_scatter")
        return tutti_ireduce_scatter(m.comm, in, out, n, dtype, op, opts, request);
    if (name == "scan") return tutti_iscan(m.comm, in, out, n, dtype, op, opts, request);
    return tutti_iexscan(m.comm, in, out, n, dtype, op, opts, request);
}

/// Runs it once, right to the bit, or gives up. False where the algorithm refuses, with a sentence
/// that lists others.
template <typename T>
bool run_once(const Form& form, const Members& m, const Work<T>& work, std::size_t count,
              const char* algorithm) {
    const std::vector<std::size_t> counts = lengths(form, m, count);
    const auto me = form.blocks ? static_cast<std::size_t>(m.rank) : 0;
    std::size_t length = 0, before = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
        if (r < me) before += counts[r];
        length += counts[r];
    }
    const std::vector<T> in = work.input(m.rank, length);
    std::vector<T> out(counts[me] + 1);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.algorithm = algorithm;
    const std::string what = std::string(form.name) + (form.uneven ? "v" : "") + " by " +
                             (algorithm ? algorithm : "choice") + " of " + std::to_string(count);
    tutti_request* request = nullptr;
    const tutti_status started =
        start(form, m, in.data(), out.data(), counts, work.dtype, work.op, &opts, &request);
    if (algorithm && started == TUTTI_ERR_UNSUPPORTED) {
        require(std::strstr(tutti_last_error(), "What to do: use one of ") != nullptr, what);
        return false;
    }
    need(started, what);
    need(tutti_wait(&request, -1), what);
    if (!form.receives(m)) return true;
    const std::vector<T> whole = work.result(form.last(m), length);
    for (std::size_t i = 0; i < counts[me]; ++i)
        require(out[i] == whole[before + i], what + ": element " + std::to_string(i));
    require(out[counts[me]] == T{}, what + ": wrote past its end");
    return true;
}

inline std::vector<std::string> algorithms_of(const Form& form) {
    std::vector<std::string> names;
    for (int i = 0; const char* name = tutti_algorithm_name(form.name, i); ++i)
        names.emplace_back(name);
    return names;
}

}  // namespace rank_test
