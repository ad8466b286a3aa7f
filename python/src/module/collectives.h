// The collectives by name.
#pragma once

#include "communicator.h"

namespace tutti_python {

struct Collective {
    const char* name;
    tutti_status (*start)(tutti_comm* comm, const Call& call, const tutti_call_opts* opts,
                          tutti_request** request);
    tutti_status (*plan)(tutti_comm* comm, const Call& call, const tutti_call_opts* opts,
                         tutti_plan** plan);
};

/// ValueError for an unknown name.
const Collective& collective_of(const char* name);

}  // namespace tutti_python
