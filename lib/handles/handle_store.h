// The store in which the processes of a list of handles meet: that of the first process.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "handles/handle_list.h"
#include "handles/own_handles.h"
#include "rendezvous/store.h"

namespace tutti {

/// Connects to the store that a handle leads to. peer_lost: the rank's process has ended.
Result<std::unique_ptr<Store>> open_process_store(const Handle& handle, Rank rank,
                                                  const Config& config, Deadline deadline);

struct Meeting {
    std::string uuid;
    HandleList list;
    Rank rank = nobody;  // this process's in the list
    own_handles::Own own;
    std::string generation;  // for Communicator::join()
};

/// Each process states its list under the uuid, in its own store and in the first process's.
/// mismatch: another process has stated another list there; the store then also holds this
/// process's objection, which those with the other list find while they wait. The first process
/// also looks for the statements of missing ranks in these ranks' own stores.
Result<std::unique_ptr<Store>> open_handle_store(const Meeting& meeting, const Config& config,
                                                 Deadline deadline);
/// Takes the statement in the own store back, once all ranks have joined.
void withdraw_statement(const Meeting& meeting, Deadline deadline);

}  // namespace tutti
