#include "trainer/plan/sanity.h"

#include <fmt/ranges.h>

namespace tutti::trainer {
namespace {

Result<> check_own(const ModelRecorder& recorder, const DeclaredOperation& op,
                   const std::vector<int>& list, const char* verb) {
    for (int b : list) {
        const Buffer& buffer = recorder.buffer(b);
        if (buffer.device == op.device) continue;
        return invalid("operation '{}' of scope device_{} {} '{}' of scope device_{}",
                       op.full_name(), op.device, verb, buffer.full_name(), buffer.device)
            .advice(
                "move data between devices with tutti_model_collective or tutti_model_copy only");
    }
    return {};
}

const Buffer* find(const ModelRecorder& recorder, int device, const std::string& name,
                   tutti_buffer_kind kind) {
    const int found = recorder.find(device, name);
    if (found == none || recorder.buffer(found).kind != kind) return nullptr;
    return &recorder.buffer(found);
}

const char* kind_name(tutti_buffer_kind kind) {
    return kind == TUTTI_PARAMETER  ? "parameter"
           : kind == TUTTI_COMPUTED ? "computed buffer"
                                    : "state buffer";
}

Result<> check_pair(const Buffer& a, const Buffer& b) {
    if (a.distributed() != b.distributed())
        return invalid("'{}' is distributed, '{}' is not", (a.distributed() ? a : b).full_name(),
                       (a.distributed() ? b : a).full_name())
            .advice("declare both with TUTTI_DISTRIBUTED, or neither");
    if (a.distributed()) return {};
    if (a.dtype != b.dtype)
        return invalid("'{}' is of {}, '{}' of {}", a.full_name(), tutti_dtype_name(a.dtype),
                       b.full_name(), tutti_dtype_name(b.dtype))
            .advice("declare the same dtype on every device");
    if (a.shape != b.shape)
        return invalid("'{}' has the shape [{}], '{}' [{}]", a.full_name(),
                       fmt::join(a.shape, ", "), b.full_name(), fmt::join(b.shape, ", "))
            .advice("declare the same shape on every device");
    return {};
}

Result<> check_against_first(const ModelRecorder& recorder, int device, tutti_buffer_kind kind) {
    for (int b : recorder.of_kind(0, kind)) {
        const Buffer& first = recorder.buffer(b);
        const Buffer* other = find(recorder, device, first.name, kind);
        if (!other)
            return invalid("{} '{}' of scope device_0 is missing in scope device_{}",
                           kind_name(kind), first.name, device)
                .advice("declare it in the builder of every device");
        TRAINER_TRY(check_pair(first, *other));
    }
    for (int b : recorder.of_kind(device, kind))
        if (!find(recorder, 0, recorder.buffer(b).name, kind))
            return invalid("{} '{}' of scope device_{} is missing in scope device_0",
                           kind_name(kind), recorder.buffer(b).name, device)
                .advice("declare it in the builder of every device");
    return {};
}

}  // namespace

Result<> check_sanity(const ModelRecorder& recorder) {
    for (const DeclaredOperation& op : recorder.operations()) {
        if (op.collective || op.copies) continue;
        TRAINER_TRY(check_own(recorder, op, op.reads, "reads"));
        TRAINER_TRY(check_own(recorder, op, op.writes, "writes"));
    }
    for (int device = 1; device < recorder.devices(); ++device)
        for (tutti_buffer_kind kind : {TUTTI_PARAMETER, TUTTI_COMPUTED, TUTTI_STATE})
            TRAINER_TRY(check_against_first(recorder, device, kind));
    return {};
}

std::string signature(const ModelRecorder& recorder, int device) {
    std::string text;
    for (tutti_buffer_kind kind : {TUTTI_PARAMETER, TUTTI_COMPUTED, TUTTI_STATE})
        for (int b : recorder.of_kind(device, kind)) {
            const Buffer& buffer = recorder.buffer(b);
            text += fmt::format("{} '{}'", kind_name(kind), buffer.name);
            text += buffer.distributed()
                        ? fmt::format(" (distributed, total_rows {})\n", buffer.total_rows)
                        : fmt::format(" of {} [{}]\n", tutti_dtype_name(buffer.dtype),
                                      fmt::join(buffer.shape, ", "));
        }
    return text;
}

}  // namespace tutti::trainer
