// The handles of this process, and the stores to which they lead.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "handles/handle.h"
#include "rendezvous/store.h"

namespace tutti::own_handles {

struct Own {
    Handle handle;
    std::shared_ptr<Store> store;  // a client of the process's own server
};

/// The handle for a job, secret, interface and rank of the settings. The first call starts the
/// server of its store, which serves until the process ends. A forked child has handles of its own.
Result<Own> get(const Config& config);
/// invalid: get() has not been called with such settings.
Result<Own> find(const Config& config);
/// invalid: such a call has had this uuid before.
Result<> use_uuid(const Config& config, const std::string& uuid);

}  // namespace tutti::own_handles
