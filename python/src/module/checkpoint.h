// A checkpoint for python: names and their arrays.
#pragma once

#include <tutti/checkpoint.h>

#include <optional>
#include <string>
#include <vector>

#include "communicator.h"

namespace tutti_python {

/// As tutti_checkpoint: one thread at a time. Keeps the added arrays alive. Releases the GIL while
/// files are written and read.
class Checkpoint {
public:
    Checkpoint();
    ~Checkpoint();
    Checkpoint(const Checkpoint&) = delete;

    /// With first_row, data is this rank's part of a value of that many rows; without it, every
    /// rank has the whole value. A source can only be saved; it may be read-only.
    void add_source(const char* name, Input data, std::optional<int64_t> first_row, int64_t rows);
    void add_target(const char* name, Output data, std::optional<int64_t> first_row, int64_t rows);
    void set_text(const char* key, const char* text);
    std::optional<std::string> text(const char* key) const;
    void save(const Communicator* comm, const char* path);
    void load(const Communicator* comm, const char* path, bool allow_missing, bool allow_extra);
    /// The names of the targets that the last load did not find in the file.
    std::vector<std::string> missing() const;

private:
    template <typename Array>
    void add(const char* name, const Array& data, void* memory, std::optional<int64_t> first_row,
             int64_t rows);

    tutti_checkpoint* checkpoint_ = nullptr;
    std::vector<Input> sources_;
    std::vector<Output> targets_;
};

}  // namespace tutti_python
