// Leaving a job in order.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "control/control_tree.h"
#include "job/assembly.h"
#include "job/channel_opener.h"
#include "job/connecting/detour_dialer.h"
#include "job/connecting/detours.h"
#include "job/connecting/transport_set.h"
#include "job/control_router.h"
#include "job/service_thread.h"

namespace tutti {

/// Sends this rank's last messages, tells its neighbours that it leaves in order, waits for their
/// answers, and closes its transports: once, bounded by the deadline. From then on `leaving` is
/// set.
class Departure {
public:
    Departure(ControlTree& control, const Assembly& assembly, TransportSet& transports,
              Detours& detours, DetourDialer& dialer, ControlRouter& router, ChannelOpener& opener,
              ServiceThread& service, std::atomic<bool>& leaving)
        : control_(control),
          assembly_(assembly),
          transports_(transports),
          detours_(detours),
          dialer_(dialer),
          router_(router),
          opener_(opener),
          service_(service),
          leaving_(leaving) {}

    /// False: another call has done so.
    bool leave_once(Deadline deadline);

private:
    void finish_detours(Deadline deadline);
    void announce_leaving(Deadline deadline, bool failed);
    void flush(Deadline deadline);

    ControlTree& control_;
    const Assembly& assembly_;
    TransportSet& transports_;
    Detours& detours_;
    DetourDialer& dialer_;
    ControlRouter& router_;
    ChannelOpener& opener_;
    ServiceThread& service_;
    std::atomic<bool>& leaving_;
};

}  // namespace tutti
