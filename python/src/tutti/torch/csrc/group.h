// The communicator behind a process group.
#pragma once

#include <tutti/tutti.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host_store.h"

namespace tutti_torch {

/// tutti's settings by name, for pg_options: {"transport": "tcp"}.
using Settings = std::map<std::string, std::string>;

/// The number of a group's streams by the settings and the environment.
int streams_wanted(const Settings& settings);
/// A time-out as tutti takes it, from 1 ms to 24.8 days.
std::chrono::milliseconds deadline_of(std::chrono::milliseconds timeout);

/// A communicator and the store that it was made with; its last user destroys it.
class Group {
public:
    /// Blocks until all ranks have joined. timeout: for that and for every operation, from 1 ms to
    /// 24.8 days. name: the group's, the same on all ranks. one_launcher: as in HostStore. Throws
    /// CallError or the store's exception.
    static std::shared_ptr<Group> join(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, std::chrono::milliseconds timeout,
                                       const std::string& name, const Settings& settings,
                                       bool one_launcher);
    /// This process's handle for meet(): a text. timeout: of the groups that are made with it.
    static std::string handle(const Settings& settings, std::chrono::milliseconds timeout);
    /// Collective over the processes of these handles: a group of them, in this order. uuid: a new
    /// one for each call. timeout: of the group's operations; limit: of this call.
    static std::shared_ptr<Group> meet(const std::string& uuid,
                                       const std::vector<std::string>& handles,
                                       std::chrono::milliseconds timeout,
                                       std::chrono::milliseconds limit, const Settings& settings);
    /// The settings with a secret that the processes of this store share, if they have none.
    static Settings with_secret(const Settings& settings,
                                const c10::intrusive_ptr<c10d::Store>& store);
    /// Collective over this group: a part of its communicator; NULL for color < 0.
    std::shared_ptr<Group> split(int color, int key);
    /// Collective over the ranks that remain: a group of them, without the excluded ranks, which do
    /// not call. Works after every failure.
    std::shared_ptr<Group> shrink(const std::vector<int>& excluded);
    ~Group();
    Group(const Group&) = delete;

    tutti_comm* comm() const { return comm_; }
    /// The number of operations that may run at the same time; the same on all ranks.
    int streams() const { return streams_; }
    /// Whether all ranks have this version of the layer or a later one, in which the calls of a
    /// list of tensors have its name; the same on all ranks.
    bool all_name_lists() const { return all_name_lists_; }

private:
    Group(tutti_comm* comm, int streams, std::shared_ptr<HostStore> store)
        : comm_(comm), streams_(streams), store_(std::move(store)) {}
    /// A group of a communicator that was made from this one's.
    std::shared_ptr<Group> part_of(tutti_comm* part) const;

    tutti_comm* comm_;
    int streams_;
    std::shared_ptr<HostStore> store_;
    bool all_name_lists_ = false;
};

}  // namespace tutti_torch
