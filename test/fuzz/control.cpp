// Any bytes for the control tree: a connection's hello, its frames, and communicators' messages.
#include <sys/socket.h>

#include "control/control_message.h"
#include "control/control_tree.h"
#include "control/tree_message.h"
#include "fuzz/catalog.h"
#include "job/early_messages.h"

namespace tutti::fuzz {
namespace {

using LinkKind = ControlTree::LinkKind;

void read_hello(ByteView input) {
    const auto hello = ControlTree::Hello::decode(input);
    if (!hello || hello->version != ControlTree::Hello::current_version) return;
    require(as_text(hello->encode()) == as_text(input), "a hello has two forms");
}

void read_control_message(ByteView input) {
    const auto message = ControlMessage::decode(input);
    if (!message) return;
    require(as_text(message->encode()) == as_text(input), "a control message has two forms");
    EarlyMessages early;
    early.keep(1, *message);
    const auto kept = early.take(message->comm);
    require(kept.size() == 1 && kept[0].second.text == message->text,
            "an early control message is lost");
}

void read_frames(ByteView input) {
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0,
            "no socketpair");
    UniqueFd peer(pair[1]);
    Reactor reactor;
    std::size_t heard = 0;
    int ends = 0;
    ControlTree tree(reactor, {[&](Rank from, ByteView message) {
                                   require(from == 1, "somebody else says it");
                                   heard += sizeof(uint32_t) + message.size();
                                   read_control_message(message);
                               },
                               [&](Rank, LinkKind, const std::string&) { ++ends; }});
    require(tree.attach(1, UniqueFd(pair[0]), LinkKind::branch).has_value(), "it is not attached");
    require(::send(peer.get(), input.data(), input.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(input.size()),
            "the input does not fit a socket");
    peer.reset();
    for (int turn = 0; turn < 1000 && ends == 0; ++turn) reactor.poll(0);
    require(ends == 1, "the end of the connection is not seen");
    require(heard <= input.size(), "more is heard than was said");
}

constexpr Rank job_ranks = 4;

void read_message(ByteView input) {
    const auto message = TreeMessage::decode(input, job_ranks);
    if (!message) return;
    require(as_text(message->encode()) == as_text(input), "a message has two forms");
    const auto in_job = [](Rank rank) { return rank >= nobody && rank < job_ranks; };
    require(in_job(message->to) && in_job(message->from) && in_job(message->lost),
            "a message names a rank that there is not");
}

constexpr std::size_t most_bytes = 64 * 1024;

}  // namespace

// The first byte says as what the rest comes.
void run_control(ByteView input) {
    Input in(input.first(std::min(input.size(), most_bytes)));
    const auto kind = in.get<uint8_t>() % 4;
    const ByteView rest = in.rest();
    if (kind == 0) return read_hello(rest);
    if (kind == 1) return read_control_message(rest);
    if (kind == 3) return read_message(rest);
    if (!rest.empty()) read_frames(rest);
}

std::vector<Bytes> seeds_control() {
    const auto as = [](uint8_t kind, const Bytes& bytes) {
        return joined({Bytes(1, std::byte{kind}), bytes});
    };
    std::vector<Bytes> seeds = {
        as(0, ControlTree::Hello{.rank = 3, .kind = LinkKind::detour}.encode()),
        as(0, ControlTree::Hello{.version = 7, .rank = 3}.encode())};
    std::vector<Bytes> frames;
    for (const auto kind :
         {ControlMessage::Kind::failed, ControlMessage::Kind::bye, ControlMessage::Kind::silent}) {
        ControlMessage message;
        message.kind = kind;
        message.comm = 7;
        message.rank = 2;
        message.code = kind == ControlMessage::Kind::failed ? Code::timeout : Code::ok;
        message.tag = {.sequence = 12, .count = 3, .call = 1, .root = 0, .plan = 4};
        message.text = kind == ControlMessage::Kind::failed ? "rank 2 is late" : "";
        seeds.push_back(as(1, message.encode()));
        frames.push_back(ByteWriter().put_text(as_text(message.encode())).take());
    }
    seeds.push_back(as(2, joined(frames)));
    using Topic = TreeMessage::Topic;
    ControlMessage bye;
    bye.kind = ControlMessage::Kind::bye;
    bye.comm = 7;
    for (const TreeMessage& message : {
             TreeMessage{.topic = Topic::bootstrap, .body = as_bytes("state")},
             TreeMessage{.topic = Topic::control, .to = 2, .from = 1, .control = bye},
             TreeMessage{.topic = Topic::returned, .to = 0, .from = 3, .control = bye},
             TreeMessage{.topic = Topic::loss, .lost = 3, .cause = "its process ended"},
             TreeMessage{.topic = Topic::leaving},
         })
        seeds.push_back(as(3, message.encode()));
    return seeds;
}

}  // namespace tutti::fuzz
