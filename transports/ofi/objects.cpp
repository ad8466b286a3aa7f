#include "transports/ofi/objects.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/log.h"
#include "fabric/messages/prefix.h"

namespace tutti::ofi {
namespace {

// With a descriptor to sleep on, if the provider has one.
Result<> open_completions(Objects& o, std::size_t size) {
    fi_cq_attr attr{};
    attr.size = size;
    attr.format = FI_CQ_FORMAT_MSG;
    attr.wait_obj = FI_WAIT_FD;
    fid_cq* queue = nullptr;
    int code = fi_cq_open(o.domain.get(), &attr, &queue, nullptr);
    if (code == 0) {
        o.completions.reset(queue);
        if (fi_control(&queue->fid, FI_GETWAIT, &o.wake_fd) == 0) return {};
        o.wake_fd = -1;
        o.completions.reset();
    }
    attr.wait_obj = FI_WAIT_NONE;
    code = fi_cq_open(o.domain.get(), &attr, &queue, nullptr);
    if (code != 0) return fail_fi(*o.info, "opening a completion queue", code);
    o.completions.reset(queue);
    return {};
}

Result<Bytes> read_address(const Objects& o, fid_ep* endpoint) {
    Bytes address(fabric::max_address_bytes);
    std::size_t bytes = address.size();
    if (const int code = fi_getname(&endpoint->fid, address.data(), &bytes); code != 0)
        return fail_fi(*o.info, "getting the address of the endpoint", code);
    address.resize(bytes);
    return address;
}

Result<Bytes> open_endpoint(const Objects& o, Fid<fid_ep>& place) {
    fid_ep* endpoint = nullptr;
    int code = fi_endpoint(o.domain.get(), o.info.get(), &endpoint, nullptr);
    if (code != 0) return fail_fi(*o.info, "opening an endpoint", code);
    place.reset(endpoint);
    code = fi_ep_bind(endpoint, &o.completions->fid, FI_TRANSMIT | FI_RECV);
    if (code == 0) code = fi_ep_bind(endpoint, &o.addresses->fid, 0);
    if (code == 0) code = fi_enable(endpoint);
    if (code != 0) return fail_fi(*o.info, "enabling the endpoint", code);
    return read_address(o, endpoint);
}

// If this fails, the port uses the first endpoint alone.
void open_second(Objects& o) {
    auto address = open_endpoint(o, o.second);
    if (address) {
        o.second_address = std::move(*address);
        return;
    }
    log::debug("{}", address.error().message);
    o.second.reset();
}

}  // namespace

std::string reason(long code) {
    return library().fi_strerror(static_cast<int>(code < 0 ? -code : code));
}

bool is_own(long code) {
    constexpr long own[] = {FI_ENOMEM,   FI_ENOSPC, FI_EMFILE, FI_ETOOSMALL,
                            FI_EMSGSIZE, FI_EINVAL, FI_ENOSYS, FI_EOPNOTSUPP};
    return std::find(std::begin(own), std::end(own), std::abs(code)) != std::end(own);
}

ErrorResult fail_fi(const fi_info& info, std::string_view what, long code) {
    return fail(code == -FI_ENOMEM ? Code::no_memory : Code::system, "libfabric ({}): {}: {}",
                info.fabric_attr->prov_name, what, reason(code))
        .advice(
            "read libfabric's own log (FI_LOG_LEVEL=info), or name another provider with "
            "TUTTI_OFI_PROVIDER");
}

Result<Objects> open_objects(const fi_info& info, std::size_t completions) {
    Objects o;
    o.info.reset(library().fi_dupinfo(&info));
    fid_fabric* fabric = nullptr;
    int code = library().fi_fabric(o.info->fabric_attr, &fabric, nullptr);
    if (code != 0) return fail_fi(info, "opening the fabric", code);
    o.fabric.reset(fabric);
    fid_domain* domain = nullptr;
    code = fi_domain(fabric, o.info.get(), &domain, nullptr);
    if (code != 0) return fail_fi(info, "opening the domain", code);
    o.domain.reset(domain);
    TUTTI_TRY(open_completions(o, completions));
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    fid_av* addresses = nullptr;
    code = fi_av_open(domain, &attr, &addresses, nullptr);
    if (code != 0) return fail_fi(info, "opening an address vector", code);
    o.addresses.reset(addresses);
    TUTTI_ASSIGN(o.address, open_endpoint(o, o.endpoint));
    if (is_plain_sockets(o.provider())) open_second(o);
    return o;
}

}  // namespace tutti::ofi
