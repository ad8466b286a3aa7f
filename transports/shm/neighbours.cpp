#include "transports/shm/neighbours.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "wait/event_fd.h"
#include "wait/reactor.h"

namespace tutti::shm {

std::shared_ptr<SegmentTable> Neighbours::segments(Rank rank) {
    const std::lock_guard lock(mutex_);
    auto& table = segments_[rank];
    if (!table) table = std::make_shared<SegmentTable>();
    return table;
}

Neighbours::Bell Neighbours::bell(Rank rank) const {
    const std::lock_guard lock(mutex_);
    const auto found = bells_.find(rank);
    return found == bells_.end() ? nullptr : found->second;
}

void Neighbours::add_bell(Rank rank, UniqueFd fd) {
    const std::lock_guard lock(mutex_);
    bells_.try_emplace(rank, std::make_shared<const Doorbell>(std::move(fd)));
}

Result<Neighbours::Bell> Neighbours::make_bell(Rank rank) {
    const std::lock_guard lock(mutex_);
    Bell& bell = bells_[rank];
    if (bell) return bell;
    UniqueFd fd;
    if (rank == rank_) {
        fd = UniqueFd(::fcntl(own_doorbell_fd_, F_DUPFD_CLOEXEC, 0));
        if (!fd) return fail_errno(errno, "flat: cannot duplicate a file descriptor");
    } else {
        TUTTI_ASSIGN(fd, make_event_fd());
    }
    return bell = std::make_shared<const Doorbell>(std::move(fd));
}

bool Neighbours::is_rung_by(Rank leader) const {
    const std::lock_guard lock(mutex_);
    return watched_.contains(leader);
}

Result<> Neighbours::watch(Rank leader, UniqueFd fd, Reactor& reactor) {
    // The handler holds a reference, so that its descriptor stays open if its last call overlaps
    // with close().
    const auto own = std::make_shared<const Doorbell>(std::move(fd));
    const std::lock_guard lock(mutex_);
    // Two groups of the same leader were joined at once, and both passed a doorbell.
    if (watched_.contains(leader)) return {};
    TUTTI_TRY(reactor.add(own->fd(), EPOLLIN, [own](uint32_t) {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t got = ::read(own->fd(), &rings, sizeof rings);
    }));
    reactor_ = &reactor;
    watched_[leader] = own;
    return {};
}

Neighbours::End Neighbours::end_of(Rank rank) {
    const std::lock_guard lock(mutex_);
    auto& end = ends_[rank];
    if (!end) end = std::make_shared<std::atomic<bool>>(false);
    return end;
}

void Neighbours::note_end(Rank rank) {
    const std::lock_guard lock(mutex_);
    auto& end = ends_[rank];
    if (!end) end = std::make_shared<std::atomic<bool>>(true);
    end->store(true, std::memory_order_release);
}

void Neighbours::forget(Rank rank) {
    const std::lock_guard lock(mutex_);
    segments_.erase(rank);
    bells_.erase(rank);
    const auto watched = watched_.find(rank);
    if (watched == watched_.end()) return;
    reactor_->remove(watched->second->fd());
    watched_.erase(watched);
}

void Neighbours::close() {
    const std::lock_guard lock(mutex_);
    for (const auto& [leader, bell] : watched_) reactor_->remove(bell->fd());
    watched_.clear();
}

}  // namespace tutti::shm
