// The header of a checkpoint: the safetensors layout, with a format number and checksums among its
// metadata. Pure: no files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.h"

namespace tutti::trainer::checkpoint {

inline constexpr int format_version = 1;
inline constexpr std::string_view reserved_prefix = "tutti.";
inline constexpr uint64_t length_bytes = 8;
// safetensors' own limit.
inline constexpr uint64_t max_header_bytes = 100'000'000;

struct StoredEntry {
    std::string name;
    tutti_dtype dtype = -1;
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // in the data, which follows the header
    uint64_t end = 0;
    uint32_t checksum = 0;  // CRC-32 of its bytes
};

struct FileHeader {
    std::map<std::string, std::string> texts;
    std::vector<StoredEntry> entries;  // in the order of their bytes
};

/// The file up to its data: length, JSON, padding. Its length does not depend on the checksums.
std::string write_header(const FileHeader& header);

/// Parses the header's JSON and checks it against itself and data_bytes, the bytes that follow it.
/// The text is untrusted: it may be damaged or malicious.
Result<FileHeader> parse_header(std::string_view json, uint64_t data_bytes);

uint32_t checksum_of(uint32_t before, const void* data, std::size_t bytes);

}  // namespace tutti::trainer::checkpoint
