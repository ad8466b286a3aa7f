// Ranks that cannot join: stores, addresses, secrets, files, and ranks that differ or are missing.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <functional>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::joining {
namespace {

/// A TCP port of this host on which this process listens, until this is gone.
class TakenPort {
public:
    TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
        ::listen(fd_, 1);
        socklen_t length = sizeof address;
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
        port_ = ntohs(address.sin_port);
    }
    TakenPort(const TakenPort&) = delete;
    ~TakenPort() { ::close(fd_); }
    std::string url() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

private:
    int fd_;
    int port_ = 0;
};

tutti_status join_with(Ledger& ledger, const test::Folder& folder, const Settings& more,
                       int rank = 0) {
    Settings settings = settings_of(folder, rank, 2);
    settings.insert(settings.end(), more.begin(), more.end());
    return try_to_join(ledger, settings);
}

struct Row {
    const char* what;
    Want want;
    Settings settings;
};

// Each is refused before anything waits.
void refuse_settings(Ledger& ledger) {
    const Row rows[] = {
        {"a store without a port", {.names = "127.0.0.1"}, {{"store", "tcp://127.0.0.1"}}},
        {"a store on port 0", {.names = "127.0.0.1:0"}, {{"store", "tcp://127.0.0.1:0"}}},
        {"a store without a host", {.names = "tcp://:29500"}, {{"store", "tcp://:29500"}}},
        {"a store on a port past the last",
         {.names = "99999"},
         {{"store", "tcp://127.0.0.1:99999"}}},
        {"a store without a closing bracket", {.names = "[::1"}, {{"store", "tcp://[::1"}}},
        {"a store with two colons", {.names = "1:2:3"}, {{"store", "tcp://1:2:3"}}},
        {"a relative directory as a store", {.names = "some/dir"}, {{"store", "file://some/dir"}}},
        {"a store that is no directory",
         {TUTTI_ERR_SYSTEM, "/dev/null"},
         {{"store", "file:///dev/null"}}},
        {"a store without a scheme", {.names = "somewhere"}, {{"store", "somewhere"}}},
        {"a store for all the world", {.names = "0.0.0.0"}, {{"store", "tcp://0.0.0.0:29533"}}},
        {"an address of another machine",
         {.names = "198.51.100.7"},
         {{"transport", "tcp"}, {"iface", "198.51.100.7"}}},
        {"a rank past the end", {.names = "rank 5"}, {{"rank", "5"}}},
    };
    at_once(rows, [&](const Row& row) {
        const test::Folder folder;
        ledger.take(row.what, join_with(ledger, folder, row.settings), row.want);
    });
}

