/**
 * @file checkpoint.hpp
 * @brief A thin RAII layer over checkpoint.h for C++20: header only, errors are exceptions.
 *
 *     tutti::Checkpoint state;
 *     state.add("conv/weight", weight, {64, 9}).add("iteration", iteration);
 *     state.add_shard("fc/weight", own_rows, {classes, 128}, first_row);
 *     state.save("epoch-12.safetensors", comm.get());
 */
#ifndef TUTTI_CHECKPOINT_HPP
#define TUTTI_CHECKPOINT_HPP

#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "tutti/checkpoint.h"
#include "tutti/handles.hpp"
#include "tutti/trainer_errors.hpp"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// Strictness of a restore.
struct RestoreOptions {
    bool allow_missing = false;  ///< entries that the file lacks keep the values they have
    bool allow_extra = false;    ///< the file may have entries that are not in the list

    tutti_checkpoint_opts c_options() const {
        tutti_checkpoint_opts opts = TUTTI_CHECKPOINT_OPTS_INIT;
        opts.allow_missing = allow_missing ? 1 : 0;
        opts.allow_extra = allow_extra ? 1 : 0;
        return opts;
    }
};

/// State to save or to restore, by name. The ranges stay the caller's and are not resized until the
/// last save or load. Move only.
class Checkpoint {
public:
    using Shape = std::vector<int64_t>;

    Checkpoint() {
        tutti_checkpoint* list = nullptr;
        detail::check_trainer(tutti_checkpoint_create(&list));
        list_.reset(list);
    }

    /// A value that every rank and device has. Without a shape it has one dimension.
    template <Buffer B>
    Checkpoint& add(const std::string& name, B&& values, const Shape& shape = {}) {
        const std::size_t count = std::ranges::size(values);
        const Shape whole = shape.empty() ? Shape{static_cast<int64_t>(count)} : shape;
        check_count(name, count, elements(whole, 0));
        detail::check_trainer(tutti_checkpoint_add(
            list_.get(), name.c_str(), std::ranges::data(values),
            dtype_of<std::ranges::range_value_t<B>>, static_cast<int>(whole.size()), whole.data()));
        return *this;
    }
    /// The range's rows, from first_row on, of a value of that whole shape.
    template <Buffer B>
    Checkpoint& add_shard(const std::string& name, B&& values, const Shape& shape,
                          int64_t first_row) {
        const std::size_t count = std::ranges::size(values), row = elements(shape, 1);
        const std::size_t rows = row == 0 ? 0 : count / row;
        check_count(name, count, rows * row);
        detail::check_trainer(tutti_checkpoint_add_shard(
            list_.get(), name.c_str(), std::ranges::data(values),
            dtype_of<std::ranges::range_value_t<B>>, static_cast<int>(shape.size()), shape.data(),
            first_row, static_cast<int64_t>(rows)));
        return *this;
    }
    Checkpoint& set_text(const std::string& key, const std::string& text) {
        detail::check_trainer(tutti_checkpoint_set_text(list_.get(), key.c_str(), text.c_str()));
        return *this;
    }
    std::optional<std::string> text(const std::string& key) const {
        const char* found = tutti_checkpoint_text(list_.get(), key.c_str());
        return found ? std::optional<std::string>(found) : std::nullopt;
    }

    /// Collective over comm.
    void save(const std::string& path, tutti_comm* comm = nullptr) {
        detail::check_trainer(tutti_checkpoint_save(list_.get(), comm, path.c_str()));
    }
    /// Collective over comm. Returns the entries that the file lacks (allow_missing).
    std::vector<std::string> load(const std::string& path, tutti_comm* comm = nullptr,
                                  const RestoreOptions& options = {}) {
        const tutti_checkpoint_opts opts = options.c_options();
        detail::check_trainer(tutti_checkpoint_load(list_.get(), comm, path.c_str(), &opts));
        std::vector<std::string> missing;
        while (const char* name =
                   tutti_checkpoint_missing(list_.get(), static_cast<int>(missing.size())))
            missing.emplace_back(name);
        return missing;
    }
    /// The handle, for further calls of the C API.
    tutti_checkpoint* get() const { return list_.get(); }

private:
    static std::size_t elements(const Shape& shape, std::size_t from) {
        std::size_t count = 1;
        for (std::size_t d = from; d < shape.size(); ++d)
            count *= static_cast<std::size_t>(shape[d]);
        return count;
    }
    static void check_count(const std::string& name, std::size_t found, std::size_t expected) {
        if (found != expected)
            detail::refuse("checkpoint: entry '" + name + "' has " + std::to_string(found) +
                               " elements, its shape " + std::to_string(expected),
                           "pass a shape of as many elements as the range");
    }
    detail::Handle<tutti_checkpoint, tutti_checkpoint_destroy> list_;
};

}  // namespace cxx
}  // namespace tutti

#endif
