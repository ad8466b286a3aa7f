#include "store_fixture.h"

namespace tutti {
namespace {

class TcpMaker final : public StoreMaker {
public:
    std::unique_ptr<Store> open(const std::string& job) override {
        auto& server = servers_[job];
        if (!server) server = start_server(job, "s3cret");
        auto store = open_store(client_options(*server, job, "s3cret"));
        REQUIRE(store);
        return std::move(*store);
    }

private:
    std::map<std::string, std::unique_ptr<TcpStoreServer>> servers_;
};

class FileMaker final : public StoreMaker {
public:
    std::unique_ptr<Store> open(const std::string& job) override {
        auto store = open_store({.url = directory_.url(), .job = job});
        REQUIRE(store);
        return std::move(*store);
    }

private:
    TemporaryDirectory directory_;
};

class CallbackMaker final : public StoreMaker {
public:
    std::unique_ptr<Store> open(const std::string& job) override {
        return make_callback_store(HostStore::callbacks(), &host_, job);
    }

private:
    HostStore host_;
};

}  // namespace

std::unique_ptr<TcpStoreServer> start_server(const std::string& job, const std::string& secret) {
    auto server = TcpStoreServer::start({.host = "127.0.0.1", .job = job, .secret = secret});
    REQUIRE(server);
    return std::move(*server);
}

StoreOptions client_options(const TcpStoreServer& server, const std::string& job,
                            const std::string& secret) {
    return {.url = "tcp://127.0.0.1:" + std::to_string(server.port()),
            .job = job,
            .secret = secret,
            .rank = 1,
            .hosted = true,
            .deadline = soon()};
}

std::unique_ptr<StoreMaker> make_store_maker(const std::string& kind) {
    if (kind == "tcp") return std::make_unique<TcpMaker>();
    if (kind == "file") return std::make_unique<FileMaker>();
    REQUIRE(kind == "callback");
    return std::make_unique<CallbackMaker>();
}

}  // namespace tutti
