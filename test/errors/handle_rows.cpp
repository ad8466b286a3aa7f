// Processes that cannot meet by their handles. Ranks are threads, each with a handle of its own.
#include <functional>
#include <string>
#include <vector>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::handles {
namespace {

using Handle = std::string;

Settings numbered(int rank, const Settings& more = {}) {
    Settings settings = {{"job", "handles"}, {"rank", std::to_string(rank)}, {"transport", "shm"}};
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
}

Handle handle_of(Ledger& ledger, const Settings& settings) {
    const Configuration config(ledger, settings);
    Handle handle(TUTTI_MAX_HANDLE_BYTES, '\0');
    size_t bytes = 0;
    if (tutti_comm_get_handle(config.get(), handle.data(), handle.size(), &bytes) != TUTTI_OK)
        ledger.broken("a handle", tutti_last_error());
    handle.resize(bytes);
    return handle;
}

struct Call {
    std::string uuid;
    std::vector<Handle> handles;
    int64_t timeout_ms = 60'000;
};

tutti_status meet(Ledger& ledger, const Settings& settings, const Call& call) {
    const Configuration config(ledger, settings);
    std::vector<const void*> starts;
    std::vector<size_t> sizes;
    for (const Handle& handle : call.handles) {
        starts.push_back(handle.data());
        sizes.push_back(handle.size());
    }
    tutti_comm* comm = nullptr;
    const tutti_status status =
        tutti_comm_reconfigure(config.get(), call.uuid.c_str(), starts.data(), sizes.data(),
                               static_cast<int>(starts.size()), call.timeout_ms, &comm);
    if (status == TUTTI_OK) tutti_comm_destroy(comm);
    return status;
}

void get_no_handle(Ledger& ledger) {
    const Configuration config(ledger, numbered(0));
    char handle[8];
    size_t bytes = 0;
    ledger.take("a place that is too small",
                tutti_comm_get_handle(config.get(), handle, sizeof handle, &bytes),
                {.names = "but capacity is 8"});
    ledger.take("no place", tutti_comm_get_handle(config.get(), nullptr, 8, &bytes),
                {.names = "handle is NULL"});
    const Configuration named(ledger, {{"job", std::string(513, 'j')}});
    ledger.take("a long job's name", tutti_comm_get_handle(named.get(), nullptr, 0, &bytes),
                {.names = "the job's name has 513 bytes"});
    const Configuration elsewhere(ledger, {{"iface", "nowhere0"}});
    ledger.take("an unknown interface", tutti_comm_get_handle(elsewhere.get(), nullptr, 0, &bytes),
                {.names = "nowhere0"});
}

void give_wrong_arguments(Ledger& ledger) {
    const Settings own = numbered(0);
    const Handle handle = handle_of(ledger, own), other = handle_of(ledger, numbered(1));
    const auto refuse = [&](const char* row, const Call& call, const Want& want) {
        ledger.take(row, meet(ledger, own, call), want);
    };
    refuse("no uuid", {"", {handle}}, {.names = "the uuid has 0 bytes"});
    refuse("a long uuid", {std::string(257, 'u'), {handle}}, {.names = "the uuid has 257 bytes"});
    refuse("no handles", {"none", {}}, {.names = "count is 0"});
    refuse("another's handle only", {"other", {other}}, {.names = "none of the 1 handle is"});
    refuse("a handle twice", {"twice", {handle, other, handle}}, {.names = "handles 0 and 2 of 3"});
    if (meet(ledger, own, {"once", {handle}}) != TUTTI_OK)
        ledger.broken("one process", tutti_last_error());
    refuse("a uuid twice", {"once", {handle}}, {.names = "uuid 'once' was used before"});
    ledger.take("no handle of this process", meet(ledger, numbered(9), {"absent", {handle}}),
                {.names = "has no handle for job 'handles'"});
    const void* start = handle.data();
    const size_t size = handle.size();
    tutti_comm* comm = nullptr;
    const Configuration config(ledger, own);
    ledger.take("no uuid's text",
                tutti_comm_reconfigure(config.get(), nullptr, &start, &size, 1, -1, &comm),
                {.names = "uuid is NULL"});
    ledger.take("no handles' starts",
                tutti_comm_reconfigure(config.get(), "null", nullptr, &size, 1, -1, &comm),
                {.names = "handles is NULL"});
    ledger.take("no handles' sizes",
                tutti_comm_reconfigure(config.get(), "null", &start, nullptr, 1, -1, &comm),
                {.names = "handle_bytes is NULL"});
    start = nullptr;
    ledger.take("no handle's start",
                tutti_comm_reconfigure(config.get(), "null", &start, &size, 1, -1, &comm),
                {.names = "handles[0] is NULL"});
}

void give_bad_handles(Ledger& ledger) {
    const Settings own = numbered(0);
    const Handle handle = handle_of(ledger, own);
    const auto refuse = [&](const char* row, const Handle& bad, const Want& want) {
        ledger.take(row, meet(ledger, own, {"bad", {handle, bad}}), want);
    };
    refuse("no bytes", "", {.names = "handle 1 of 2: it is cut short: 0 bytes"});
    refuse("a part", handle.substr(0, 30), {.names = "it is cut short: 30 bytes are left of"});
    refuse("more than a handle", handle + "x", {.names = "but says that it has"});
    refuse("other bytes", "tcp://127.0.0.1:29500", {.names = "it is no handle of tutti"});
    Handle damaged = handle;
    damaged[40] ^= 1;
    refuse("a flipped bit", damaged, {.names = "its checksum is wrong"});
    refuse("another job", handle_of(ledger, numbered(1, {{"job", "elsewhere"}})),
           {.names = "it is of job 'elsewhere'"});
    refuse("another secret",
           handle_of(ledger, numbered(1, {{"secret", "0123456789abcdef0123456789abcdef"},
                                          {"iface", "127.0.0.1"}})),
           {TUTTI_ERR_AUTH, "its process has another secret"});
}

void give_different_lists(Ledger& ledger) {
    const Handle first = handle_of(ledger, numbered(2)), second = handle_of(ledger, numbered(3));
    on_threads(2, [&](int rank) {
        const std::vector<Handle> list =
            rank == 0 ? std::vector{first, second} : std::vector{second, first};
        const tutti_status status = meet(ledger, numbered(2 + rank), {"orders", list});
        ledger.take("another order", status,
                    {TUTTI_ERR_MISMATCH, "has the same handles in another order", 0,
                     tutti_last_error_rank()});
    });
}

void wait_for_a_process_that_does_not_call(Ledger& ledger) {
    const Handle first = handle_of(ledger, numbered(4)), second = handle_of(ledger, numbered(5));
    ledger.take("a process that does not call",
                meet(ledger, numbered(4), {"alone", {first, second}, 500}),
                {TUTTI_ERR_TIMEOUT, "1 of 2 ranks did not join within 500 ms: rank 1", 0, 1});
}

}  // namespace

void provoke_handles(Ledger& ledger) {
    constexpr void (*all[])(Ledger&) = {get_no_handle, give_wrong_arguments, give_bad_handles,
                                        give_different_lists,
                                        wait_for_a_process_that_does_not_call};
    at_once(all, [&](void (*provoke)(Ledger&)) { provoke(ledger); });
}

}  // namespace errors_test::handles
