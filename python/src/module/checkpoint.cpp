#include "checkpoint.h"

#include "errors.h"

namespace nb = nanobind;

namespace tutti_python {
namespace {

void must(tutti_status status, const char* operation) {
    if (status != TUTTI_OK)
        raise(status, operation, tutti_trainer_last_error(), tutti_trainer_last_error_rank());
}

}  // namespace

Checkpoint::Checkpoint() {
    must(tutti_checkpoint_create(&checkpoint_), "checkpoint");
}

Checkpoint::~Checkpoint() {
    tutti_checkpoint_destroy(checkpoint_);
}

template <typename Array>
void Checkpoint::add(const char* name, const Array& data, void* memory,
                     std::optional<int64_t> first_row, int64_t rows) {
    const Elements elements = elements_of(data.dtype());
    if (elements.parts != 1)
        throw nb::type_error((std::string(name) + ": checkpoints do not support complex numbers. "
                                                  "What to do: pass a view as real numbers")
                                 .c_str());
    std::vector<int64_t> shape;
    for (std::size_t d = 0; d < data.ndim(); ++d)
        shape.push_back(static_cast<int64_t>(data.shape(d)));
    const int dims = static_cast<int>(shape.size());
    if (!first_row) {
        must(tutti_checkpoint_add(checkpoint_, name, memory, elements.dtype, dims, shape.data()),
             "checkpoint");
        return;
    }
    if (shape.empty())
        throw nb::value_error((std::string(name) + ": a Shard of a single number has no rows. "
                                                   "What to do: pass the number without a Shard")
                                  .c_str());
    const int64_t own_rows = std::exchange(shape.front(), rows);
    must(tutti_checkpoint_add_shard(checkpoint_, name, memory, elements.dtype, dims, shape.data(),
                                    *first_row, own_rows),
         "checkpoint");
}

void Checkpoint::add_source(const char* name, Input data, std::optional<int64_t> first_row,
                            int64_t rows) {
    // The cast is safe: a source is only saved, never loaded into.
    add(name, data, const_cast<void*>(data.data()), first_row, rows);
    sources_.push_back(std::move(data));
}

void Checkpoint::add_target(const char* name, Output data, std::optional<int64_t> first_row,
                            int64_t rows) {
    add(name, data, data.data(), first_row, rows);
    targets_.push_back(std::move(data));
}

void Checkpoint::set_text(const char* key, const char* text) {
    must(tutti_checkpoint_set_text(checkpoint_, key, text), "checkpoint");
}

std::optional<std::string> Checkpoint::text(const char* key) const {
    const char* const found = tutti_checkpoint_text(checkpoint_, key);
    return found ? std::optional<std::string>(found) : std::nullopt;
}

void Checkpoint::save(const Communicator* comm, const char* path) {
    const auto held = comm ? comm->joined() : nullptr;
    tutti_status status = TUTTI_OK;
    {
        const Released released;
        status = tutti_checkpoint_save(checkpoint_, held ? held->comm() : nullptr, path);
    }
    must(status, "save");
}

void Checkpoint::load(const Communicator* comm, const char* path, bool allow_missing,
                      bool allow_extra) {
    if (!sources_.empty())
        throw nb::value_error(
            "load: the list has sources (add_source). What to do: add every entry with "
            "add_target");
    const auto held = comm ? comm->joined() : nullptr;
    tutti_checkpoint_opts opts = TUTTI_CHECKPOINT_OPTS_INIT;
    opts.allow_missing = allow_missing ? 1 : 0;
    opts.allow_extra = allow_extra ? 1 : 0;
    tutti_status status = TUTTI_OK;
    {
        const Released released;
        status = tutti_checkpoint_load(checkpoint_, held ? held->comm() : nullptr, path, &opts);
    }
    must(status, "load");
}

std::vector<std::string> Checkpoint::missing() const {
    std::vector<std::string> names;
    for (int i = 0; const char* name = tutti_checkpoint_missing(checkpoint_, i); ++i)
        names.emplace_back(name);
    return names;
}

}  // namespace tutti_python
