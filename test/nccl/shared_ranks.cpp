#include "nccl/shared_ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace fake_nccl {
namespace {

constexpr std::size_t table_bytes = (sizeof(Table) + 4095) / 4096 * 4096;

}  // namespace

std::string SharedRanks::make() {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder ? folder : "/tmp") + "/tutti-fake-nccl-XXXXXX";
    const int fd = ::mkstemp(path.data());
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(table_bytes + most_ranks * area_bytes)) != 0)
        std::abort();
    ::close(fd);
    return path;
}

SharedRanks::SharedRanks(const std::string& path, int rank, int size)
    : path_(path), rank_(rank), size_(size), mapped_(table_bytes + most_ranks * area_bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) std::abort();
    void* all = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    table_ = static_cast<Table*>(all);
    areas_ = static_cast<std::byte*>(all) + table_bytes;
}

SharedRanks::Meeting SharedRanks::split(int color, int key, const std::function<bool()>& stop) {
    const auto wait = [&](auto test) {
        while (!all(test)) {
            if (stop()) return false;
            std::this_thread::sleep_for(std::chrono::microseconds(30));
        }
        return true;
    };
    const Meeting none{.size = 0};
    const int turn = own().splits + 1;
    // No rank may overwrite its seat until all have read it in the split before.
    if (!wait([&](Seat& s) { return s.splits_read >= turn - 1; })) return none;
    own().color = color;
    own().key = key;
    std::strncpy(own().meeting, make().c_str(), sizeof own().meeting - 1);
    own().splits = turn;
    if (!wait([&](Seat& s) { return s.splits >= turn; })) return none;
    std::vector<std::pair<int, int>> members;  // key and rank
    for (int r = 0; r < size_; ++r)
        if (seat(r).color == color) members.emplace_back(seat(r).key, r);
    std::sort(members.begin(), members.end());
    Meeting meeting;
    meeting.size = static_cast<int>(members.size());
    meeting.path = seat(members[0].second).meeting;
    for (int i = 0; i < meeting.size; ++i)
        if (members[static_cast<std::size_t>(i)].second == rank_) meeting.rank = i;
    if (color < 0 || meeting.rank > 0) ::unlink(own().meeting);
    own().splits_read = turn;
    return meeting;
}

SharedRanks::~SharedRanks() {
    own().left = 1;
    ::munmap(table_, mapped_);
    // Gone with the first that leaves: the others have it mapped.
    ::unlink(path_.c_str());
}

}  // namespace fake_nccl
