#include "fuzz/catalog.h"

#include <array>

namespace tutti::fuzz {
namespace {

constexpr std::array all = {
    Target{"agreement", run_agreement, seeds_agreement},
    Target{"store", run_store, seeds_store},
    Target{"authentication", run_authentication, seeds_authentication},
    Target{"tcp", run_tcp, seeds_tcp},
    Target{"bootstrap", run_bootstrap, seeds_bootstrap},
    Target{"control", run_control, seeds_control},
    Target{"shm", run_shm, seeds_shm},
    Target{"fabric", run_fabric, seeds_fabric},
    Target{"handle", run_handle, seeds_handle},
    Target{"records", run_records, seeds_records},
    Target{"tuning", run_tuning, seeds_tuning},
    Target{"checkpoint_header", run_checkpoint_header, seeds_checkpoint_header},
    Target{"checkpoint_manifest", run_checkpoint_manifest, seeds_checkpoint_manifest},
};

}  // namespace

std::span<const Target> targets() {
    return all;
}

}  // namespace tutti::fuzz
