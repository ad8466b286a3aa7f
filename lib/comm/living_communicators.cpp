#include "comm/living_communicators.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "comm/communicator.h"
#include "os/at_exit.h"
#include "os/forks.h"

namespace tutti::living_communicators {
namespace {

struct LivingCommunicators {
    std::mutex mutex;  // guards the members below
    std::condition_variable changed;
    std::map<const Communicator*, std::weak_ptr<Communicator>> living;
    // Never freed: threads of the program may be inside them until the process ends.
    std::vector<std::shared_ptr<Communicator>> left;
};

constinit PerProcess<LivingCommunicators> communicators;

}  // namespace

void leave_all(Deadline deadline) {
    LivingCommunicators& own = communicators.here();
    std::unique_lock lock(own.mutex);
    std::vector<std::shared_ptr<Communicator>> leaving;
    for (const auto& [key, weak] : own.living)
        if (auto comm = weak.lock()) leaving.push_back(std::move(comm));
    own.left.insert(own.left.end(), leaving.begin(), leaving.end());
    lock.unlock();
    for (const auto& comm : leaving) comm->leave_at_exit(deadline);
    // Another thread may be destroying a communicator: wait for it.
    lock.lock();
    own.changed.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(at_exit::most_ms)),
                         [&] { return own.living.empty(); });
}

void add(const std::shared_ptr<Communicator>& comm) {
    LivingCommunicators& own = communicators.here();
    const std::lock_guard lock(own.mutex);
    own.living[comm.get()] = comm;
}

void remove(const Communicator& comm) {
    LivingCommunicators& own = communicators.here();
    const std::lock_guard lock(own.mutex);
    own.living.erase(&comm);
    own.changed.notify_all();
}

}  // namespace tutti::living_communicators
