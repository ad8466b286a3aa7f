// A communicator: calls become requests on streams, streams run plans, and trouble is agreed on.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "comm/channel_table.h"
#include "comm/endpoint.h"
#include "comm/plan.h"
#include "comm/point_to_point.h"
#include "comm/reduction.h"
#include "comm/request.h"
#include "comm/selection.h"
#include "engine/recorder.h"

namespace tutti {

class Communicator final : public std::enable_shared_from_this<Communicator>,
                           private EndpointClient,
                           private AgreementHost,
                           private TransferHost {
public:
    static Result<std::shared_ptr<Communicator>> create(const Config& config,
                                                        std::shared_ptr<Store> own_store);
    ~Communicator() override;

    /// Collective. Ranks that give the same colour get a communicator of their own, in the order of
    /// their keys, then of their ranks here; a negative colour gets none.
    Result<std::shared_ptr<Communicator>> split(int color, int key);
    /// By host instead of by colour.
    Result<std::shared_ptr<Communicator>> split_host(int key);

    Rank rank() const { return rank_; }
    Rank size() const { return size_; }
    bool manual() const { return endpoint_->manual(); }
    int progress_fd() const { return endpoint_->wait_fd(); }
    int streams() const { return static_cast<int>(streams_.size()); }

    /// Checks a call's arguments and what the communicator can do with it.
    Result<> check(const Call& call, int stream) const;
    Result<Choice> choose(const Call& call) const;
    std::string explain(const Call& call) const;

    /// A sum of which this rank's contribution is multiplied by the scalar first. Every rank makes
    /// its own, in the same order.
    Result<Op> make_premul_sum(const void* scalar, Dtype dtype);

    /// Blocking: returns when the operation is over.
    Result<> run(const Call& call, const void* in, void* out);
    /// stream < 0: round-robin.
    Result<std::unique_ptr<Request>> start(const Call& call, int stream, int64_t timeout_ms,
                                           const void* in, void* out);

    /// Persistent plans belong to the caller.
    Result<std::unique_ptr<Plan>> make_plan(const Call& call, int stream);
    Result<> run(Plan& plan, const void* in, void* out);
    Result<std::unique_ptr<Request>> start(Plan& plan, int64_t timeout_ms, const void* in,
                                           void* out);

    Result<> check(const Transfer& transfer) const;
    /// A send or a receive, on the caller's stack: returns when it is over.
    Result<> run(Transfer& transfer);
    Result<std::unique_ptr<Request>> start(std::unique_ptr<Transfer> transfer, int64_t timeout_ms);

    /// 0: one look; <0: until the operation is over. False if the time was too short.
    bool wait(Request& request, int64_t timeout_ms);
    void progress();
    void abort();
    void destroy();
    Result<> dump(int fd) const { return recorder_.dump(fd, rank_); }

private:
    // Who holds `owner` may touch the queue and drive the head. Taken for a pass at a time, and
    // never waited for while something else is held.
    struct alignas(no_share_bytes) Stream {
        std::atomic<bool> owner{false};
        Request* head = nullptr;
        Request* tail = nullptr;
        std::atomic<uint32_t> queued{0};
        Plan* last_plan = nullptr;  // the issuing thread's: most calls repeat the one before
        std::vector<std::unique_ptr<Plan>> plans;
    };

    Communicator(std::shared_ptr<Endpoint> endpoint, Group group, bool one_host);
    void use(Endpoint::Intrinsics intrinsics);
    Result<std::shared_ptr<Communicator>> split_by(int64_t color, int key);
    Result<std::shared_ptr<Communicator>> make_part(std::vector<Rank> members, uint32_t id,
                                                    Hosts hosts);
    Result<> learn_hosts();
    void set_hosts(Hosts hosts);

    std::size_t bytes_of(const Call& call) const;
    Question question(const Call& call, std::string_view wanted) const;
    static void copy_call(Plan& plan, const Call& call, uint32_t stream);
    void make_tag(Plan& plan, const Choice& choice, const Reduction& reduction) const;
    Result<Reduction> reduction(const Call& call) const;
    Result<std::unique_ptr<Operation>> bind_operation(const Plan& plan, const Choice& choice,
                                                      const Reduction& reduction);
    Result<std::unique_ptr<Operation>> bind_intrinsic(const Plan& plan, const Reducer& reducer);
    Result<std::unique_ptr<Operation>> bind_schedule(const Plan& plan, const Choice& choice,
                                                     const Reducer& reducer, bool in_place);
    Result<Plan*> plan_for(const Call& call, uint32_t stream);
    Result<std::unique_ptr<Plan>> bind_plan(const Call& call, uint32_t stream);
    Result<> enter_before_binding(uint32_t stream);
    Error binding_failed(const Error& error);
    Result<> forked() const;
    Result<> submit(Request& request, Plan& plan, int64_t timeout_ms);
    Result<> wait_to_enter(Stream& stream, int64_t timeout_ms);
    Result<> finish_blocking(Request& request);
    Error annotate(const Error& error, const Tag& tag) const;

    Result<> post(Transfer& transfer, int64_t timeout_ms);
    bool drive_transfers(bool& moved, bool may_open);
    void purge_transfers();
    void look_at_transfers(int64_t now);
    void arm_transfers(bool on);
    void finished(Transfer& transfer, const Error& error) override;
    void publish(Request& request, Code code);

    void drive(Stream& stream, bool& moved);
    bool drive_all(bool& moved, bool may_open = true);
    void complete(Request& request, Code code, const Error& error);
    void pop(Stream& stream, Code code, const Error& error);
    void dump_once();
    void fail_head(Stream& stream, Code code);
    void purge(Stream& stream);
    void look_at_clocks();
    void look_at_clock(Stream& stream, int64_t now);
    void sleep_until_moved(const Request& request, int64_t limit_ms);
    void arm_all(bool on);
    void release(Stream& stream);
    void settle_streams();
    bool wait_driving(Request& request, int64_t timeout_ms);

    // EndpointClient
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override;
    void news(Rank from, const News& news) override;
    void peer_lost(Rank peer, const std::string& cause) override;
    bool drive(bool& moved) override;
    void arm(bool on) override;
    // AgreementHost
    void send_control(Rank to, const News& news) override {
        endpoint_->send_control(group_.in_job(to), news);
    }
    const Recorder& recorder() const override { return recorder_; }
    void settle() override;
    void resume(uint64_t sequence) override;

    const std::shared_ptr<Endpoint> endpoint_;
    Group group_;
    const Rank rank_, size_;
    const bool one_host_;
    const bool strict_;
    const bool crowded_;
    const uint32_t process_;  // the fork generation it was made in
    Endpoint::Intrinsics intrinsics_;
    Terrain terrain_;
    ChannelTable channels_;
    Recorder recorder_;
    Agreement agreement_;
    std::vector<Stream> streams_;
    std::atomic<bool> transfer_owner_{false};
    std::atomic<int> transfers_posted_{0};
    PointToPoint transfers_;
    const uint64_t serial_;     // no other communicator of the process has it
    uint32_t premul_sums_ = 0;  // made so far
    uint64_t sequence_ = 0;     // of the last operation; the issuing thread's
    uint64_t round_robin_ = 0;  // non-blocking calls so far
    std::atomic<bool> destroyed_{false}, dumped_{false};
    std::atomic<int> pending_{0};  // non-blocking requests that are not done
    std::atomic<int> waiters_{0};  // threads of the program that drive
    std::atomic<int> sleepers_{0};
};

}  // namespace tutti
