#include "trainer/assembly/agreement.h"

#include <array>
#include <limits>
#include <sstream>

namespace tutti::trainer {
namespace {

// In the length of rank 0's signature: its ranks train already, and the others join them.
constexpr uint64_t admission_bit = uint64_t{1} << 63;
// Larger than any rank, for the search of the lowest rank.
constexpr int64_t no_rank = std::numeric_limits<int64_t>::max();

// The first line in which two texts differ, as each text has it.
std::string difference(const std::string& mine, const std::string& first) {
    std::istringstream a(mine), b(first);
    std::string x, y;
    for (;;) {
        const bool more_x = static_cast<bool>(std::getline(a, x));
        const bool more_y = static_cast<bool>(std::getline(b, y));
        if (!more_x && !more_y) return "";
        if (!more_x) x = "nothing";
        if (!more_y) y = "nothing";
        if (x != y) return fmt::format("{} here, {} on rank 0", x, y);
    }
}

}  // namespace

Result<> agree(const Comm& comm, int devices, const Result<>& own) {
    if (comm.size() == 1) return own;
    const Result<> begun = begin_named(comm.get(), "parallelize");
    if (!begun) {
        TRAINER_TRY(own);
        return begun;
    }
    std::array<int64_t, 2> least = {own ? no_rank : comm.rank(), -devices};
    const Result<> reduced = from_call(
        tutti_allreduce(comm.get(), least.data(), least.data(), 2, TUTTI_INT64, TUTTI_MIN),
        "agreement on what was declared");
    TRAINER_TRY(own);
    TRAINER_TRY(reduced);
    if (least[0] != no_rank)
        return fail_rank(TUTTI_ERR_INVALID, static_cast<int>(least[0]),
                         "rank {} could not build its model", least[0])
            .advice("read the error of rank {}, which has the cause", least[0])
            .agreed();
    int64_t fewest = devices;
    TRAINER_TRY(from_call(tutti_allreduce(comm.get(), &fewest, &fewest, 1, TUTTI_INT64, TUTTI_MIN),
                          "agreement on the number of devices"));
    if (fewest != -least[1])
        return invalid("ranks have from {} to {} devices, rank {} has {}", fewest, -least[1],
                       comm.rank(), devices)
            .advice("give every rank the same number of devices")
            .agreed();
    return {};
}

Result<bool> compare_signatures(const Comm& comm, const std::string& signature, bool admits) {
    if (comm.size() == 1) return false;
    uint64_t length = signature.size() | (admits ? admission_bit : 0);
    constexpr const char* doing = "comparison of models";
    TRAINER_TRY(from_call(tutti_broadcast(comm.get(), &length, 1, TUTTI_UINT64, 0), doing));
    const bool is_admission = (length & admission_bit) != 0;
    std::string first(length & ~admission_bit, '\0');
    if (comm.rank() == 0) first = signature;
    TRAINER_TRY(
        from_call(tutti_broadcast(comm.get(), first.data(), first.size(), TUTTI_UINT8, 0), doing));
    const std::string differs = difference(signature, first);
    int64_t other = differs.empty() ? no_rank : comm.rank();
    TRAINER_TRY(
        from_call(tutti_allreduce(comm.get(), &other, &other, 1, TUTTI_INT64, TUTTI_MIN), doing));
    if (!differs.empty())
        return invalid("rank {} and rank 0 declare different models: {}", comm.rank(), differs)
            .advice("declare the same model with the same options on every rank")
            .agreed();
    if (other != no_rank)
        return invalid("rank {} declares another model than rank 0", other)
            .advice("read the error of rank {}, which has the difference", other)
            .agreed();
    return is_admission;
}

Result<> number_rows(ModelRecorder& recorder, const Replicas& replicas) {
    const Comm& comm = replicas.comm;
    const std::size_t devices = replicas.devices.size();
    std::vector<int> shards;  // of device 0; all devices and ranks have the same number of shards
    for (int b = 0; b < static_cast<int>(recorder.buffers().size()); ++b) {
        const Buffer& buffer = recorder.buffer(b);
        if (buffer.device == 0 && buffer.kept() && buffer.distributed() && buffer.total_rows == 0)
            shards.push_back(b);
    }
    if (shards.empty()) return {};
    const auto each = shards.size() * devices;
    std::vector<int64_t> own, all(each * static_cast<std::size_t>(comm.size()));
    std::vector<Buffer*> parts;
    for (int b : shards)
        for (int d = 0; d < replicas.local(); ++d) {
            parts.push_back(&recorder.buffer(recorder.find(d, recorder.buffer(b).name)));
            own.push_back(parts.back()->shape.front());
        }
    TRAINER_TRY(from_call(tutti_allgather(comm.get(), own.data(), all.data(), each, TUTTI_INT64),
                          "rows of shards"));
    for (std::size_t i = 0; i < each; ++i) {
        const std::size_t shard = i / devices, device = i % devices;
        Buffer& part = *parts[i];
        part.own_rows = own[i];
        part.first_row = part.total_rows = 0;
        for (int rank = 0; rank < comm.size(); ++rank)
            for (std::size_t d = 0; d < devices; ++d) {
                const int64_t rows =
                    all[static_cast<std::size_t>(rank) * each + shard * devices + d];
                if (rank < comm.rank() || (rank == comm.rank() && d < device))
                    part.first_row += rows;
                part.total_rows += rows;
            }
    }
    return {};
}

}  // namespace tutti::trainer
