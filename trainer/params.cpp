// What makes up a model's state: listed by scope, and saved and restored as a checkpoint.
#include <algorithm>
#include <charconv>

#include "trainer/base/boundary.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;
namespace checkpoint = tutti::trainer::checkpoint;

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

}  // namespace

// Shards that do not say where they begin follow one another in the order of the replicas.
Result<> tutti_trainer::number_rows() {
    std::vector<int> shards;  // of device 0; the other devices and ranks have as many
    for (int b = 0; b < static_cast<int>(recorder_.buffers().size()); ++b) {
        const Buffer& buffer = recorder_.buffer(b);
        if (buffer.device == 0 && buffer.kept() && buffer.distributed() && buffer.total_rows == 0)
            shards.push_back(b);
    }
    if (shards.empty()) return {};
    const auto each = shards.size() * devices_.size();
    std::vector<int64_t> own, all(each * static_cast<std::size_t>(comm_.size()));
    std::vector<Buffer*> parts;
    for (int b : shards)
        for (int d = 0; d < devices(); ++d) {
            parts.push_back(&recorder_.buffer(recorder_.find(d, recorder_.buffer(b).name)));
            own.push_back(parts.back()->shape.front());
        }
    TRAINER_TRY(from_call(tutti_allgather(comm_.get(), own.data(), all.data(), each, TUTTI_INT64),
                          "rows of shards"));
    for (std::size_t i = 0; i < each; ++i) {
        const std::size_t shard = i / devices_.size(), device = i % devices_.size();
        Buffer& part = *parts[i];
        part.own_rows = own[i];
        part.first_row = part.total_rows = 0;
        for (int rank = 0; rank < comm_.size(); ++rank)
            for (std::size_t d = 0; d < devices_.size(); ++d) {
                const int64_t rows =
                    all[static_cast<std::size_t>(rank) * each + shard * devices_.size() + d];
                if (rank < comm_.rank() || (rank == comm_.rank() && d < device))
                    part.first_row += rows;
                part.total_rows += rows;
            }
    }
    return {};
}

Result<std::vector<tutti_trainer::Param>> tutti_trainer::params(const std::string& scope) const {
    const auto [device, inner] = parse(scope);
    const std::string prefix = inner.empty() ? "" : std::string(inner) + "/";
    std::vector<Param> list;
    bool found = inner.empty() && device < devices();
    for (const Buffer& buffer : recorder_.buffers()) {
        if (buffer.device != device || !buffer.name.starts_with(prefix)) continue;
        found = true;
        if (buffer.kept()) list.push_back({&buffer, prefix.size()});
    }
    if (!found) return invalid("there is no scope '{}'; there are {} devices", scope, devices());
    return list;
}

Result<> tutti_trainer::add_to(checkpoint::Entries& entries) const {
    for (const Buffer& buffer : recorder_.buffers()) {
        if (!buffer.kept()) continue;
        checkpoint::Entry entry{.dtype = buffer.dtype, .shape = buffer.shape, .parts = {}};
        checkpoint::Part part{.rows = buffer.shape.front(),
                              .data = static_cast<std::byte*>(buffer.data)};
        if (buffer.distributed()) {
            entry.sharded = true;
            entry.shape.front() = buffer.total_rows;
            part.first_row = buffer.first_row;
            part.rows = buffer.own_rows;
        }
        part.copier = {copy_with_device, devices_[static_cast<std::size_t>(buffer.device)]};
        const std::string name = buffer.full_name();
        TRAINER_TRY(checkpoint::add_part(entries, name.c_str(), std::move(entry), part));
    }
    return {};
}

Result<> tutti_trainer::save(const std::string& path) {
    TRAINER_TRY(need_working("tutti_trainer_save"));
    checkpoint::Entries entries;
    TRAINER_TRY(add_to(entries));
    return checkpoint::save(entries, {}, {}, comm_.get(), path);
}

Result<> tutti_trainer::load(const std::string& path, const tutti_checkpoint_opts* opts) {
    if (!broken_.empty()) TRAINER_TRY(need_working("tutti_trainer_load"));
    TRAINER_ASSIGN(const auto strictness, checkpoint::read_strictness(opts));
    checkpoint::Entries entries;
    TRAINER_TRY(add_to(entries));
    bool began = false;
    const auto loaded = checkpoint::load(entries, {}, comm_.get(), path, strictness, &began);
    if (!loaded) {
        if (began) half_loaded_ = loaded.error().message;
        return tl::unexpected<Error>(loaded.error());
    }
    half_loaded_.clear();
    Result<> synced = sync();
    if (!synced) half_loaded_ = synced.error().message;
    return synced;
}
