#include "control/circle.h"

namespace tutti {

ControlMessage Circle::make(ControlMessage::Kind kind, const Tag& tag) const {
    ControlMessage news;
    news.kind = kind;
    news.comm = comm;
    news.rank = rank;
    news.tag = tag;
    return news;
}

void Circle::flood(const ControlMessage& news, Rank except) {
    const Rank parent = tree.parent();
    if (parent != nobody && parent != except) host.send_control(parent, news);
    for (Rank child : tree.children())
        if (child != except) host.send_control(child, news);
}

}  // namespace tutti
