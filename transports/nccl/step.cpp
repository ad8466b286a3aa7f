#include "transports/nccl/step.h"

#include <numeric>

namespace tutti::nccl {
namespace {

constexpr int scalar_on_host = 1;  // ncclScalarHostImmediate

/// A buffer's blocks in bytes, one for each rank.
struct BlockRanges {
    std::vector<std::size_t> bytes, at;
};

BlockRanges even(std::size_t ranks, std::size_t block_bytes) {
    BlockRanges e{std::vector(ranks, block_bytes), std::vector<std::size_t>(ranks)};
    std::exclusive_scan(e.bytes.begin(), e.bytes.end(), e.at.begin(), std::size_t{0});
    return e;
}

BlockRanges listed(const IntrinsicShape::UnevenBlocks& blocks, std::size_t element_bytes) {
    BlockRanges e{blocks.counts, blocks.displacements};
    for (auto* list : {&e.bytes, &e.at})
        for (std::size_t& n : *list) n *= element_bytes;
    return e;
}

class NcclStep final : public DeviceStep {
public:
    NcclStep(std::shared_ptr<Membership> membership, const IntrinsicShape& shape,
             const Elements& elements)
        : membership_(std::move(membership)),
          library_(membership_->library()),
          ring_(membership_->ring_of(shape.stream)),
          shape_(shape),
          dtype_(elements.dtype),
          op_(elements.op),
          count_(shape.count * elements.per_element),
          bytes_(dtype_bytes(shape.dtype)) {
        const auto ranks = static_cast<std::size_t>(membership_->size());
        for (const auto& [extents, blocks] :
             {std::pair{&input_, &shape.input}, {&output_, &shape.output}})
            *extents = blocks->counts.empty() ? even(ranks, shape.count * bytes_)
                                              : listed(*blocks, bytes_);
    }
    ~NcclStep() override {
        if (premul_)
            (void)membership_->ask(ring_, "forgetting a pre-multiplied sum",
                                   [&](Comm comm) { return library_.premul_destroy(op_, comm); });
    }

    Result<> make_premul() {
        std::array<std::byte, 8> scalar = *shape_.factor;
        const device::Context::Scope current(membership_->context());
        TUTTI_TRY(membership_->ask(ring_, "making a pre-multiplied sum", [&](Comm comm) {
            return library_.premul_create(&op_, scalar.data(), dtype_, scalar_on_host, comm);
        }));
        premul_ = true;
        return {};
    }

    Result<> enqueue(const void* in, void* out, void* stream,
                     const DeviceOperation::GiveUp& give_up) override {
        return membership_->submit(
            ring_, [&](Comm comm) { return enqueue(in, out, comm, stream); }, give_up);
    }

private:
    Status enqueue(const void* in, void* out, Comm comm, void* stream) {
        switch (shape_.collective) {
            case Collective::allreduce:
                return library_.all_reduce(in, out, count_, dtype_, op_, comm, stream);
            case Collective::broadcast:
                return library_.broadcast(in, out, count_, dtype_, shape_.root, comm, stream);
            case Collective::reduce:
                return library_.reduce(in, out, count_, dtype_, op_, shape_.root, comm, stream);
            case Collective::reduce_scatter:
                return shape_.input.counts.empty()
                           ? library_.reduce_scatter(in, out, count_, dtype_, op_, comm, stream)
                           : reduce_each(in, out, comm, stream);
            case Collective::allgather:
                if (shape_.output.counts.empty())
                    return library_.all_gather(in, out, count_, dtype_, comm, stream);
                return exchange(in, false, out, true, comm, stream);
            case Collective::gather:
                return exchange(in, false, out, true, comm, stream);
            case Collective::scatter:
                return exchange(in, true, out, false, comm, stream);
            default:
                return exchange(in, true, out, true, comm, stream);
        }
    }

