// Owners of libfabric objects, and one endpoint with all objects that it needs.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "transports/ofi/providers.h"

namespace tutti::ofi {

inline constexpr int handled_mr_modes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

struct CloseFid {
    template <typename T>
    void operator()(T* object) const {
        fi_close(&object->fid);
    }
};
template <typename T>
using Fid = std::unique_ptr<T, CloseFid>;

/// An error for a failed libfabric call: "libfabric (tcp): what: reason". code: -FI_E….
ErrorResult fail_fi(const fi_info& info, std::string_view what, long code);

/// Only the reason.
std::string reason(long code);

/// Whether the error is this process's own (no memory, a wrong argument), and does not mean a lost
/// peer.
bool is_own(long code);

/// Closed from the last member to the first.
struct Objects {
    InfoPtr info;
    Fid<fid_fabric> fabric;
    Fid<fid_domain> domain;
    Fid<fid_cq> completions;
    Fid<fid_av> addresses;
    Fid<fid_ep> endpoint;
    Fid<fid_ep> second;  // for crossing messages, if they gain by a connection of their own
    int wake_fd = -1;    // the completion queue's
    Bytes address;       // the endpoint's address
    Bytes second_address;

    const char* provider() const { return info->fabric_attr->prov_name; }
};

/// Opens and enables the endpoints. completions: the most that can be outstanding at once.
Result<Objects> open_objects(const fi_info& info, std::size_t completions);

}  // namespace tutti::ofi
