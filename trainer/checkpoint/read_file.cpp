#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "trainer/checkpoint/file.h"

namespace tutti::trainer::checkpoint {
namespace {

constexpr const char* cut_short_advice = "copy the file again, or take an earlier checkpoint";

tl::unexpected<Error> about(const std::string& path, Error error) {
    error.message = fmt::format("checkpoint '{}': {}", path, error.message);
    return tl::unexpected<Error>(std::move(error));
}

Result<> read_at(int fd, std::byte* to, std::size_t bytes, uint64_t offset) {
    while (bytes > 0) {
        const ssize_t n = pread(fd, to, bytes, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(errno, "read");
        if (n == 0)
            return fail(TUTTI_ERR_INVALID,
                        "the file was cut short: it ends at byte {}, {} bytes too early", offset,
                        bytes)
                .advice("{}", cut_short_advice);
        to += n;
        bytes -= static_cast<std::size_t>(n);
        offset += static_cast<uint64_t>(n);
    }
    return {};
}

uint64_t decode_length(const std::byte* bytes) {
    uint64_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i)
        length |= uint64_t{std::to_integer<uint8_t>(bytes[i])} << (8 * i);
    return length;
}

/// The header's JSON of a file of that many bytes.
Result<std::string> read_header(int fd, uint64_t file_bytes) {
    std::byte raw[length_bytes];
    TRAINER_TRY(read_at(fd, raw, length_bytes, 0));
    const uint64_t length = decode_length(raw);
    if (length > max_header_bytes)
        return fail(TUTTI_ERR_INVALID,
                    "it is not a checkpoint, or damaged: its first 8 bytes say that {} bytes of "
                    "header follow",
                    length)
            .advice("check the path, or take another copy of the file");
    if (length > file_bytes - length_bytes)
        return fail(TUTTI_ERR_INVALID,
                    "the file was cut short: its header has {} bytes, the file {}", length,
                    file_bytes)
            .advice("{}", cut_short_advice);
    std::string json(length, '\0');
    TRAINER_TRY(read_at(fd, reinterpret_cast<std::byte*>(json.data()), length, length_bytes));
    return json;
}

}  // namespace

Descriptor::~Descriptor() {
    if (fd_ >= 0) close(fd_);
}

Result<CheckpointFile> CheckpointFile::open(const std::string& path) {
    CheckpointFile file;
    file.path_ = path;
    file.fd_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd_.get() < 0) return fail_errno(errno, fmt::format("checkpoint '{}': open", path));
    struct stat status {};
    if (fstat(file.fd_.get(), &status) != 0)
        return fail_errno(errno, fmt::format("checkpoint '{}': stat", path));
    if (!S_ISREG(status.st_mode))
        return fail(TUTTI_ERR_INVALID, "checkpoint '{}' is not a file", path)
            .advice("pass the path of a file that a save wrote");
    const auto bytes = static_cast<uint64_t>(status.st_size);
    auto json = read_header(file.fd_.get(), bytes);
    if (!json) return about(path, std::move(json).error());
    file.data_at_ = length_bytes + json->size();
    auto header = parse_header(*json, bytes - file.data_at_);
    if (!header) return about(path, std::move(header).error());
    file.header_ = std::move(*header);
    return file;
}

Result<> CheckpointFile::verify() const {
    std::vector<std::byte> buffer(piece_bytes);
    for (const StoredEntry& entry : header_.entries) TRAINER_TRY(verify(entry, buffer));
    return {};
}

Result<> CheckpointFile::verify(const StoredEntry& entry, std::span<std::byte> buffer) const {
    const uint64_t bytes = entry.end - entry.begin;
    uint32_t sum = 0;
    for (uint64_t at = 0; at < bytes;) {
        const auto piece = static_cast<std::size_t>(std::min<uint64_t>(buffer.size(), bytes - at));
        TRAINER_TRY(read(entry, at, buffer.first(piece)));
        sum = checksum_of(sum, buffer.data(), piece);
        at += piece;
    }
    if (sum == entry.checksum) return {};
    return fail(TUTTI_ERR_INVALID,
                "checkpoint '{}': the file is damaged: entry '{}' does not match its checksum "
                "({:08x} stored, {:08x} found)",
                path_, entry.name, entry.checksum, sum)
        .advice("take an earlier checkpoint, or another copy of this file");
}

Result<> CheckpointFile::read(const StoredEntry& entry, uint64_t offset,
                              std::span<std::byte> to) const {
    auto done = read_at(fd_.get(), to.data(), to.size(), data_at_ + entry.begin + offset);
    if (done) return {};
    done.error().message = fmt::format("entry '{}': {}", entry.name, done.error().message);
    return about(path_, std::move(done).error());
}

}  // namespace tutti::trainer::checkpoint
