#include "handles/handle_list.h"

#include <fmt/format.h>

#include <map>

#include "base/hash.h"

namespace tutti {

Result<HandleList> HandleList::decode(std::span<const ByteView> handles, const Config& config) {
    HandleList list;
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < handles.size(); ++i) {
        const std::string name = fmt::format("handle {} of {}", i, handles.size());
        auto handle = Handle::decode(handles[i]);
        if (!handle) return wrap(std::move(handle).error(), name);
        if (auto fits = handle->check(config.job, config.secret); !fits)
            return wrap(std::move(fits).error(), name);
        const auto [place, first] = places.emplace(handle->process, i);
        if (!first)
            return fail(Code::invalid, "handles {} and {} of {} are the same process's",
                        place->second, i, handles.size())
                .advice("give each process's handle once");
        list.handles_.push_back(*std::move(handle));
    }
    return list;
}

Result<Rank> HandleList::rank_of(const Handle& process) const {
    for (Rank rank = 0; rank < size(); ++rank)
        if ((*this)[rank].process == process.process) return rank;
    return fail(
               Code::invalid,
               "none of the {} handle{} is this process's, so it has no rank (its own leads to {})",
               size(), size() == 1 ? "" : "s", process.address)
        .advice(
            "add the handle that tutti_comm_get_handle returned in this process; a forked child "
            "must get one of its own");
}

uint64_t HandleList::hash() const {
    uint64_t hash = hash_basis;
    for (const Handle& handle : handles_) hash = mix_hash(hash, hash_of(handle.process));
    return hash;
}

uint64_t HandleList::set_hash() const {
    uint64_t sum = 0;
    for (const Handle& handle : handles_) sum += hash_of(handle.process);
    return sum;
}

}  // namespace tutti
