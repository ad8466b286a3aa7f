// The openers in store.cpp's table, and the functions that they share.
#pragma once

#include <string>
#include <string_view>

#include "net/socket.h"
#include "rendezvous/store.h"

namespace tutti {

Result<std::unique_ptr<Store>> open_tcp_store(const StoreOptions& options);
Result<std::unique_ptr<Store>> open_file_store(const StoreOptions& options);

/// Refuses (invalid) a store at an address other than loopback if there is no secret, because any
/// process that reaches the address could join the job. With `insecure` it only warns. timeout: the
/// host's name could not be looked up before the deadline.
Result<> check_exposure(const net::HostPort& at, const std::string& secret, bool insecure,
                        Deadline deadline);

/// The part of a URL after "scheme://".
inline std::string_view after_scheme(std::string_view url) {
    const auto at = url.find("://");
    return at == std::string_view::npos ? url : url.substr(at + 3);
}

/// The error of any store for a get that reached its deadline.
inline ErrorResult key_missing(const std::string& key, const std::string& store, int64_t start_ns) {
    return fail(Code::timeout, "no rank set the key \"{}\" in store {} within {} ms", key, store,
                (now_ns() - start_ns) / 1'000'000);
}

}  // namespace tutti
