#include "comm/at_exit.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "job/job_stores.h"

namespace tutti::at_exit {
namespace {

constexpr int64_t most_ms = 1000;

struct LivingCommunicators {
    const HomeProcess home;
    LivingCommunicators* const
        parents;       // a child must not take a mutex that another thread held at the fork
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::set<std::string, std::less<>> armed;
    std::map<const Communicator*, std::weak_ptr<Communicator>> living;
    // Threads of the program may be inside them until the process is gone: never freed.
    std::vector<std::shared_ptr<Communicator>> left;

    explicit LivingCommunicators(LivingCommunicators* before) : parents(before) {}
};

LivingCommunicators& living_communicators() {
    static std::atomic<LivingCommunicators*> current{new LivingCommunicators(nullptr)};
    LivingCommunicators* known = current.load();
    if (known->home.here()) return *known;
    auto own = std::make_unique<LivingCommunicators>(known);
    if (!current.compare_exchange_strong(known, own.get())) return *known;
    return *own.release();
}

void leave_all() {
    LivingCommunicators& mine = living_communicators();
    const auto deadline = Deadline::after_ms(most_ms);
    std::unique_lock lock(mine.mutex);
    const bool stores = !mine.armed.empty();
    mine.armed.clear();  // what joins from here on needs a handler of its own
    std::vector<std::shared_ptr<Communicator>> leaving;
    for (const auto& [key, weak] : mine.living)
        if (auto comm = weak.lock()) leaving.push_back(std::move(comm));
    mine.left.insert(mine.left.end(), leaving.begin(), leaving.end());
    lock.unlock();
    for (const auto& comm : leaving) comm->leave_at_exit(deadline);
    // Another thread may be destroying one.
    lock.lock();
    mine.changed.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(most_ms)),
                          [&] { return mine.living.empty(); });
    lock.unlock();
    if (stores) job_stores::close_kept();
}

void handler() {
    try {
        leave_all();
    } catch (const std::exception&) {
        // Without memory the others hear of a loss.
    }
}

}  // namespace

void arm(std::string_view libraries) {
    LivingCommunicators& mine = living_communicators();
    const std::lock_guard lock(mine.mutex);
    if (mine.armed.emplace(libraries).second) (void)std::atexit(handler);
}

void add(const std::shared_ptr<Communicator>& comm) {
    LivingCommunicators& mine = living_communicators();
    const std::lock_guard lock(mine.mutex);
    mine.living[comm.get()] = comm;
}

void remove(const Communicator& comm) {
    LivingCommunicators& mine = living_communicators();
    const std::lock_guard lock(mine.mutex);
    mine.living.erase(&comm);
    mine.changed.notify_all();
}

}  // namespace tutti::at_exit
