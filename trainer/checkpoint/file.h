// The file of a checkpoint: a reader with every check, and a writer that replaces it atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/base/result.h"
#include "trainer/checkpoint/layout.h"

namespace tutti::trainer::checkpoint {

/// Bytes that are read, written or sent at a time.
inline constexpr std::size_t piece_bytes = std::size_t{4} << 20;

class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor();
    int get() const { return fd_; }

private:
    int fd_ = -1;
};

/// A checkpoint that is open for reading. If another file replaces it under its name, it still
/// reads the old one.
class CheckpointFile {
public:
    /// Reads and checks the header.
    static Result<CheckpointFile> open(const std::string& path);
    const FileHeader& header() const { return header_; }
    /// Reads every entry and compares its checksum.
    Result<> verify() const;
    /// Bytes of an entry, from offset on.
    Result<> read(const StoredEntry& entry, uint64_t offset, std::span<std::byte> to) const;

private:
    Result<> verify(const StoredEntry& entry, std::span<std::byte> buffer) const;
    std::string path_;
    Descriptor fd_;
    FileHeader header_;
    uint64_t data_at_ = 0;
};

/// path.partial: commit() renames it to path, else the destructor removes it. A file that an
/// earlier process left there is overwritten.
class PartialFile {
public:
    /// INVALID while another process writes the same path.
    static Result<PartialFile> create(const std::string& path);
    PartialFile(PartialFile&&) = default;
    ~PartialFile();

    /// Appends bytes; the first ones go to offset 0.
    Result<> append(std::span<const std::byte> bytes);
    Result<> overwrite_start(std::string_view bytes);
    /// Syncs the file, renames it and syncs the folder.
    Result<> commit();

private:
    explicit PartialFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}
    Result<bool> open_locked();
    Result<> write_at(const std::byte* data, std::size_t bytes, uint64_t offset);
    Result<> sync_folder() const;
    std::string path_;
    std::string partial_;
    Descriptor fd_;
    uint64_t written_ = 0;
};

}  // namespace tutti::trainer::checkpoint
