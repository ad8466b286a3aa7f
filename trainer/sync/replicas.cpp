#include "trainer/sync/replicas.h"

namespace tutti::trainer {
namespace {

Result<tutti_comm*> create_alone() {
    tutti_config* config = nullptr;
    TRAINER_TRY(from_call(tutti_config_create(&config),
                          "settings of a communicator for this process alone"));
    tutti_comm* comm = nullptr;
    tutti_status status = tutti_config_set(config, "join", "0");
    if (status == TUTTI_OK) status = tutti_config_set(config, "rank", "0");
    if (status == TUTTI_OK) status = tutti_config_set(config, "size", "1");
    if (status == TUTTI_OK) status = tutti_comm_create(config, &comm);
    tutti_config_destroy(config);
    TRAINER_TRY(from_call(status, "a communicator of this process alone"));
    return comm;
}

Result<tutti_comm*> duplicate(tutti_comm* comm) {
    tutti_comm* copy = nullptr;
    TRAINER_TRY(from_call(tutti_comm_dup(comm, &copy), "copy of the communicator"));
    return copy;
}

}  // namespace

Result<Comm> Comm::copy_of(tutti_comm* comm) {
    TRAINER_ASSIGN(tutti_comm* const own, comm ? duplicate(comm) : create_alone());
    return Comm(own);
}

bool is_loss(const Error& error) {
    if (error.agreed) return false;
    return error.status == TUTTI_ERR_PEER_LOST || error.status == TUTTI_ERR_REVOKED ||
           error.status == TUTTI_ERR_ABORTED || error.status == TUTTI_ERR_TIMEOUT;
}

void Comm::abort_after(const Error& cause) const {
    if (cause.agreed || size() <= 1) return;
    if (recovers_ && is_loss(cause))
        tutti_comm_revoke(get());
    else
        tutti_comm_abort(get());
}

Result<bool> Comm::all_say(bool yes) const {
    uint64_t bits = yes ? 1 : 0;
    Result<> agreed = from_call(tutti_comm_agree(get(), &bits), "agreement of the ranks");
    if (!agreed && agreed.error().status == TUTTI_ERR_MISMATCH)
        agreed.error().status = TUTTI_ERR_REVOKED;
    TRAINER_TRY(agreed);
    return bits == 1;
}

bool Comm::has_losses() const {
    std::size_t count = 0;
    return tutti_comm_lost(get(), nullptr, 0, &count) == TUTTI_OK && count > 0;
}

Result<Comm> Comm::grown_by(int newcomers) const {
    tutti_comm* larger = nullptr;
    TRAINER_TRY(from_call(tutti_comm_grow(get(), newcomers, &larger), "growth"));
    const Comm met(larger);
    return copy_of(larger);
}

Result<> Comm::shrink() {
    // A rank that was between two steps first asks all ranks (all_say) or grows.
    constexpr int most_mismatches = 4;
    tutti_comm_revoke(get());
    tutti_comm* smaller = nullptr;
    tutti_status status = TUTTI_ERR_MISMATCH;
    for (int i = 0; i <= most_mismatches && status == TUTTI_ERR_MISMATCH; ++i)
        status = tutti_comm_shrink(get(), &smaller);
    TRAINER_TRY(from_call(status, "recovery with the ranks left"));
    comm_.reset(smaller);
    return {};
}

}  // namespace tutti::trainer
