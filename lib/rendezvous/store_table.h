// The embedded store without its sockets: requests go in as bytes, and replies come out as bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/store_protocol.h"

namespace tutti {

/// For one thread.
class StoreTable {
public:
    class Client {
    public:
        Client() = default;
        Client(const Client&) = delete;
        /// The table calls this with each framed reply. The function must not call the table.
        void on_reply(std::function<void(const Bytes& frame)> send) { send_ = std::move(send); }
        /// A get whose key is not there keeps the client's later requests waiting, until its reply
        /// has been sent.
        bool waits() const { return waits_for_.has_value(); }

    private:
        friend class StoreTable;
        std::function<void(const Bytes&)> send_;
        std::optional<std::string> waits_for_;
        std::optional<store_protocol::StoreRequest> will_;
    };

    /// Takes and answers the first framed request in a client's bytes, and returns its length; 0
    /// while the request is not whole; nullopt if it is malformed: the caller must drop the client.
    /// The client must not be waiting.
    std::optional<std::size_t> take(Client& client, ByteView bytes);
    /// Executes the will of a client that has gone. The owner drops every client that ends before
    /// the table does.
    void drop(Client& client);
    /// Bytes of all keys and values in the table.
    std::size_t stored_bytes() const { return stored_bytes_; }

private:
    void answer(Client& client, store_protocol::StoreRequest request);
    void count(Client& client, const store_protocol::StoreRequest& request);
    bool put(Client& client, const store_protocol::StoreRequest& request);
    bool keep(const std::string& key, std::string value);
    void remove(const std::string& key);
    void execute(const store_protocol::StoreRequest& will);
    void publish(const std::string& key);

    std::unordered_map<std::string, std::string> values_;
    std::unordered_map<std::string, std::vector<Client*>> waiting_;
    std::size_t stored_bytes_ = 0;
};

}  // namespace tutti
