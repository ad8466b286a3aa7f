#include "control/protocol_context.h"

namespace tutti {

ControlMessage ProtocolContext::make(ControlMessage::Kind kind, const Tag& tag) const {
    ControlMessage message;
    message.kind = kind;
    message.comm = comm;
    message.rank = rank;
    message.tag = tag;
    return message;
}

void ProtocolContext::flood(const ControlMessage& message, Rank except) {
    const Rank parent = tree.parent();
    if (parent != nobody && parent != except) host.send_control(parent, message);
    for (Rank child : tree.children())
        if (child != except) host.send_control(child, message);
}

}  // namespace tutti
