// Record files: many small images packed into a few large files, which disks and file systems like
// better. README.md describes the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace imagenet_like {

using Bytes = std::vector<uint8_t>;

/// A file descriptor that is closed with its owner.
class OpenFile {
public:
    OpenFile(const std::string& path, int flags);
    OpenFile(OpenFile&& other) noexcept;
    OpenFile& operator=(OpenFile&&) = delete;
    ~OpenFile();
    int fd() const { return fd_; }

private:
    int fd_;
};

/// The place of an image in its file, as the index on disk stores it.
struct Entry {
    uint64_t offset;
    uint32_t bytes;
    uint32_t label;
    uint32_t checksum;
    uint32_t reserved;
};
static_assert(sizeof(Entry) == 24);

/// Writes a file under a temporary name and renames it when it is complete. Every failure here and
/// below is a std::runtime_error with the file, the entry and what to do.
class RecordWriter {
public:
    /// For exactly this number of images.
    RecordWriter(std::string path, std::size_t images);
    void add(uint32_t label, std::span<const uint8_t> image);
    void finish();

private:
    std::string path_;
    OpenFile file_;
    std::vector<Entry> index_;
    std::size_t images_;
    uint64_t end_;
};

/// One file, open for reading. Its index was checked against its size.
class RecordFile {
public:
    explicit RecordFile(std::string path);

    const std::string& path() const { return path_; }
    std::size_t size() const { return index_.size(); }
    uint32_t label(std::size_t entry) const { return index_[entry].label; }
    /// Reads an image and checks its checksum. Any thread may call it.
    void read(std::size_t entry, Bytes& image) const;

private:
    void read_index(uint64_t file_bytes);
    void check_index(uint64_t file_bytes, uint64_t packed_bytes) const;

    std::string path_;
    OpenFile file_;
    std::vector<Entry> index_;
};

/// The files of a part, one after another; entries are numbered across files.
class RecordSet {
public:
    /// folder/part-*.rec in the order of their names.
    RecordSet(const std::string& folder, const std::string& part);

    std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }
    /// Reads the image and returns its label. Any thread may call it.
    uint32_t read(std::size_t entry, Bytes& image) const;
    /// "FILE, entry 17", for messages.
    std::string name_of(std::size_t entry) const;

private:
    struct Place {
        const RecordFile& file;
        std::size_t entry;
    };
    Place place_of(std::size_t entry) const;

    std::vector<RecordFile> files_;
    std::vector<std::size_t> ends_;  // of each file's entries
};

}  // namespace imagenet_like
