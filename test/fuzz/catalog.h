// The targets, each in a file of its own.
#pragma once

#include "fuzz/fuzz.h"

namespace tutti::fuzz {

#define TUTTI_FUZZ_TARGET(name)   \
    void run_##name(ByteView in); \
    std::vector<Bytes> seeds_##name();

TUTTI_FUZZ_TARGET(agreement)
TUTTI_FUZZ_TARGET(store)
TUTTI_FUZZ_TARGET(authentication)
TUTTI_FUZZ_TARGET(tcp)
TUTTI_FUZZ_TARGET(bootstrap)
TUTTI_FUZZ_TARGET(control)
TUTTI_FUZZ_TARGET(shm)
TUTTI_FUZZ_TARGET(fabric)
TUTTI_FUZZ_TARGET(handle)
TUTTI_FUZZ_TARGET(tuning)
TUTTI_FUZZ_TARGET(records)
TUTTI_FUZZ_TARGET(checkpoint_header)
TUTTI_FUZZ_TARGET(checkpoint_manifest)

#undef TUTTI_FUZZ_TARGET

}  // namespace tutti::fuzz