void refuse_files(Ledger& ledger) {
    struct File {
        const char* what;
        const char* key;
        std::string contents;
        const char* names;
    };
    const File files[] = {
        {"an empty secret file", "secret_file", "", "secret"},
        {"a secret file with a short secret", "secret_file", "abc\n", "secret"},
        {"a secret file that is too long", "secret_file", std::string(100'000, 'x'), "secret"},
        {"a tuning file of nonsense", "tuning", "this is no tuning\n", "tuning"},
        {"a choice that is cut short", "tuning", "choose allreduce\n", "tuning"},
        {"a choice of no collective", "tuning", "choose teleport inproc ranks=2 bytes=0..* ring\n",
         "teleport"},
        {"a choice of no algorithm", "tuning", "choose allreduce inproc ranks=2 bytes=0..* magic\n",
         "magic"},
        {"a choice of no range", "tuning", "choose allreduce inproc ranks=many bytes=0..* ring\n",
         "ranks=many"},
        {"a choice of an empty range", "tuning",
         "choose allreduce inproc ranks=5..2 bytes=0..* ring\n", "ranks=5..2"},
        {"a machine without a name", "tuning", "machine\n", "machine"},
        {"constants that are cut short", "tuning", "constants tcp\n", "tuning"},
        {"an unknown constant", "tuning", "constants tcp speed=1\n", "speed"},
    };
    for (const File& file : files) {
        const test::Folder folder, own;
        const std::string path = own.file("setting");
        std::ofstream(path) << file.contents;
        tutti_config* config = nullptr;
        tutti_comm* comm = nullptr;
        tutti_config_create(&config);
        tutti_status status = TUTTI_OK;
        for (const auto& [key, value] : settings_of(folder, 0, 1))
            tutti_config_set(config, key.c_str(), value.c_str());
        status = tutti_config_set(config, file.key, path.c_str());
        if (status == TUTTI_OK) status = tutti_comm_create(config, &comm);
        const bool unsupported = std::strcmp(file.what, "a choice of no algorithm") == 0;
        ledger.take(file.what, status,
                    {unsupported ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_INVALID, file.names});
        tutti_comm_destroy(comm);
        tutti_config_destroy(config);
    }
}

void miss_a_rank(Ledger& ledger) {
    const test::Folder folder;
    ledger.take("a rank that does not come", join_with(ledger, folder, {{"timeout_ms", "1000"}}),
                {TUTTI_ERR_TIMEOUT, "rank 1", 0, 1});
}

void miss_the_first_rank(Ledger& ledger) {
    const test::Folder folder;
    ledger.take("a first rank that does not come",
                join_with(ledger, folder, {{"timeout_ms", "1000"}}, 1),
                {TUTTI_ERR_TIMEOUT, "rank 0", 1, 0});
}

void miss_the_store(Ledger& ledger) {
    const test::Folder folder;
    std::string url;
    {
        const TakenPort port;
        url = port.url();
        ledger.take("a store's port that is taken", join_with(ledger, folder, {{"store", url}}),
                    {TUTTI_ERR_SYSTEM, url, 0});
    }
    ledger.take("a store that is not there",
                join_with(ledger, folder, {{"store", url}, {"timeout_ms", "1000"}}, 1),
                {TUTTI_ERR_TIMEOUT, url, 1, 0});
}

struct Difference {
    const char* key;
    const char* first;
    const char* second;
};

// Each rank hears of it, and which rank has which value.
void differ(Ledger& ledger) {
    constexpr Difference differences[] = {
        {"nrings", "2", "3"},
        {"check", "frames", "strict"},
        {"fabric_ports", "1", "2"},
        {"heartbeat_ms", "5000", "6000"},
        {"device_tile_bytes", "4096", "8192"},
        {"device_rings", "1", "2"},
        {"device_split", "own", "share"},
        {"transport", "inproc", "tcp"},
        {"size", "2", "3"},
    };
    at_once(differences, [&](const Difference& difference) {
        const test::Folder folder;
        on_threads(2, [&](int rank) {
            const tutti_status status = join_with(
                ledger, folder,
                {{difference.key, rank == 0 ? difference.first : difference.second}}, rank);
            ledger.take(
                std::string("different ") + difference.key + " on rank " + std::to_string(rank),
                status, {TUTTI_ERR_INVALID, difference.key, rank, 1});
        });
    });
}

void know_another_secret(Ledger& ledger) {
    const test::Folder folder;
    on_threads(2, [&](int rank) {
        const std::string secret = rank == 0 ? "correct horse battery" : "wrong horse battery";
        const tutti_status status =
            join_with(ledger, folder, {{"secret", secret}, {"timeout_ms", "20000"}}, rank);
        if (rank == 1)
            ledger.take("a wrong secret", status, {TUTTI_ERR_AUTH, "secret", 1});
        else if (status == TUTTI_OK)
            ledger.broken("a wrong secret", "rank 0 has joined");
    });
}

int fail_to_set(void*, const char*, const void*, size_t) {
    return 1;
}
int set_nothing(void*, const char*, const void*, size_t) {
    return 0;
}
int fail_to_get(void*, const char*, void*, size_t, size_t*, int64_t) {
    return 2;
}
int get_nothing(void*, const char*, void*, size_t, size_t*, int64_t) {
    return 1;
}
int get_too_much(void*, const char*, void*, size_t, size_t* size, int64_t) {
    *size = std::size_t{1} << 40;
    return 0;
}
int fail_to_add(void*, const char*, int64_t, int64_t*) {
    return 1;
}
int count_one(void*, const char*, int64_t, int64_t* result) {
    *result = 1;
    return 0;
}

void have_a_bad_store(Ledger& ledger) {
    struct Store {
        const char* what;
        Want want;
        tutti_store_callbacks callbacks;
    };
    constexpr std::size_t bytes = sizeof(tutti_store_callbacks);
    const Store stores[] = {
        {"a store whose set fails",
         {TUTTI_ERR_SYSTEM, "set"},
         {bytes, fail_to_set, get_nothing, count_one}},
        {"a store whose get fails",
         {TUTTI_ERR_SYSTEM, "get"},
         {bytes, set_nothing, fail_to_get, count_one}},
        {"a store whose add fails",
         {TUTTI_ERR_SYSTEM, "add"},
         {bytes, set_nothing, get_nothing, fail_to_add}},
        {"a store whose values are too long",
         {.names = "get"},
         {bytes, set_nothing, get_too_much, count_one}},
    };
    for (const Store& store : stores) {
        const Configuration config(ledger, {{"rank", "0"}, {"size", "2"}, {"timeout_ms", "20000"}});
        if (tutti_config_set_store(config.get(), &store.callbacks, nullptr) != TUTTI_OK)
            ledger.broken(store.what, tutti_last_error());
        tutti_comm* comm = nullptr;
        ledger.take(store.what, tutti_comm_create(config.get(), &comm), store.want);
    }
    const Configuration config(ledger, {});
    tutti_store_callbacks callbacks{bytes, set_nothing, nullptr, count_one};
    ledger.take("a store without a function",
                tutti_config_set_store(config.get(), &callbacks, nullptr),
                {.names = "tutti_config_set_store"});
    callbacks.struct_size = 4;
    ledger.take("a store of no size", tutti_config_set_store(config.get(), &callbacks, nullptr),
                {.names = "tutti_config_set_store"});
    ledger.take("a setting without a value", tutti_config_set(config.get(), "rank", nullptr),
                {.names = "tutti_config_set"});
    ledger.take("a setting without a name", tutti_config_set(config.get(), nullptr, "0"),
                {.names = "tutti_config_set"});
}

}  // namespace

void provoke_joining(Ledger& ledger) {
    constexpr void (*all[])(Ledger&) = {refuse_settings, miss_a_rank, miss_the_first_rank,
                                        miss_the_store,  differ,      know_another_secret};
    at_once(all, [&](void (*provoke)(Ledger&)) { provoke(ledger); });
    refuse_files(ledger);
    have_a_bad_store(ledger);
}

}  // namespace errors_test::joining
