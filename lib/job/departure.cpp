#include "job/departure.h"

#include <algorithm>

#include "control/tree_message.h"
#include "wait/pace.h"

namespace tutti {
namespace {

constexpr int64_t opening_ms = 2000;        // for the end of a connection that is being made
constexpr int64_t last_detours_ms = 1000;   // for this rank's last messages
constexpr int64_t failed_news_ms = 30;      // … if every rank hears of a failure
constexpr int64_t farewell_ms = 200;        // for ranks with manual progress
constexpr int64_t failed_farewell_ms = 30;  // if the failure was told before

}  // namespace

bool Departure::leave_once(Deadline deadline) {
    if (leaving_) return false;  // no detour is opened after that
    const bool failed = router_.drop_links_not_waited_for();
    finish_detours(failed ? Deadline::after_ms(failed_news_ms) : deadline);
    if (leaving_.exchange(true)) return false;
    opener_.wait_until_idle(deadline.left_ms(opening_ms));
    if (assembly_.complete()) announce_leaving(deadline, failed);
    flush(deadline);
    transports_.close(deadline);
    return true;
}

// This rank's last messages may wait for these detours.
void Departure::finish_detours(Deadline deadline) {
    const auto patience = deadline.within_ms(last_detours_ms);
    dialer_.end_by(patience);
    Pace pace(patience, {.sleep_us = 100});
    while (detours_.next() != nobody) {
        service_.pump();
        if (!pace.pause()) return;
    }
}

// Until every neighbour has answered, this rank passes on messages that others send through it.
void Departure::announce_leaving(Deadline deadline, bool failed) {
    // Peers that leave, too, get it and answer: otherwise ranks that leave at the same time would
    // wait for each other's end.
    control_.flood_last(TreeMessage{.topic = TreeMessage::Topic::leaving}.encode());
    const int64_t most_ms =
        std::max<int64_t>(1, deadline.left_ms(failed ? failed_farewell_ms : farewell_ms));
    Pace pace(Deadline::after_ms(most_ms), {.sleep_us = 20});
    while (!control_.finished()) {
        service_.pump();
        // A neighbour keeps its link until this rank's transports have answered its goodbye.
        transports_.progress();
        if (!pace.pause()) return;
    }
}

void Departure::flush(Deadline deadline) {
    Pace pace(deadline, {.sleep_us = 100});
    while (!control_.flushed()) {
        service_.pump();
        if (!pace.pause()) return;
    }
}

}  // namespace tutti
