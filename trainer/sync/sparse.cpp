#include "trainer/sync/sparse.h"

#include <algorithm>
#include <numeric>

namespace tutti::trainer {
namespace {

// The buffers of one device's list.
struct ListBuffers {
    int values, rows, count;
};

struct List {
    std::vector<int64_t> rows;
    std::vector<std::byte> values;
};

std::size_t row_bytes(const Buffer& table) {
    const auto rows = static_cast<std::size_t>(table.shape.front());
    return rows ? table.bytes / rows : 0;
}

// Takes the devices' lists one after the other; false if a list's count exceeds its room.
Result<bool> take_lists(const ModelRecorder& recorder, const std::vector<Device*>& devices,
                        const std::vector<ListBuffers>& entries, List& list) {
    for (std::size_t d = 0; d < devices.size(); ++d) {
        const Buffer& values = recorder.buffer(entries[d].values);
        int64_t count = 0;
        TRAINER_TRY(
            devices[d]->copy(&count, recorder.buffer(entries[d].count).data, sizeof(count)));
        if (count < 0 || count > values.shape.front()) return false;
        const auto more = static_cast<std::size_t>(count);
        const std::size_t before = list.rows.size();
        list.rows.resize(before + more);
        list.values.resize((before + more) * row_bytes(values));
        TRAINER_TRY(devices[d]->copy(list.rows.data() + before,
                                     recorder.buffer(entries[d].rows).data,
                                     more * sizeof(int64_t)));
        TRAINER_TRY(devices[d]->copy(list.values.data() + before * row_bytes(values), values.data,
                                     more * row_bytes(values)));
    }
    return true;
}

// The lists of all ranks, in their order.
Result<List> gather(const Comm& comm, const List& own, bool valid, std::size_t bytes_of_row,
                    const std::string& name) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    std::vector<int64_t> counts(ranks);
    const int64_t mine = valid ? static_cast<int64_t>(own.rows.size()) : -1;
    TRAINER_TRY(run_within(step_name, name, [&](auto* opts, auto* request) {
        return tutti_iallgather(comm.get(), &mine, counts.data(), 1, TUTTI_INT64, opts, request);
    }));
    const auto bad = std::ranges::find(counts, -1);
    if (bad != counts.end())
        return fail_rank(TUTTI_ERR_INVALID, static_cast<int>(bad - counts.begin()),
                         "'{}' of rank {} has more entries than sparse_rows allows", name,
                         bad - counts.begin())
            .agreed()
            .advice("declare the parameter with a larger sparse_rows");
    std::vector<std::size_t> rows(counts.begin(), counts.end()), bytes;
    for (std::size_t n : rows) bytes.push_back(n * bytes_of_row);
    const std::size_t total = std::accumulate(rows.begin(), rows.end(), std::size_t{0});
    List all{std::vector<int64_t>(total), std::vector<std::byte>(total * bytes_of_row)};
    TRAINER_TRY(from_call(tutti_allgatherv(comm.get(), own.rows.data(), all.rows.data(),
                                           rows.data(), nullptr, TUTTI_INT64),
                          name));
    TRAINER_TRY(from_call(tutti_allgatherv(comm.get(), own.values.data(), all.values.data(),
                                           bytes.data(), nullptr, TUTTI_UINT8),
                          name));
    return all;
}

template <typename T>
List merged(const List& list, std::size_t row_elements) {
    std::vector<std::size_t> order(list.rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return list.rows[i]; });
    List sums;
    const auto* values = reinterpret_cast<const T*>(list.values.data());
    std::vector<T> row(row_elements);
    const auto append = [&](int64_t number) {
        sums.rows.push_back(number);
        const auto* bytes = reinterpret_cast<const std::byte*>(row.data());
        sums.values.insert(sums.values.end(), bytes, bytes + row_elements * sizeof(T));
    };
    for (std::size_t i = 0; i < order.size(); ++i) {
        const int64_t number = list.rows[order[i]];
        const T* add = values + order[i] * row_elements;
        if (i > 0 && list.rows[order[i - 1]] == number) {
            for (std::size_t k = 0; k < row_elements; ++k) row[k] += add[k];
        } else {
            row.assign(add, add + row_elements);
        }
        if (i + 1 == order.size() || list.rows[order[i + 1]] != number) append(number);
    }
    return sums;
}

