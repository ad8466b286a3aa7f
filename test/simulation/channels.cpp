#include "simulation/channels.h"

#include <utility>

#include "simulation/rank.h"
#include "simulation/world.h"

namespace simulation {

std::byte* SimSender::reserve(std::size_t bytes) {
    if (pipe_->credits == 0) return nullptr;
    built_.resize(bytes + 1);
    return built_.data();
}

void SimSender::commit(const Tag& tag, std::size_t bytes) {
    push(tag, built_.data(), bytes);
}

void SimSender::push(const Tag& tag, const std::byte* data, std::size_t bytes) {
    --pipe_->credits;
    if (pipe_->peer_gone) {
        pipe_->unsent = true;
        return;
    }
    if (world_.rank(pipe_->from).is_dead()) return;
    const uint64_t number = pipe_->forth->sent++;
    const int64_t time = world_.network().arrival(pipe_->from, pipe_->to, *pipe_->forth);
    // One byte more, so that an empty message has data, too.
    Pipe::Message message{tag, std::vector<std::byte>(bytes + 1)};
    std::copy_n(data, bytes, message.data.begin());
    world_.at(time, [&world = world_, pipe = pipe_, number, message = std::move(message)] {
        if (number >= pipe->forth->limit) return;
        pipe->forth->arrived = number + 1;
        pipe->arrived.push_back(message);
        world.rank(pipe->to).turn_soon();
    });
}

Receiver::PeekedMessage SimReceiver::peek(const Tag& expected, std::size_t bytes) {
    auto& arrived = pipe_->arrived;
    while (!arrived.empty() && arrived.front().tag.is_stale(expected)) release();
    if (arrived.empty()) return {};
    const Pipe::Message& message = arrived.front();
    if (message.tag == expected && message.data.size() != bytes + 1)
        world_.checks().fail("rank {}: a message of rank {} has {} bytes, not {}", pipe_->to,
                             pipe_->from, message.data.size() - 1, bytes);
    return {message.data.data(), message.tag};
}

void SimReceiver::release() {
    pipe_->arrived.pop_front();
    const int64_t time = world_.network().arrival(pipe_->to, pipe_->from, pipe_->back);
    world_.at(time, [&world = world_, pipe = pipe_] {
        ++pipe->credits;
        world.rank(pipe->from).turn_soon();
    });
}

}  // namespace simulation
