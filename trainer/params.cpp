// What makes up a model's state: listed by scope, and saved and restored as a checkpoint.
#include <algorithm>
#include <charconv>

#include "trainer/trainer.h"

using namespace tutti::training;
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
    return guard("a checkpoint's copy",
                 [&] { static_cast<tutti_device*>(user)->copy(to, from, bytes); });
}

void throw_error(const tutti::trainer::Error& error) {
    throw Failure(error.status, error.message, error.rank);
}

}  // namespace

// Shards that do not say where they begin follow one another in the order of the replicas.
void tutti_trainer::number_rows() {
    std::vector<int> shards;  // of device 0; the other devices and ranks have as many
    for (int b = 0; b < static_cast<int>(recorder_.buffers().size()); ++b) {
        const Buffer& buffer = recorder_.buffer(b);
        if (buffer.device == 0 && buffer.kept() && buffer.distributed() && buffer.total_rows == 0)
            shards.push_back(b);
    }
    if (shards.empty()) return;
    const auto each = shards.size() * devices_.size();
    std::vector<int64_t> own, all(each * static_cast<std::size_t>(comm_.size()));
    std::vector<Buffer*> parts;
    for (int b : shards)
        for (int d = 0; d < devices(); ++d) {
            parts.push_back(&recorder_.buffer(recorder_.find(d, recorder_.buffer(b).name)));
            own.push_back(parts.back()->shape.front());
        }
    check_call(tutti_allgather(comm_.get(), own.data(), all.data(), each, TUTTI_INT64),
               "rows of shards");
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
}

std::vector<tutti_trainer::Param> tutti_trainer::params(const std::string& scope) const {
    const auto [device, inner] = parse(scope);
    const std::string prefix = inner.empty() ? "" : std::string(inner) + "/";
    std::vector<Param> list;
    bool found = inner.empty() && device < devices();
    for (const Buffer& buffer : recorder_.buffers()) {
        if (buffer.device != device || !buffer.name.starts_with(prefix)) continue;
        found = true;
        if (buffer.kept()) list.push_back({&buffer, prefix.size()});
    }
    if (!found) invalid("there is no scope '{}'; there are {} devices", scope, devices());
    return list;
}

void tutti_trainer::add_to(checkpoint::Entries& entries) const {
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
        const auto added = checkpoint::add_part(entries, name.c_str(), std::move(entry), part);
        if (!added) throw_error(added.error());
    }
}

void tutti_trainer::save(const std::string& path) {
    need_working("tutti_trainer_save");
    checkpoint::Entries entries;
    add_to(entries);
    const auto saved = checkpoint::save(entries, {}, {}, comm_.get(), path);
    if (!saved) throw_error(saved.error());
}

void tutti_trainer::load(const std::string& path, const tutti_checkpoint_opts* opts) {
    if (!broken_.empty()) need_working("tutti_trainer_load");
    const auto strictness = checkpoint::read_strictness(opts);
    if (!strictness) throw_error(strictness.error());
    checkpoint::Entries entries;
    add_to(entries);
    bool began = false;
    const auto loaded = checkpoint::load(entries, {}, comm_.get(), path, *strictness, &began);
    if (!loaded) {
        if (began) half_loaded_ = loaded.error().message;
        throw_error(loaded.error());
    }
    half_loaded_.clear();
    sync();
}
