#include "trainer/sync/state_broadcast.h"

namespace tutti::trainer {

void StateBroadcast::add_tasks(const std::vector<BufferGroup*>& groups) {
    for (const BufferGroup* group : groups) {
        group_tasks_.push_back(tasks_.add({.name = group->name,
                                           .operation = sync_name,
                                           .kind = TUTTI_COLLECTIVE_BROADCAST,
                                           .dtype = group->dtype}));
        tasks_.bind_group(group_tasks_.back(), *group, group->pointers());
    }
}

Result<> StateBroadcast::start_all(std::vector<Started>& started) {
    for (int t : group_tasks_) {
        Task& task = tasks_.at(t);
        Result<tutti_request*> request = collectives_.begin(task);
        if (!request) {
            comm_.abort_after(request.error());
            return tl::unexpected<Error>(std::move(request).error());
        }
        started.push_back({&task, *request});
    }
    return {};
}

Result<> StateBroadcast::run(int root) {
    for (int t : group_tasks_) tasks_.at(t).root = root;
    // The root of a broadcast only sends, so it would see a mismatch only in its next operation.
    TRAINER_TRY(begin_named(comm_.get(), sync_name));
    std::vector<Started> started;
    Result<> outcome = start_all(started);
    for (Started& one : started) {
        auto over = from_call(tutti_wait(&one.request, -1), "synchronisation");
        if (outcome && !over) outcome = std::move(over);
    }
    TRAINER_TRY(outcome);
    for (const Started& one : started) TRAINER_TRY(collectives_.end(*one.task));
    return {};
}

}  // namespace tutti::trainer
