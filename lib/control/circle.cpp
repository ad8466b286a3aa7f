#include "control/circle.h"

namespace tutti {

News Circle::make(News::Kind kind, const Tag& tag) const {
    News news;
    news.kind = kind;
    news.comm = comm;
    news.rank = rank;
    news.tag = tag;
    return news;
}

void Circle::flood(const News& news, Rank except) {
    const Rank parent = tree.parent();
    if (parent != nobody && parent != except) host.send_control(parent, news);
    for (Rank child : tree.children())
        if (child != except) host.send_control(child, news);
}

}  // namespace tutti
