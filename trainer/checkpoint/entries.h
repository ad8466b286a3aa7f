// The values that a program saves or restores, by their names in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.h"
#include "tutti/checkpoint.h"

namespace tutti::trainer::checkpoint {

/// The program's function that copies from and to a device; NULL: values are in the host's memory.
struct Copier {
    tutti_checkpoint_copy copy = nullptr;
    void* user = nullptr;

    Result<> from_device(std::byte* to, const std::byte* from, std::size_t bytes) const {
        return move(to, from, bytes, false);
    }
    Result<> to_device(std::byte* to, const std::byte* from, std::size_t bytes) const {
        return move(to, from, bytes, true);
    }

private:
    Result<> move(std::byte* to, const std::byte* from, std::size_t bytes, bool inwards) const;
};

/// Consecutive rows of a value that lie in one piece of memory of one device.
struct EntryPart {
    int64_t first_row = 0;
    int64_t rows = 0;
    std::byte* data = nullptr;
    int device = 0;
    Copier copier = {};  // of its own; else the list's

    const Copier& copier_or(const Copier& of_list) const { return copier.copy ? copier : of_list; }
};

struct StateEntry {
    tutti_dtype dtype = -1;
    std::vector<int64_t> shape;
    bool sharded = false;
    std::vector<EntryPart> parts;  // sharded: in the order of their rows; else one for each device

    int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
    uint64_t bytes() const;
    uint64_t row_bytes() const;
};

/// Sorted by name: every rank goes through them in the same order.
using Entries = std::map<std::string, StateEntry, std::less<>>;

/// "device_3/fc/weight" is "fc/weight" of device 3; a name without such a scope is device 0's.
struct ScopedName {
    int device = 0;
    std::string_view name;
};
ScopedName parse_scope(std::string_view name);

bool is_utf8(std::string_view text);

/// For people: control characters, and all that is not ASCII in what is not UTF-8, as "\x0a".
std::string escaped(std::string_view text);

/// Bytes of a value of that type and shape, or why there is no such value.
Result<uint64_t> checked_bytes(tutti_dtype dtype, const std::vector<int64_t>& shape);

/// "float32 of 3 × 4".
std::string describe(tutti_dtype dtype, const std::vector<int64_t>& shape);

/// Adds one device's copy or part; name is the caller's, scope included.
Result<> add_part(Entries& entries, const char* name, StateEntry entry, EntryPart part);

}  // namespace tutti::trainer::checkpoint
