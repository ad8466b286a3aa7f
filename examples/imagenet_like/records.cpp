#include "records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <utility>

namespace imagenet_like {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr char magic[8] = {'t', 'u', 't', 't', 'i', 'r', 'e', 'c'};
constexpr uint32_t version = 1;
constexpr const char* again = "copy the file anew, or pack it again";

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t checksum;  // of the header with this as zero, then of the index
    uint64_t images;
    uint64_t file_bytes;
};
static_assert(sizeof(Header) == 32);

template <typename... T>
[[noreturn]] void fail(fmt::format_string<T...> format, T&&... values) {
    throw std::runtime_error(fmt::format(format, std::forward<T>(values)...));
}

uint32_t checksum(const void* data, std::size_t bytes, uint32_t begin = 0) {
    return static_cast<uint32_t>(::crc32_z(begin, static_cast<const Bytef*>(data), bytes));
}

uint32_t checksum(Header header, const std::vector<Entry>& index) {
    header.checksum = 0;
    return checksum(index.data(), index.size() * sizeof(Entry), checksum(&header, sizeof header));
}

void write_at(int fd, const std::string& path, const void* data, std::size_t bytes, uint64_t at) {
    const auto* from = static_cast<const uint8_t*>(data);
    for (std::size_t done = 0; done < bytes;) {
        const ssize_t put = ::pwrite(fd, from + done, bytes - done, static_cast<off_t>(at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) fail("cannot write {}: {}", path, std::strerror(errno));
        done += static_cast<std::size_t>(put);
    }
}

// Returns the bytes read, fewer than asked for only at the end of the file.
std::size_t read_at(int fd, const std::string& path, void* data, std::size_t bytes, uint64_t at) {
    auto* to = static_cast<uint8_t*>(data);
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got = ::pread(fd, to + done, bytes - done, static_cast<off_t>(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("cannot read {}: {}", path, std::strerror(errno));
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

uint64_t first_image(std::size_t images) {
    return sizeof(Header) + images * sizeof(Entry);
}

}  // namespace

OpenFile::OpenFile(const std::string& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail("cannot open {}: {}", path, std::strerror(errno));
}

OpenFile::OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OpenFile::~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
}

RecordWriter::RecordWriter(std::string path, std::size_t images)
    : path_(std::move(path)),
      file_(path_ + ".partial", O_WRONLY | O_CREAT | O_TRUNC),
      images_(images),
      end_(first_image(images)) {}

void RecordWriter::add(uint32_t label, std::span<const uint8_t> image) {
    if (index_.size() == images_) fail("{}: made for {} images only", path_, images_);
    if (image.size() > std::numeric_limits<uint32_t>::max())
        fail("{}, entry {}: {} bytes are too many for one image", path_, index_.size(),
             image.size());
    write_at(file_.fd(), path_, image.data(), image.size(), end_);
    index_.push_back({.offset = end_,
                      .bytes = static_cast<uint32_t>(image.size()),
                      .label = label,
                      .checksum = checksum(image.data(), image.size()),
                      .reserved = 0});
    end_ += image.size();
}

void RecordWriter::finish() {
    if (index_.size() != images_)
        fail("{}: {} images were added, not {}", path_, index_.size(), images_);
    Header header{
        .magic = {}, .version = version, .checksum = 0, .images = images_, .file_bytes = end_};
    std::copy(std::begin(magic), std::end(magic), header.magic);
    header.checksum = checksum(header, index_);
    write_at(file_.fd(), path_, &header, sizeof header, 0);
    write_at(file_.fd(), path_, index_.data(), images_ * sizeof(Entry), sizeof header);
    const std::string partial = path_ + ".partial";
    if (::fsync(file_.fd()) != 0 || std::rename(partial.c_str(), path_.c_str()) != 0)
        fail("cannot finish {}: {}", path_, std::strerror(errno));
}

RecordFile::RecordFile(std::string path) : path_(std::move(path)), file_(path_, O_RDONLY) {
    struct stat status {};
    if (::fstat(file_.fd(), &status) != 0) fail("cannot read {}: {}", path_, std::strerror(errno));
    read_index(static_cast<uint64_t>(status.st_size));
}

void RecordFile::read_index(uint64_t file_bytes) {
    Header header{};
    const std::size_t got = read_at(file_.fd(), path_, &header, sizeof header, 0);
    if (!std::equal(std::begin(magic), std::begin(magic) + std::min(got, sizeof magic),
                    header.magic))
        fail("{} is no record file; make one with imagenet_like_pack", path_);
    if (got < sizeof header)
        fail("{} is cut short: {} bytes, the header alone has {}; {}", path_, got, sizeof header,
             again);
    if (header.version != version)
        fail(
            "{} has version {}, this program reads {}; pack the images again with the packer that "
            "comes with it",
            path_, header.version, version);
    const uint64_t room = (file_bytes - sizeof header) / sizeof(Entry);
    if (header.images > room)
        fail("{} is cut short in its index: entry {} of {} is not there; {}", path_, room,
             header.images, again);
    index_.resize(header.images);
    read_at(file_.fd(), path_, index_.data(), index_.size() * sizeof(Entry), sizeof header);
    if (checksum(header, index_) != header.checksum)
        fail("{}: header or index are damaged (checksum); {}", path_, again);
    check_index(file_bytes, header.file_bytes);
}

// A correct checksum excludes damage, but not a faulty writer, so check the values too.
void RecordFile::check_index(uint64_t file_bytes, uint64_t packed_bytes) const {
    for (std::size_t i = 0; i < index_.size(); ++i) {
        const Entry& e = index_[i];
        if (e.offset < first_image(index_.size()) || e.offset > packed_bytes ||
            e.bytes > packed_bytes - e.offset)
            fail("{}, entry {}: lies outside the file's {} bytes; pack it again", path_, i,
                 packed_bytes);
        if (e.offset + e.bytes > file_bytes)
            fail("{} is cut short: entry {} of {} ends at byte {}, the file has {} of {}; {}",
                 path_, i, index_.size(), e.offset + e.bytes, file_bytes, packed_bytes, again);
    }
    if (file_bytes != packed_bytes)
        fail("{} has {} bytes, its header says {}; {}", path_, file_bytes, packed_bytes, again);
}

void RecordFile::read(std::size_t entry, Bytes& image) const {
    const Entry& e = index_.at(entry);
    image.resize(e.bytes);
    if (read_at(file_.fd(), path_, image.data(), e.bytes, e.offset) != e.bytes)
        fail("{}, entry {}: the file was cut short while it was in use; {}", path_, entry, again);
    if (checksum(image.data(), e.bytes) != e.checksum)
        fail("{}, entry {}: the image is damaged (checksum); {}", path_, entry, again);
}

RecordSet::RecordSet(const std::string& folder, const std::string& part) {
    std::vector<std::string> paths;
    std::error_code cause;
    for (const auto& item : std::filesystem::directory_iterator(folder, cause)) {
        const std::string name = item.path().filename().string();
        if (name.starts_with(part + "-") && name.ends_with(".rec"))
            paths.push_back(item.path().string());
    }
    if (cause) fail("cannot read {}: {}", folder, cause.message());
    if (paths.empty())
        fail("{} has no {}-*.rec; pack images with imagenet_like_pack", folder, part);
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
        files_.emplace_back(path);
        ends_.push_back(size() + files_.back().size());
    }
    if (size() == 0) fail("{}: the files {}-*.rec hold no image", folder, part);
}

RecordSet::Place RecordSet::place_of(std::size_t entry) const {
    const auto at = std::upper_bound(ends_.begin(), ends_.end(), entry);
    const auto file = static_cast<std::size_t>(at - ends_.begin());
    return {files_.at(file), entry - (file == 0 ? 0 : ends_[file - 1])};
}

uint32_t RecordSet::read(std::size_t entry, Bytes& image) const {
    const Place place = place_of(entry);
    place.file.read(place.entry, image);
    return place.file.label(place.entry);
}

std::string RecordSet::name_of(std::size_t entry) const {
    const Place place = place_of(entry);
    return fmt::format("{}, entry {}", place.file.path(), place.entry);
}

}  // namespace imagenet_like
