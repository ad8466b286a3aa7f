#include "trainer/model_state.h"

#include "trainer/base/boundary.h"

namespace tutti::trainer {
namespace {

// "device_1/encoder/fc" is "encoder/fc" of device 1; without a device it is of device 0.
checkpoint::ScopedName parse(const std::string& scope) {
    const std::string with_slash = scope + "/";
    auto [device, rest] = checkpoint::parse_scope(with_slash);
    return {device,
            rest.empty() ? "" : std::string_view(scope).substr(scope.size() + 1 - rest.size())};
}

int copy_with_device(void* user, void* to, const void* from, std::size_t bytes, int) {
    return guard([&] { return static_cast<tutti_device*>(user)->copy(to, from, bytes); });
}

Result<> check_access(const Buffer& buffer, std::size_t bytes) {
    if (bytes != buffer.bytes)
        return invalid("buffer '{}' has {} bytes, but the call passed {}", buffer.full_name(),
                       buffer.bytes, bytes)
            .advice("pass {} bytes", buffer.bytes);
    if (buffer.shares_memory)
        return invalid(
                   "buffer '{}' shares its memory with other buffers, so that it has no value "
                   "between steps",
                   buffer.full_name())
            .advice("declare it with TUTTI_KEEP");
    return {};
}

}  // namespace

Result<> ModelState::read(int d, const std::string& name, void* host, std::size_t bytes) const {
    TRAINER_ASSIGN(const Buffer* const found, recorder_.look_up(d, name));
    const Buffer& buffer = *found;
    TRAINER_TRY(check_access(buffer, bytes));
    return replicas_.device(d).copy(host, buffer.data, bytes);
}

Result<> ModelState::write(int d, const std::string& name, const void* host,
                           std::size_t bytes) const {
    TRAINER_ASSIGN(const Buffer* const found, recorder_.look_up(d, name));
    const Buffer& buffer = *found;
    TRAINER_TRY(check_access(buffer, bytes));
    return replicas_.device(d).copy(buffer.data, host, bytes);
}

Result<std::vector<ModelState::Param>> ModelState::params(const std::string& scope) const {
    const auto [device, inner] = parse(scope);
    const std::string prefix = inner.empty() ? "" : std::string(inner) + "/";
    std::vector<Param> list;
    bool found = inner.empty() && device < recorder_.devices();
    for (const Buffer& buffer : recorder_.buffers()) {
        if (buffer.device != device || !buffer.name.starts_with(prefix)) continue;
        found = true;
        if (buffer.kept()) list.push_back({&buffer, prefix.size()});
    }
    if (!found)
        return invalid("no scope named '{}' on the {} devices", scope, recorder_.devices())
            .advice(
                "pass \"\" for device 0, device_N for device N (0 to {}), or a scope that the "
                "builders entered",
                recorder_.devices() - 1);
    return list;
}

Result<> ModelState::add_to(checkpoint::Entries& entries) const {
    for (const Buffer& buffer : recorder_.buffers()) {
        if (!buffer.kept()) continue;
        checkpoint::StateEntry entry{.dtype = buffer.dtype, .shape = buffer.shape, .parts = {}};
        checkpoint::EntryPart part{.rows = buffer.shape.front(),
                                   .data = static_cast<std::byte*>(buffer.data)};
        if (buffer.distributed()) {
            entry.sharded = true;
            entry.shape.front() = buffer.total_rows;
            part.first_row = buffer.first_row;
            part.rows = buffer.own_rows;
        }
        part.copier = {copy_with_device, &replicas_.device(buffer.device)};
        const std::string name = buffer.full_name();
        TRAINER_TRY(checkpoint::add_part(entries, name.c_str(), std::move(entry), part));
    }
    return {};
}

}  // namespace tutti::trainer
