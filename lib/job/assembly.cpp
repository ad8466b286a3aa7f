#include "job/assembly.h"

#include <chrono>
#include <utility>

#include "control/tree_message.h"

namespace tutti {

// Runs one step of the state machine with the lock held, then sends its outgoing messages.
void Assembly::step(const std::function<void()>& step) {
    std::vector<Bootstrap::OutgoingMessage> outgoing;
    {
        const std::lock_guard lock(mutex_);
        step();
        if (bootstrap_) {
            outgoing = bootstrap_->take_outgoing(parent_);
            failed_ = bootstrap_->state() == Bootstrap::State::failed;
        }
    }
    for (const Bootstrap::OutgoingMessage& out : outgoing)
        control_.send(
            out.to,
            TreeMessage{.topic = TreeMessage::Topic::bootstrap, .body = out.message}.encode());
    changed_.notify_all();
}

void Assembly::begin(Bootstrap::Self self) {
    step([&] { bootstrap_.emplace(std::move(self)); });
}

void Assembly::receive(Rank from, ByteView message) {
    step([&] { bootstrap_->receive(from, message); });
}

void Assembly::child_connected(Rank child) {
    step([&] { bootstrap_->child_connected(child); });
}

void Assembly::parent_connected(bool exchanges_records) {
    using Parent = Bootstrap::Parent;
    step([&] { parent_ = exchanges_records ? Parent::exchanges_records : Parent::connected; });
}

void Assembly::found_latency(std::size_t transport, double latency_us) {
    const std::lock_guard lock(mutex_);
    bootstrap_->found_latency(transport, latency_us);
}

void Assembly::linked(bool ok) {
    step([&] { bootstrap_->linked(ok); });
}

void Assembly::fail(const Error& error) {
    step([&] {
        if (bootstrap_) bootstrap_->fail_with(error);
    });
}

void Assembly::fail_start(const Error& error) {
    step([&] {
        if (bootstrap_ && bootstrap_->state() != Bootstrap::State::done)
            bootstrap_->fail_with(error);
    });
}

Bootstrap::State Assembly::state() const {
    const std::lock_guard lock(mutex_);
    return bootstrap_->state();
}

bool Assembly::complete() const {
    const std::lock_guard lock(mutex_);
    return bootstrap_ && bootstrap_->state() == Bootstrap::State::done;
}

Error Assembly::error() const {
    const std::lock_guard lock(mutex_);
    return bootstrap_->error();
}

std::vector<LinkAttributes> Assembly::worst() const {
    const std::lock_guard lock(mutex_);
    return bootstrap_->worst();
}

std::vector<std::string> Assembly::take_records() {
    const std::lock_guard lock(mutex_);
    return bootstrap_->take_records();
}

bool Assembly::all_linked() const {
    const std::lock_guard lock(mutex_);
    return bootstrap_->all_linked();
}

void Assembly::wait_for_change(int64_t most_ms) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(most_ms));
}

}  // namespace tutti
