// Ownership, life and death of a connection; send.cpp and receive.cpp are its two directions.
#include "transports/tcp/connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/event_fd.h"
#include "base/log.h"
#include "net/reactor.h"
#include "transports/tcp/channel.h"

namespace tutti::tcp {
namespace {

uint64_t key_of(uint32_t comm, uint16_t lane) {
    return uint64_t{comm} << 16 | lane;
}

}  // namespace

/// Waits for the owner flag: the owner never blocks, so that is short. Not held if closed.
class Connection::Guard {
public:
    explicit Guard(Connection& connection) : c_(connection), held_(connection.enter()) {}
    ~Guard() {
        if (held_) c_.leave();
    }
    Guard(const Guard&) = delete;
    explicit operator bool() const { return held_; }

private:
    Connection& c_;
    const bool held_;
};

Connection::Connection(UniqueFd fd, const Options& options)
    : options_(options),
      fd_(std::move(fd)),
      batch_(std::make_unique_for_overwrite<std::byte[]>(batch_bytes)),
      input_(std::make_unique_for_overwrite<std::byte[]>(input_bytes)),
      input_limit_(input_bytes) {}

Connection::~Connection() = default;

Result<> Connection::watch() {
    return options_.data_reactor->add(
        fd_.get(), EPOLLIN | EPOLLRDHUP,
        [self = shared_from_this()](uint32_t events) { self->on_events(events); });
}

// ---- ownership -------------------------------------------------------------------------------

void Connection::leave() {
    for (;;) {
        if (!forgotten_.empty()) forget_flows();
        const std::unique_ptr<News> news = std::move(news_);
        if (news) delivering_.fetch_add(1, std::memory_order_seq_cst);
        owner_.give();
        if (news) {
            deliver(*news);
            delivering_.fetch_sub(1, std::memory_order_seq_cst);
        }
        if (!ready_.added() || !owner_.try_take()) return;
        flush();
    }
}

// Without the owner flag: the transport's client has locks of its own.
void Connection::deliver(const News& news) {
    for (Flow* flow : news.opened)
        options_.events->opened({options_.peer, flow->comm, flow->lane},
                                std::make_unique<TcpReceiver>(shared_from_this(), *flow));
    if (news.lost != nobody) options_.events->lost(news.lost, news.cause);
}

// Mostly nobody else is in, and the list that threads share can be left alone.
void Connection::kick(Flow& flow) {
    bool inside = owner_.try_take();
    if (inside) {
        ready_.append(flow);
    } else {
        ready_.add(flow);
        inside = owner_.try_take();
    }
    if (!inside) return;
    flush();
    leave();
}

void Connection::progress() {
    if (owner_.taken() || health() != Code::ok || !owner_.try_take()) return;
    flush();
    receive(false);
    leave();
}

void Connection::on_events(uint32_t events) {
    if (!owner_.try_take()) return;  // level-triggered: asked again if the owner leaves anything
    flush();
    receive(false);
    if ((events & EPOLLOUT) != 0 && health() == Code::ok && !output_pending()) watch_output(false);
    leave();
}

void Connection::wake(Sleeper& sleeper) {
    if (sleeper.wants_waking()) ring_event_fd(options_.doorbell_fd);
}

// ---- channels --------------------------------------------------------------------------------

Flow* Connection::find(uint32_t comm, uint16_t lane) {
    if (last_flow_ && last_flow_->comm == comm && last_flow_->lane == lane) return last_flow_;
    const auto found = flows_.find(key_of(comm, lane));
    return found == flows_.end() ? nullptr : last_flow_ = found->second.get();
}

Flow* Connection::find_or_add(uint32_t comm, uint16_t lane) {
    if (Flow* flow = find(comm, lane)) return flow;
    if (flows_.size() >= max_channels_taken) return nullptr;
    auto& flow = flows_[key_of(comm, lane)] = std::make_unique<Flow>(comm, lane);
    flow->in.cells.count_in(unread_bytes_);
    return flow.get();
}

// A channel may be opened again as long as its communicator lives.
void Connection::half_closed(Flow& flow) {
    if (!flow.out.open.load(std::memory_order_relaxed) && !flow.in.live &&
        options_.retired->contains(flow.comm))
        forgotten_.push_back(&flow);
}

/// Whether a flow without halves has something to send, or a message that is arriving.
bool Connection::in_use(const Flow& flow) const {
    return flow.ready.load(std::memory_order_relaxed) || &flow == in_flow_ ||
           (health() == Code::ok && flow.out.sent.load(std::memory_order_relaxed) !=
                                        flow.out.pushed.load(std::memory_order_relaxed));
}

void Connection::forget_flows() {
    if (health() != Code::ok) ready_.clear();  // nothing leaves it by being sent any more
    std::erase_if(forgotten_, [this](const Flow* flow) {
        if (in_use(*flow)) return false;
        if (last_flow_ == flow) last_flow_ = nullptr;
        opened_ -= flow->ours ? 1 : 0;
        flows_.erase(key_of(flow->comm, flow->lane));
        return true;
    });
}

Result<std::unique_ptr<Sender>> Connection::open(const ChannelId& id) {
    const Guard guard(*this);
    if (!guard || health() != Code::ok)
        return fail_rank(Code::peer_lost, id.peer, "the connection to rank {} is gone", id.peer);
    if (options_.retired->contains(id.comm))
        return fail_rank(Code::invalid, id.peer, "communicator {} is destroyed", id.comm);
    const Flow* const known = find(id.comm, id.lane);
    const bool again = known && known->ours;
    Flow* flow = again || opened_ < max_channels ? find_or_add(id.comm, id.lane) : nullptr;
    if (!flow)
        return fail_rank(Code::invalid, id.peer,
                         "rank {} has {} channels on one connection already: free communicators",
                         id.peer, max_channels);
    if (flow->out.open.load(std::memory_order_relaxed))
        return fail_rank(Code::invalid, id.peer, "lane {} of communicator {} to rank {} is open",
                         id.lane, id.comm, id.peer);
    flow->out.open.store(true, std::memory_order_relaxed);
    opened_ += std::exchange(flow->ours, true) ? 0 : 1;
    flow->open_due = true;
    ready_.add(*flow);
    return std::make_unique<TcpSender>(shared_from_this(), *flow);
}

void Connection::close_sender(Flow& flow) {
    const Guard guard(*this);
    if (!guard) return;
    flow.out.open.store(false, std::memory_order_relaxed);
    half_closed(flow);
}

// What is left unread is dropped, here and in begin_data(), so that the sender gets its credits.
void Connection::close_receiver(Flow& flow) {
    const Guard guard(*this);
    if (!guard) return;
    ReceiveQueue& in = flow.in;
    in.live = false;
    drop(in);
    if (in.credits_due()) ready_.add(flow);
    half_closed(flow);
}

void Connection::reject(const std::string& cause) {
    const Guard guard(*this);
    if (guard) fail(cause);
}

// ---- the end ---------------------------------------------------------------------------------

void Connection::fail(const std::string& cause) {
    end(options_.peer, fmt::format("rank {}: {}", options_.peer, cause));
}

/// It is this rank that lacks something.
void Connection::cannot_go_on(const std::string& cause) {
    end(options_.rank,
        fmt::format("rank {} cannot go on with rank {}: {}", options_.rank, options_.peer, cause));
}

void Connection::end(Rank at_fault, const std::string& cause) {
    if (health() != Code::ok) return;
    if (!bye_received_ && !closing_) {
        if (!news_) news_ = std::make_unique<News>();
        news_->lost = at_fault;
        news_->cause = cause;
    }
    hang_up();
}

void Connection::hang_up() {
    options_.data_reactor->remove(fd_.get());
    ::shutdown(fd_.get(), SHUT_RDWR);
    out_[0] = out_[1] = {};
    count_unsent(false);
    large_ = nullptr;
    small_count_ = 0;
    in_flow_ = nullptr;
    // From here on no queue is looked at: drained() and health() say so to the channels.
    health_.store(Code::peer_lost, std::memory_order_seq_cst);
    ring_event_fd(options_.doorbell_fd);
}

void Connection::begin_close(Deadline deadline) {
    if (!enter()) return;
    closing_ = true;
    // Its events would find the connection taken, again and again.
    options_.data_reactor->remove(fd_.get());
    while (delivering_.load(std::memory_order_seq_cst) > 0 && !deadline.passed()) sched_yield();
}

bool Connection::close_step() {
    if (health() != Code::ok) return true;
    // Reading goes on: the peer may be unable to take ours before it got rid of its own.
    receive(true);
    flush();
    if (health() != Code::ok) return true;
    if (output_pending() || !bye_sent_) return false;
    if (!std::exchange(shut_, true)) ::shutdown(fd_.get(), SHUT_WR);
    int unacknowledged = 0;
    return ::ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

void Connection::end_close() {
    if (health() == Code::ok) hang_up();
    fd_.reset();
    closed_.store(true, std::memory_order_seq_cst);
}

}  // namespace tutti::tcp
