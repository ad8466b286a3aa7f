// A communicator: calls become requests on streams, streams run plans, and trouble is agreed on.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "control/agreement.h"
#include "gpu/device_planner.h"
#include "gpu/devices.h"
#include "gpu/exchange.h"
#include "job/endpoint.h"
#include "job/forks.h"
#include "p2p/transfers.h"
#include "plan/channel_table.h"
#include "plan/plan_cache.h"
#include "plan/planner.h"
#include "record/recorder.h"
#include "run/request.h"
#include "run/streams.h"
#include "run/user_memory.h"
#include "run/waiting.h"

namespace tutti {

class Communicator final : public std::enable_shared_from_this<Communicator>,
                           private EndpointClient,
                           private AgreementHost {
public:
    static Result<std::shared_ptr<Communicator>> create(const Config& config,
                                                        std::shared_ptr<Store> own_store);
    ~Communicator() override;

    /// Collective. Ranks that give the same colour get a communicator of their own, in the order of
    /// their keys, then of their ranks here; a negative colour gets none.
    Result<std::shared_ptr<Communicator>> split(int color, int key);
    Result<std::shared_ptr<Communicator>> dup();
    /// By host instead of by colour.
    Result<std::shared_ptr<Communicator>> split_host(int key);

    Rank rank() const { return group_.rank(); }
    Rank size() const { return group_.size(); }
    /// Known from the start: a communicator is not handed out before.
    const Hosts& hosts() const { return *group_.hosts(); }
    /// False in a child that was forked since: what is here is the parent's.
    bool is_of_this_process() const { return home_.here(); }
    /// unsupported where it is not.
    Result<> forked() const;
    /// The same for calls that start or wait for something: invalid inside a completion callback.
    Result<> may_call() const;
    int rings() const { return endpoint_->config().nrings; }
    bool manual() const { return endpoint_->manual(); }
    /// From now on it becomes readable when something may move, until `progress` has moved it.
    int progress_fd();

    /// What it can do with a call; operators that are this communicator's only.
    Planner& planner() { return planner_; }
    const Planner& planner() const { return planner_; }

    /// Blocking: returns when the operation is over; on device memory, when it is on the stream. An
    /// error that such an operation ended with later comes from the next call.
    Result<> run(const Call& call, const void* in, void* out);
    /// The same for buffers of tutti's own, which are the host's: no driver is asked, which may be
    /// broken where nobody needs it.
    Result<> run_own(const Call& call, const void* in, void* out);
    /// stream < 0: by turn.
    /// device_stream nullptr: the communicator's.
    Result<std::unique_ptr<Request>> start(const Call& call, int stream, int64_t timeout_ms,
                                           const void* in, void* out,
                                           void* device_stream = nullptr);

    /// Persistent plans belong to the caller.
    Result<std::unique_ptr<Plan>> make_plan(const Call& call, int stream);
    Result<> run(Plan& plan, const void* in, void* out);
    Result<std::unique_ptr<Request>> start(Plan& plan, const void* in, void* out);

    /// The device stream of calls that name none, nullptr for the legacy default one.
    Result<> set_device_stream(void* device_stream);
    /// What comes on the communicator's stream from now on waits for what is on that one by now.
    /// The host waits for nothing.
    Result<> hold_own_stream(void* before) { return order_streams(before, devices_.stream); }
    /// The other way round.
    Result<> hold_stream(void* after) { return order_streams(devices_.stream, after); }
    /// Waits for all that ran without a request on device memory; the first failure among it.
    Result<> sync(int64_t timeout_ms);

    /// Where a buffer is; system where the driver has failed and cannot tell.
    Result<device::MemoryKind> memory_of(const void* buffer) const;
    /// Joins the other ranks on that device now instead of with the first call on its memory.
    /// Collective.
    Result<> use_device(int device);
    /// Device memory that the ranks' library maps into each other's. Collective; the issuing
    /// thread's, as all of these.
    Result<std::byte*> allocate_on_device(std::size_t bytes);
    Result<> add_device_memory(std::byte* data, std::size_t bytes);
    /// False: it is none that this communicator knows.
    Result<bool> remove_device_memory(std::byte* data, bool handed_out);
    /// Messages on device memory, launched together; run() returns when they are on the stream.
    Result<std::unique_ptr<Request>> start(const std::vector<DeviceTransfer>& messages,
                                           int64_t timeout_ms, void* device_stream);
    Result<> run(const std::vector<DeviceTransfer>& messages);

    // The steps of a launch, for those that are gathered (device_group_batch.h): each waits for
    // nothing that comes in a later one.
    const DeviceLibrary* device_library() const { return devices_.library.get(); }
    Result<> may_launch(Request& request);
    Result<> put_on_stream(const DeviceLaunch& launch);
    static uint32_t launch_parts(const DevicePart& device);
    Result<> put_on_stream(const DeviceLaunch& launch, uint32_t part);
    static Result<> mark_launch(const DevicePart& device, uint32_t part);
    Result<> settle_launch(const DeviceLaunch& launch, uint32_t part);
    void tell_failed_launch(const Request& request, const Error& error);
    Result<> finish_launch(Request& request, const Result<>& launched);

    Result<> check(const Transfer& transfer) const { return transfers_.check(transfer); }
    /// A send or a receive, on the caller's stack: returns when it is over.
    Result<> run(Transfer& transfer);
    Result<std::unique_ptr<Request>> start(std::unique_ptr<Transfer> transfer, int64_t timeout_ms);

    /// invalid for what this thread gathers launches of: it would wait for itself.
    Result<> may_wait(const Request& request) const;
    /// 0: one look; <0: until the operation is over. False if the time was too short.
    bool wait(Request& request, int64_t timeout_ms);
    /// Of a plan that is to go. The run has a deadline, and memory of the plan's.
    void wait_for_last_run(const Plan& plan);
    void progress();
    /// Memory that the transports know in advance; what is left at the end goes with destroy().
    UserMemory& memory() { return memory_; }
    void abort();
    void destroy();
    /// The process ends: what finished calls owe still arrives, and the others hear that this rank
    /// leaves. Threads that are inside calls stay there, and nothing is freed or called back.
    void leave_at_exit(Deadline deadline);
    Result<> dump(int fd) const { return recorder_.dump(fd, rank()); }

private:
    Communicator(std::shared_ptr<Endpoint> endpoint, Group group, bool one_host);
    /// Every rank is at the operation of that name, or MISMATCH.
    Result<> begin(std::string_view name);
    Result<std::shared_ptr<Communicator>> split_by(std::string_view name, int64_t color, int key);
    Result<uint32_t> claim_ids(int64_t first_free, uint32_t count);
    std::shared_ptr<Communicator> make_part(std::vector<Rank> members, uint32_t id, Hosts hosts);
    Result<> assemble(Agreement& parent);
    Error part_failed(Communicator* part, const Error& error);
    Result<> learn_hosts();
    void set_hosts(Hosts hosts);

    // Issuing: issue.cpp.
    uint32_t stream_for(int wanted) const;
    int64_t limit_ms(int64_t wanted_ms) const;
    Result<Plan*> plan_for(const Call& call, uint32_t stream, int64_t timeout_ms);
    Result<std::unique_ptr<Plan>> bind_plan(const Call& call, uint32_t stream, int64_t timeout_ms);
    Result<std::unique_ptr<Plan>> make_or_say(const Call& call, uint32_t stream,
                                              int64_t timeout_ms);
    Result<> enter_before_binding(uint32_t stream, int64_t timeout_ms);
    template <typename Known>
    void wait_for_news(const Error& error, Known known);
    void tell_failed(const Error& error);
    Error binding_failed(const Error& error);
    Result<> run_on_host(const Call& call, const void* in, void* out);
    Error contact_failed(const Transfer& transfer, const Error& error);
    Result<std::unique_ptr<Request>> start_on_host(Plan& plan, bool round_robin_stream,
                                                   int64_t timeout_ms, const void* in, void* out);
    Result<> submit(Request& request, Plan& plan, int64_t timeout_ms);
    Result<> wait_to_enter(Stream& stream, int64_t timeout_ms);
    Error not_all_back(int64_t timeout_ms);
    Result<> propose(Stream& stream, const Tag& tag);
    Result<> post(Transfer& transfer, int64_t timeout_ms);
    Result<> connect_and_post(Transfer& transfer, int64_t timeout_ms);

    // On device memory: device_calls.cpp, device_join.cpp.
    Result<bool> goes_to_device(const Call& call, const void* in, const void* out,
                                void* device_stream);
    Result<bool> on_device(const Call& call, const void* in, const void* out,
                           void* device_stream) const;
    Result<Kinds> kinds(const Call& call, const void* in, const void* out) const;
    Result<Kinds> kinds_of_list(const Call& call, const void* in, const void* out) const;
    Result<> join_devices(device::Ordinal device);
    Result<> join_library(device::Ordinal device);
    Result<std::shared_ptr<DeviceGroup>> make_device_group(device::Ordinal device, bool of_host);
    Result<DeviceWay> agree_on_devices(device::Ordinal device);
    Result<std::vector<std::byte>> share_device_id(bool of_host);
    Result<> wait_for_idle_device();
    Result<std::unique_ptr<Request>> start_on_device(const Call& call, Plan* own, int wanted_stream,
                                                     int64_t timeout_ms, const void* in, void* out,
                                                     void* device_stream);
    Result<Plan*> device_plan(const Call& call, Plan* own, uint32_t stream);
    template <typename Start>
    Result<> detach(Start start);
    Result<> run_on_device(const Call& call, Plan* own, int wanted_stream, int64_t timeout_ms,
                           const void* in, void* out, void* device_stream);
    Result<> launch(const DeviceLaunch& launch);
    bool gives_up(const Request& request);
    Result<> may_join() const;
    Result<> may_block(const Call& call, uint32_t stream);
    Result<> check_stream(void* device_stream);
    Result<> check_runs(device::Ordinal device, void* device_stream) const;
    Result<bool> stages_messages() const;
    Result<> check_messages(const std::vector<DeviceTransfer>& messages, bool staged) const;
    Result<> find_device_of(const std::vector<DeviceTransfer>& messages);
    Result<> choose_ways(Exchange& exchange) const;
    Result<std::unique_ptr<DeviceOperation>> stage(std::deque<Exchange::Part>& parts);
    std::vector<Devices::Known>::iterator find_device_memory(const std::byte* data);
    Result<> tell_device_memory();
    void free_device_memory();
    Result<bool> all_agree(bool mine);
    bool splits_devices() const;
    Result<> take_devices(const Devices& from, Result<std::shared_ptr<DeviceGroup>> group);
    Result<> need_driver() const;
    Result<> order_streams(void* before, void* after);
    Result<> owed();
    Result<bool> ready(Plan& plan, const void* in, const void* out);
    Result<> wait_until_free(Plan& plan);

    // Moving and waiting: progress.cpp.
    Result<> finish_blocking(Request& request);
    void hand_over();
    void announce();
    void finish_call();
    void recall();
    bool drive_all(bool& moved);
    /// What a thread has done while it waited, and has to make good.
    struct Waited {
        bool slept = false;   // so that it has recalled what others may sleep on
        bool others = false;  // it has moved other communicators'
        bool drives = false;  // for those that sleep beside it
    };
    bool wait_driving(Request& request, int64_t timeout_ms, Waited& waited);
    void sleep_until_moved(const Request& request, int64_t limit_ms);
    void look_at_clocks();
    bool arm_all(bool on);
    void leave_devices();
    void give_up_on_culprit();

    // EndpointClient
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override;
    bool still_wanted(const ChannelId& id) override;
    void connected(const ChannelId& id, Result<Opened> opened) override;
    void news(Rank from, const News& news) override;
    void peer_lost(Rank peer, const std::string& cause) override;
    void unreachable(Rank peer) override;
    bool drive(bool& moved) override;
    bool arm(bool on) override;
    // AgreementHost
    void send_control(Rank to, const News& news) override {
        endpoint_->send_control(group_.in_job(to), news);
    }
    const Recorder& recorder() const override { return recorder_; }
    std::optional<Rank> blocked_on() override;
    void settle() override;
    void resume(uint64_t sequence) override;

    // Each member builds on those before it.
    const std::shared_ptr<Endpoint> endpoint_;
    Group group_;
    const bool strict_;
    const bool oversubscribed_;
    // Manual progress: peers ring for what the program waits for by a descriptor.
    std::atomic<bool> announces_{false}, announced_{false};
    bool armed_ = false;  // by arm(), under the endpoint's mutex
    const HomeProcess home_;
    ChannelTable channels_;
    Recorder recorder_;
    Agreement agreement_;
    Waiting waiting_;
    Planner planner_;
    DevicePlanner device_planner_;
    std::vector<PlanCache> plans_;  // by stream
    Streams streams_;
    Transfers transfers_;
    UserMemory memory_;
    Devices devices_;                               // the issuing thread's
    std::list<std::unique_ptr<Request>> detached_;  // likewise: on devices, of blocking calls
    std::atomic<uint64_t> generation_{1};           // of device groups; changes with streams held
    // Of the last operation. The issuing thread's, which owns the operation's stream when it goes
    // on; a new epoch's comes with all streams held.
    std::atomic<uint64_t> sequence_{0};
    uint64_t plans_made_ = 0;  // without a word of which stream they are for
    std::atomic<bool> destroyed_{false};
};

}  // namespace tutti