// Returns the bytes of all lists.
Result<uint64_t> sum_sparse(const ModelRecorder& recorder, const std::vector<Device*>& devices,
                            const Comm& comm, const std::vector<ListBuffers>& entries) {
    const Buffer& first = recorder.buffer(entries.front().values);
    const std::size_t bytes = row_bytes(first);
    List own;
    TRAINER_ASSIGN(const bool valid, take_lists(recorder, devices, entries, own));
    TRAINER_ASSIGN(const List all, gather(comm, own, valid, bytes, first.name));
    const List sums = first.dtype == TUTTI_FLOAT32 ? merged<float>(all, bytes / sizeof(float))
                                                   : merged<double>(all, bytes / sizeof(double));
    const auto count = static_cast<int64_t>(sums.rows.size());
    if (count > first.shape.front())
        return invalid(
                   "'{}' has {} rows of all ranks together, more than the {} that sparse_rows "
                   "allows",
                   first.name, count, first.shape.front())
            .agreed()
            .advice("declare the parameter with a larger sparse_rows");
    for (std::size_t d = 0; d < devices.size(); ++d) {
        Device& device = *devices[d];
        TRAINER_TRY(device.copy(recorder.buffer(entries[d].rows).data, sums.rows.data(),
                                sums.rows.size() * sizeof(int64_t)));
        TRAINER_TRY(device.copy(recorder.buffer(entries[d].values).data, sums.values.data(),
                                sums.values.size()));
        TRAINER_TRY(device.copy(recorder.buffer(entries[d].count).data, &count, sizeof(count)));
    }
    return all.rows.size() * sizeof(int64_t) + all.values.size();
}

}  // namespace

void append_sparse_sums(Program& program, TaskTable& tasks, const ModelRecorder& recorder,
                        const Replicas& replicas) {
    for (int b : recorder.of_kind(0, TUTTI_PARAMETER)) {
        if (!recorder.buffer(b).sparse()) continue;
        const std::string& name = recorder.buffer(b).name;
        ProgramNode node{.name = "sparse gradient of " + name};
        std::vector<ListBuffers> lists;
        for (int d = 0; d < replicas.local(); ++d) {
            const Buffer& table = recorder.buffer(recorder.find(d, name));
            lists.push_back({table.gradient, table.sparse_rows, table.sparse_count});
            node.reads.insert(node.reads.end(),
                              {table.gradient, table.sparse_rows, table.sparse_count});
        }
        node.writes = node.reads;
        Task task{.name = node.name, .whole_of = b};
        task.whole = [&recorder, &replicas, lists = std::move(lists)] {
            return sum_sparse(recorder, replicas.devices, replicas.comm, lists);
        };
        node.task = tasks.add(std::move(task));
        program.nodes.push_back(std::move(node));
    }
}

