#include <algorithm>

#include "trainer/base/boundary.h"
#include "trainer/base/structs.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/layout.h"

namespace tutti::trainer::checkpoint {
namespace {

Result<StateEntry> make_entry(const char* name, tutti_dtype dtype, int dims, const int64_t* shape) {
    if (dims < 0 || (dims > 0 && shape == nullptr))
        return fail(TUTTI_ERR_INVALID, "checkpoint: entry '{}': dims is {}{}", name, dims,
                    shape ? "" : ", but shape is NULL")
            .advice("pass dims of 0 or more, and a shape of as many extents");
    StateEntry entry;
    entry.dtype = dtype;
    if (dims > 0) entry.shape.assign(shape, shape + dims);
    return entry;
}

}  // namespace

Result<Strictness> read_strictness(const char* name, const tutti_checkpoint_opts* opts) {
    const tutti_checkpoint_opts defaults = TUTTI_CHECKPOINT_OPTS_INIT;
    TRAINER_ASSIGN(const tutti_checkpoint_opts known,
                   read_struct(name, opts, defaults, "TUTTI_CHECKPOINT_OPTS_INIT"));
    return Strictness{known.allow_missing != 0, known.allow_extra != 0};
}

}  // namespace tutti::trainer::checkpoint

using tutti::trainer::fail;
using tutti::trainer::guard;
using tutti::trainer::null_argument;
using tutti::trainer::Result;
using namespace tutti::trainer::checkpoint;  // NOLINT: the C functions are its face

extern "C" {

tutti_status tutti_checkpoint_create(tutti_checkpoint** checkpoint) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_create", "checkpoint");
        *checkpoint = new tutti_checkpoint;
        return {};
    });
}

void tutti_checkpoint_destroy(tutti_checkpoint* checkpoint) {
    delete checkpoint;
}

tutti_status tutti_checkpoint_add(tutti_checkpoint* checkpoint, const char* name, void* data,
                                  tutti_dtype dtype, int dims, const int64_t* shape) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_add", "checkpoint");
        if (!name) return null_argument("tutti_checkpoint_add", "name");
        TRAINER_ASSIGN(StateEntry entry, make_entry(name, dtype, dims, shape));
        const int64_t rows = std::max<int64_t>(0, entry.rows());
        return add_part(checkpoint->entries, name, std::move(entry),
                        {.first_row = 0, .rows = rows, .data = static_cast<std::byte*>(data)});
    });
}

tutti_status tutti_checkpoint_add_shard(tutti_checkpoint* checkpoint, const char* name, void* data,
                                        tutti_dtype dtype, int dims, const int64_t* shape,
                                        int64_t first_row, int64_t rows) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_add_shard", "checkpoint");
        if (!name) return null_argument("tutti_checkpoint_add_shard", "name");
        if (dims == 0)
            return fail(TUTTI_ERR_INVALID,
                        "checkpoint: entry '{}' has no dimensions, so that no shard of it exists",
                        name)
                .advice("pass dims of 1 or more, or call tutti_checkpoint_add");
        TRAINER_ASSIGN(StateEntry entry, make_entry(name, dtype, dims, shape));
        entry.sharded = true;
        return add_part(
            checkpoint->entries, name, std::move(entry),
            {.first_row = first_row, .rows = rows, .data = static_cast<std::byte*>(data)});
    });
}

tutti_status tutti_checkpoint_set_text(tutti_checkpoint* checkpoint, const char* key,
                                       const char* text) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_set_text", "checkpoint");
        if (!key || !text) return null_argument("tutti_checkpoint_set_text", key ? "text" : "key");
        if (std::string_view(key).starts_with(reserved_prefix))
            return fail(TUTTI_ERR_INVALID, "checkpoint: the key '{}' is reserved for tutti", key)
                .advice("choose a key that does not start with '{}'", reserved_prefix);
        if (!is_utf8(key) || !is_utf8(text))
            return fail(TUTTI_ERR_INVALID, "checkpoint: {} '{}' is not UTF-8",
                        is_utf8(key) ? "the text of key" : "the key", escaped(key))
                .advice("pass UTF-8 text");
        checkpoint->texts[key] = text;
        return {};
    });
}

const char* tutti_checkpoint_text(const tutti_checkpoint* checkpoint, const char* key) {
    if (!checkpoint || !key) return nullptr;
    const auto found = checkpoint->texts.find(key);
    return found == checkpoint->texts.end() ? nullptr : found->second.c_str();
}

tutti_status tutti_checkpoint_set_copy(tutti_checkpoint* checkpoint, tutti_checkpoint_copy copy,
                                       void* user) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_set_copy", "checkpoint");
        checkpoint->copier = {copy, user};
        return {};
    });
}

tutti_status tutti_checkpoint_save(tutti_checkpoint* checkpoint, tutti_comm* comm,
                                   const char* path) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_save", "checkpoint");
        if (!path) return null_argument("tutti_checkpoint_save", "path");
        return save(checkpoint->entries, checkpoint->texts, checkpoint->copier, comm, path);
    });
}

tutti_status tutti_checkpoint_load(tutti_checkpoint* checkpoint, tutti_comm* comm, const char* path,
                                   const tutti_checkpoint_opts* opts) {
    return guard([&]() -> Result<> {
        if (!checkpoint) return null_argument("tutti_checkpoint_load", "checkpoint");
        if (!path) return null_argument("tutti_checkpoint_load", "path");
        TRAINER_ASSIGN(const Strictness strictness,
                       read_strictness("tutti_checkpoint_load: opts", opts));
        TRAINER_ASSIGN(Loaded loaded,
                       load(checkpoint->entries, checkpoint->copier, comm, path, strictness));
        checkpoint->texts = std::move(loaded.texts);
        checkpoint->missing = std::move(loaded.missing);
        return {};
    });
}

const char* tutti_checkpoint_missing(const tutti_checkpoint* checkpoint, int index) {
    if (!checkpoint || index < 0 || static_cast<std::size_t>(index) >= checkpoint->missing.size())
        return nullptr;
    return checkpoint->missing[static_cast<std::size_t>(index)].c_str();
}
}
