#include <algorithm>

#include "trainer/plan/backward.h"

namespace tutti::trainer {
namespace {

const char* kind_name(tutti_collective_kind kind) {
    static constexpr const char* names[] = {"allreduce", "broadcast", "reduce", "allgather",
                                            "reduce-scatter"};
    return names[kind];
}

Result<> check_same(const DeviceItem& first, const DeviceItem& other,
                    const ModelRecorder& recorder) {
    const CollectiveCall& a = *first.collective;
    const CollectiveCall& b = *other.collective;
    const Buffer& x = recorder.buffer(first.node.reads.front());
    const Buffer& y = recorder.buffer(other.node.reads.front());
    if (a.kind != b.kind || a.op != b.op || a.root != b.root || x.bytes != y.bytes ||
        x.dtype != y.dtype)
        return invalid(
                   "devices declare different collectives in one place: {} '{}' of {} bytes and {} "
                   "'{}' of {} bytes",
                   kind_name(a.kind), first.node.name, x.bytes, kind_name(b.kind), other.node.name,
                   y.bytes)
            .advice("declare the same collectives in the same order on every device");
    return {};
}

ProgramNode join(const std::vector<DeviceItem>& parts) {
    ProgramNode node{.name = parts.front().node.name};
    node.of_samples = parts.front().node.of_samples;
    for (const DeviceItem& part : parts) {
        node.reads.insert(node.reads.end(), part.node.reads.begin(), part.node.reads.end());
        node.writes.insert(node.writes.end(), part.node.writes.begin(), part.node.writes.end());
    }
    return node;
}

// A copy of another device's buffer comes after the pending writes to it in that device's list.
const ProgramNode* pending_writer(const DeviceItem& item, const std::vector<DeviceItems>& lists,
                                  const std::vector<std::size_t>& at,
                                  const ModelRecorder& recorder) {
    if (item.collective) return nullptr;
    for (int b : item.node.reads) {
        const int other = recorder.buffer(b).device;
        if (other == item.node.device) continue;
        const auto d = static_cast<std::size_t>(other);
        for (std::size_t i = at[d]; i < lists[d].size(); ++i)
            if (std::ranges::find(lists[d][i].node.writes, b) != lists[d][i].node.writes.end())
                return &lists[d][i].node;
    }
    return nullptr;
}

Result<> check_pending_writers(const std::vector<DeviceItems>& lists,
                               const std::vector<std::size_t>& at, const ModelRecorder& recorder) {
    for (std::size_t d = 0; d < lists.size(); ++d) {
        if (at[d] == lists[d].size()) continue;
        const DeviceItem& item = lists[d][at[d]];
        if (const ProgramNode* writer = pending_writer(item, lists, at, recorder))
            return invalid(
                       "copy '{}' reads the output of '{}', which runs after a collective that "
                       "waits for the copy",
                       item.node.name, writer->name)
                .advice("declare the copy after that collective");
    }
    return {};
}

}  // namespace

Result<> merge(Program& program, std::vector<DeviceItems> lists, const ModelRecorder& recorder,
               const std::function<void(ProgramNode&, const std::vector<DeviceItem>&)>& joined) {
    std::vector<std::size_t> at(lists.size());
    std::size_t left = 0;
    for (const DeviceItems& list : lists) left += list.size();
    while (left > 0) {
        bool moved = false;
        for (std::size_t d = 0; d < lists.size(); ++d) {
            if (at[d] == lists[d].size() || lists[d][at[d]].collective) continue;
            if (pending_writer(lists[d][at[d]], lists, at, recorder)) continue;
            program.nodes.push_back(std::move(lists[d][at[d]++].node));
            moved = true;
            --left;
        }
        if (moved) continue;
        TRAINER_TRY(check_pending_writers(lists, at, recorder));
        std::vector<DeviceItem> parts;  // every device that is not done is at a collective
        for (std::size_t d = 0; d < lists.size(); ++d)
            if (at[d] < lists[d].size()) parts.push_back(std::move(lists[d][at[d]++]));
        if (parts.size() != lists.size())
            return invalid("collective '{}' is not declared by all {} devices",
                           parts.front().node.name, lists.size())
                .advice("declare it in the builder of every device");
        for (const DeviceItem& part : parts) TRAINER_TRY(check_same(parts.front(), part, recorder));
        left -= parts.size();
        ProgramNode node = join(parts);
        joined(node, parts);
        program.nodes.push_back(std::move(node));
    }
    return {};
}

}  // namespace tutti::trainer
