// Ownership, progress and end of a connection.
#include "transports/tcp/connection.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transports/tcp/channel.h"

namespace tutti::tcp {

Connection::Connection(UniqueFd fd, const Options& options)
    : options_(options),
      waker_(options.doorbell_fd),
      socket_(std::move(fd), options.data_reactor, options.unsent),
      entry_(options.events),
      flows_(options.retired, "connection"),
      input_({options.peer, entry_, flows_, late_, waker_, unread_bytes_}, options.limits,
             options.max_message_bytes),
      output_(entry_.ready(), late_, waker_) {}

Connection::~Connection() = default;

Result<> Connection::watch() {
    return socket_.watch([self = shared_from_this()](uint32_t events) { self->on_events(events); });
}

// ---- ownership -------------------------------------------------------------------------------

void Connection::forget_flows() {
    const bool alive = health() == Code::ok;
    if (!alive) entry_.ready().clear();  // a lost connection sends nothing more
    flows_.forget(
        [&](const Flow& flow) {
            return flow.ready.load(std::memory_order_relaxed) || input_.is_arriving(flow) ||
                   (alive && flow.out.has_unsent());
        },
        [](const Flow&) {});
}

std::unique_ptr<Receiver> Connection::make_receiver(Flow& flow) {
    return std::make_unique<TcpReceiver>(shared_from_this(), flow);
}

void Connection::schedule_send(Flow& flow) {
    if (!entry_.enter_to_send(flow, [&] { entry_.ready().append(flow); })) return;
    flush();
    exit();
}

void Connection::progress() {
    if (entry_.taken() || health() != Code::ok || !entry_.try_enter()) return;
    flush();
    receive(false);
    exit();
}

void Connection::on_events(uint32_t events) {
    // Level-triggered: the reactor calls again if the owner leaves anything.
    if (!entry_.try_enter()) return;
    flush();
    receive(false);
    if ((events & EPOLLOUT) != 0 && health() == Code::ok && !output_.pending())
        socket_.unwatch_output();
    exit();
}

/// Writes until nothing is queued or the kernel's buffer is full.
void Connection::flush() {
    entry_.ready().take_added();
    while (health() == Code::ok && output_.broken_errno() == 0 &&
           (output_.pending() || output_.gather(entry_.closing())))
        if (!output_.write(socket_)) break;
    if (output_.broken_errno() == 0 || health() != Code::ok) return;
    // Reads the peer's last bytes, which may include its goodbye.
    receive(true);
    end(fmt::format("sending to it failed: {}", std::strerror(output_.broken_errno())));
}

void Connection::receive(bool everything) {
    if (health() == Code::ok && !input_.receive(socket_.fd(), everything))
        end(input_.failure().cause, input_.failure().culprit);
}

// ---- channels --------------------------------------------------------------------------------

Result<std::unique_ptr<Sender>> Connection::open(const ChannelId& id) {
    const Guard guard(*this);
    if (!guard || health() != Code::ok)
        return fail_rank(Code::peer_lost, id.peer, "the connection to rank {} is gone", id.peer);
    TUTTI_ASSIGN(Flow* const flow, flows_.open(id, unread_bytes_));
    entry_.ready().add(*flow);
    return std::make_unique<TcpSender>(shared_from_this(), *flow);
}

void Connection::close_sender(Flow& flow) {
    if (const Guard guard(*this); guard) flows_.close_sender(flow);
}

// Drops unread messages, now and when more arrive, so that the sender gets its credits.
void Connection::close_receiver(Flow& flow) {
    const Guard guard(*this);
    if (!guard) return;
    flow.in.live = false;
    flow.in.drop();
    if (flow.in.credits_due()) entry_.ready().add(flow);
    flows_.half_closed(flow);
}

void Connection::cancel_sends(Flow& flow) {
    const Guard guard(*this);
    if (guard && health() == Code::ok && !output_.copy_unsent(flow))
        end("no memory to finish what was being sent", Culprit::own);
}

void Connection::cancel_receives(Flow& flow) {
    const Guard guard(*this);
    if (guard && !input_.copy_offered(flow)) end("no memory to keep a message", Culprit::own);
}

void Connection::reject(const Flow& flow, const std::string& cause) {
    static_cast<void>(flow);
    if (const Guard guard(*this); guard) end("protocol error: " + cause);
}

// ---- the end ---------------------------------------------------------------------------------

/// culprit: own if this rank lacks a resource.
void Connection::end(const std::string& cause, Culprit culprit) {
    if (health() != Code::ok) return;
    if (!input_.bye_received()) entry_.add_loss(options_.rank, options_.peer, cause, culprit);
    hang_up();
}

// The connection itself is kept until the transport is closed, the descriptor of a dead peer's is
// not. While the peer lives, the kernel still sends it our last bytes.
void Connection::hang_up() {
    const bool over = socket_.is_over();
    socket_.shut_down();
    if (over) socket_.close();
    output_.clear();
    input_.clear();
    health_.store(Code::peer_lost, std::memory_order_seq_cst);
    waker_.ring();
}

void Connection::begin_close(Deadline deadline) {
    // Removes the socket from the reactor, which would otherwise report its events again and again
    // while this thread owns the connection.
    entry_.begin_close(deadline, [this] {
        if (health() == Code::ok) socket_.unwatch();
    });
}

bool Connection::close_step() {
    if (health() != Code::ok) return true;
    // Keeps reading: the peer may be unable to read our bytes before its own are sent.
    receive(true);
    flush();
    if (health() != Code::ok) return true;
    if (output_.pending() || !output_.bye_sent()) return false;
    socket_.finish_sending();
    return socket_.is_acknowledged();
}

void Connection::end_close() {
    if (health() == Code::ok) hang_up();
    socket_.close();
    entry_.end_close();
}

}  // namespace tutti::tcp
