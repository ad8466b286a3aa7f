// Forms flat groups: the leader makes the memory, the other ranks ask for it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/id_set.h"
#include "net/auth.h"
#include "transport/transport.h"
#include "transports/shm/flat_group.h"
#include "transports/shm/neighbours.h"
#include "transports/shm/wire.h"

namespace tutti::shm {

/// The leader's side: answers requests with the result of its own join(), and keeps requests that
/// arrive before that. Any thread.
class GroupHost {
public:
    struct GroupOffer {
        GroupAnswer answer;
        Rank size = 0;
        uint32_t streams = 0;
        std::weak_ptr<const FlatMember> member;  // the leader's membership; empty if the answer is
                                                 // a refusal
    };

    void request(UniqueFd socket, const ShmHello& hello);
    void publish(uint32_t comm, GroupOffer offer);
    /// The leader's communicator is gone: closes the connections of ranks that still ask for its
    /// group.
    void retire(uint32_t comm);
    void close();

private:
    struct JoinRequest {
        UniqueFd socket;
        ShmHello hello;
    };
    void answer(const JoinRequest& request) const;
    static std::vector<int> fill(GroupAnswer& reply, const ShmHello& hello,
                                 const FlatMember& member);

    std::mutex mutex_;
    bool closed_ = false;
    std::map<uint32_t, GroupOffer> offers_;  // by communicator, until it is retired
    std::vector<JoinRequest> waiting_;
    IdSet retired_;
};

/// Makes this rank a member of groups.
class GroupJoiner {
public:
    GroupJoiner(const TransportContext& context, const net::AuthKey& key,
                std::shared_ptr<Arena> arena, std::shared_ptr<Neighbours> neighbours)
        : context_(context),
          key_(key),
          closed_(std::make_shared<ClosedGroups>(std::move(arena), neighbours)),
          neighbours_(std::move(neighbours)),
          host_(std::make_shared<GroupHost>()) {}

    Result<std::unique_ptr<IntrinsicGroup>> join(const GroupRequest& group, Deadline deadline);
    const std::shared_ptr<GroupHost>& host() const { return host_; }

private:
    Result<std::shared_ptr<FlatMember>> lead(const GroupRequest& group);
    Result<std::shared_ptr<FlatMember>> make_group(const GroupRequest& group);
    Result<std::shared_ptr<FlatMember>> follow(const GroupRequest& group, Deadline deadline);
    Result<> ask(int socket, const GroupRequest& group, Deadline deadline);
    Result<> take(const GroupRequest& group, const GroupAnswer& answer, std::vector<UniqueFd> fds);

    const TransportContext& context_;
    const net::AuthKey& key_;
    const std::shared_ptr<ClosedGroups> closed_;
    const std::shared_ptr<Neighbours> neighbours_;
    const std::shared_ptr<GroupHost> host_;
};

}  // namespace tutti::shm
