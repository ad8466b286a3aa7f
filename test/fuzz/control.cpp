// News of communicators, as they come along the control tree.
#include "comm/early_news.h"
#include "comm/news.h"
#include "fuzz/catalog.h"

namespace tutti::fuzz {

void run_control(ByteView input) {
    const auto news = News::decode(input);
    if (!news) return;
    require(as_text(news->encode()) == as_text(input), "news have two forms");
    EarlyNews early;
    early.keep(1, *news);
    const auto kept = early.take(news->comm);
    require(kept.size() == 1 && kept[0].second.text == news->text, "early news are lost");
}

std::vector<Bytes> seeds_control() {
    std::vector<Bytes> seeds;
    for (auto kind = News::Kind::failed; kind <= News::Kind::silent;
         kind = static_cast<News::Kind>(static_cast<int>(kind) + 1)) {
        News news;
        news.kind = kind;
        news.comm = 7;
        news.rank = 2;
        news.code = kind == News::Kind::failed ? Code::timeout : Code::ok;
        news.tag = {.sequence = 12, .count = 3, .call = 1, .root = 0, .plan = 4};
        news.text = kind <= News::Kind::mismatch ? "rank 2 is late" : "";
        seeds.push_back(news.encode());
    }
    return seeds;
}

}  // namespace tutti::fuzz