namespace {

struct Requests {
    std::vector<std::size_t> order;       // of the caller's rows, sorted by the rank that has them
    std::vector<std::size_t> out_counts;  // rows asked of each rank
    std::vector<std::size_t> in_counts;   // rows that each rank asks of this one
};

// The error in this rank's request or shards, "" if there is none.
std::string problem_of(const ShardedTable& table, int first_replica, int64_t per_replica,
                       std::span<const int64_t> rows) {
    for (int64_t row : rows)
        if (row < 0 || row >= table.total_rows)
            return fmt::format("row {} is out of range: the table has {} rows", row,
                               table.total_rows);
    for (std::size_t d = 0; d < table.shards.size(); ++d) {
        const int64_t begin = (first_replica + static_cast<int64_t>(d)) * per_replica;
        const int64_t wanted = std::clamp<int64_t>(table.total_rows - begin, 0, per_replica);
        if (!table.shards[d]->distributed() || table.shards[d]->shape.front() < wanted)
            return fmt::format("'{}' is not a distributed buffer of at least {} rows",
                               table.shards[d]->full_name(), wanted);
    }
    return "";
}

std::vector<std::size_t> times(const std::vector<std::size_t>& counts, std::size_t factor) {
    std::vector<std::size_t> list;
    for (std::size_t n : counts) list.push_back(n * factor);
    return list;
}

std::size_t total(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Tells every rank the number of rows that this rank asks of it, or -1 if this rank has an error.
Result<Requests> agree_on(const Comm& comm, std::span<const int64_t> rows, int64_t rows_of_rank,
                          const std::string& problem) {
    TRAINER_TRY(begin_named(comm.get(), "sparse pull"));
    const auto ranks = static_cast<std::size_t>(comm.size());
    Requests r;
    std::vector<int64_t> asked(ranks, problem.empty() ? 0 : -1), from(ranks);
    if (problem.empty())
        for (int64_t row : rows) ++asked[static_cast<std::size_t>(row / rows_of_rank)];
    TRAINER_TRY(from_call(tutti_alltoall(comm.get(), asked.data(), from.data(), 1, TUTTI_INT64),
                          "sparse_pull"));
    if (!problem.empty())
        return invalid("{}", problem)
            .advice("pass the table's total_rows, and rows from 0 to total_rows - 1");
    if (const auto bad = std::ranges::find(from, -1); bad != from.end())
        return invalid("rank {} passed arguments that do not fit", bad - from.begin())
            .advice("read the error of rank {}, which has the cause", bad - from.begin());
    r.out_counts.assign(asked.begin(), asked.end());
    r.in_counts.assign(from.begin(), from.end());
    r.order.resize(rows.size());
    std::iota(r.order.begin(), r.order.end(), std::size_t{0});
    std::ranges::stable_sort(r.order, {}, [&](std::size_t i) { return rows[i] / rows_of_rank; });
    return r;
}

}  // namespace

Result<> pull_rows(const ShardedTable& table, const Comm& comm, std::span<const int64_t> rows,
                   std::byte* values) {
    const auto devices = static_cast<int64_t>(table.shards.size());
    const int64_t replicas = devices * comm.size();
    const int64_t per_replica = std::max<int64_t>(1, (table.total_rows + replicas - 1) / replicas);
    const int first = static_cast<int>(devices) * comm.rank();
    TRAINER_ASSIGN(const Requests r, agree_on(comm, rows, per_replica * devices,
                                              problem_of(table, first, per_replica, rows)));
    std::size_t bytes = 0;
    for (const Buffer* shard : table.shards) bytes = std::max(bytes, row_bytes(*shard));
    uint64_t widest = bytes;  // a rank whose shard is empty does not know it
    TRAINER_TRY(from_call(tutti_allreduce(comm.get(), &widest, &widest, 1, TUTTI_UINT64, TUTTI_MAX),
                          "sparse_pull"));
    bytes = widest;
    std::vector<int64_t> asked, wanted(total(r.in_counts));
    for (std::size_t i : r.order) asked.push_back(rows[i]);
    TRAINER_TRY(from_call(tutti_alltoallv(comm.get(), asked.data(), r.out_counts.data(), nullptr,
                                          wanted.data(), r.in_counts.data(), nullptr, TUTTI_INT64),
                          "sparse_pull"));
    std::vector<std::byte> given(wanted.size() * bytes), got(asked.size() * bytes);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const int64_t replica = wanted[i] / per_replica - first;
        if (replica < 0 || replica >= devices)
            return invalid("another rank asked for row {}, which this rank does not have",
                           wanted[i])
                .advice("pass the same total_rows on every rank");
        const auto d = static_cast<std::size_t>(replica);
        const auto* shard = static_cast<const std::byte*>(table.shards[d]->data);
        const auto at = static_cast<std::size_t>(wanted[i] % per_replica);
        TRAINER_TRY(table.devices[d]->copy(given.data() + i * bytes, shard + at * bytes, bytes));
    }
    const auto send = times(r.in_counts, bytes), receive = times(r.out_counts, bytes);
    TRAINER_TRY(from_call(tutti_alltoallv(comm.get(), given.data(), send.data(), nullptr,
                                          got.data(), receive.data(), nullptr, TUTTI_UINT8),
                          "sparse_pull"));
    for (std::size_t i = 0; i < r.order.size(); ++i)
        std::copy_n(got.data() + i * bytes, bytes, values + r.order[i] * bytes);
    return {};
}

}  // namespace tutti::trainer