    // Block r of different length goes to rank r.
    Status reduce_each(const void* in, void* out, Comm comm, void* stream) {
        const auto* from = static_cast<const std::byte*>(in);
        for (Rank r = 0; r < membership_->size(); ++r) {
            const auto i = static_cast<std::size_t>(r);
            if (input_.bytes[i] == 0) continue;
            const Status status =
                library_.reduce(from + input_.at[i], r == membership_->rank() ? out : nullptr,
                                input_.bytes[i] / bytes_, dtype_, op_, r, comm, stream);
            if (status != success && status != in_progress) return status;
        }
        return success;
    }

    // in_row: the input has a block for every rank; else every receiving rank gets the one block.
    Status exchange(const void* in, bool in_row, void* out, bool out_row, Comm comm, void* stream) {
        const auto* from = static_cast<const std::byte*>(in);
        auto* to = static_cast<std::byte*>(out);
        const Rank me = membership_->rank();
        const bool rooted = traits_of(shape_.collective).rooted;
        const std::size_t own_bytes = shape_.count * bytes_;
        for (Rank r = 0; r < membership_->size(); ++r) {
            const auto i = static_cast<std::size_t>(r);
            const bool sends = !rooted || (in_row ? me == shape_.root : r == shape_.root);
            const bool receives = !rooted || (out_row ? me == shape_.root : r == shape_.root);
            const std::byte* source = in_row ? from + input_.at[i] : from;
            std::byte* target = out_row ? to + output_.at[i] : to;
            const std::size_t sent = in_row ? input_.bytes[i] : own_bytes;
            const std::size_t received = out_row ? output_.bytes[i] : own_bytes;
            if (r == me && sends && receives && source == target) continue;  // in place
            Status status = success;
            if (sends && sent > 0) status = library_.send(source, sent, dtype_, r, comm, stream);
            if (status != success && status != in_progress) return status;
            if (receives && received > 0)
                status = library_.receive(target, received, dtype_, r, comm, stream);
            if (status != success && status != in_progress) return status;
        }
        return success;
    }

    const std::shared_ptr<Membership> membership_;
    const Library& library_;
    const std::size_t ring_;
    const IntrinsicShape shape_;
    const int dtype_;
    int op_;
    const std::size_t count_;  // in NCCL's elements
    const std::size_t bytes_;  // of one of tutti's elements
    BlockRanges input_, output_;
    bool premul_ = false;
};

constexpr int bytes_of_nccl = 1;  // ncclUint8

class NcclMessages final : public DeviceStep {
public:
    NcclMessages(std::shared_ptr<Membership> membership, std::vector<DeviceMessage> messages,
                 std::size_t ring)
        : membership_(std::move(membership)), messages_(std::move(messages)), ring_(ring) {}

    Result<> enqueue(const void*, void*, void* stream,
                     const DeviceOperation::GiveUp& give_up) override {
        return membership_->submit(
            ring_, [&](Comm comm) { return enqueue(comm, stream); }, give_up);
    }

private:
    Status enqueue(Comm comm, void* stream) const {
        const Library& library = membership_->library();
        for (const DeviceMessage& m : messages_) {
            if (m.bytes == 0) continue;
            const Status status =
                m.sends ? library.send(m.memory, m.bytes, bytes_of_nccl, m.peer, comm, stream)
                        : library.receive(m.memory, m.bytes, bytes_of_nccl, m.peer, comm, stream);
            if (status != success && status != in_progress) return status;
        }
        return success;
    }

    const std::shared_ptr<Membership> membership_;
    const std::vector<DeviceMessage> messages_;
    const std::size_t ring_;
};

}  // namespace

std::unique_ptr<DeviceStep> make_messages(std::shared_ptr<Membership> membership,
                                          std::vector<DeviceMessage> messages, std::size_t ring) {
    return std::make_unique<NcclMessages>(std::move(membership), std::move(messages), ring);
}

Result<std::unique_ptr<DeviceStep>> make_step(std::shared_ptr<Membership> membership,
                                              const IntrinsicShape& shape,
                                              const Elements& elements) {
    auto made = std::make_unique<NcclStep>(std::move(membership), shape, elements);
    if (shape.factor) TUTTI_TRY(made->make_premul());
    return made;
}

}  // namespace tutti::nccl
