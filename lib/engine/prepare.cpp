#include "engine/prepare.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tutti {
namespace {

// Adds inputs block by block, so that the accumulator stays in the first-level cache.
constexpr std::size_t block_bytes = 8192;

class PreparedOperation final : public Operation {
public:
    PreparedOperation(const PrepareRequest& request, std::unique_ptr<Operation> inner)
        : r_(request),
          inner_(std::move(inner)),
          raw_bytes_(request.reducer.bytes(Width::raw)),
          wide_bytes_(request.reducer.bytes(Width::partial)),
          block_(std::max<std::size_t>(1, block_bytes / wide_bytes_)),
          as_it_is_(request.inputs == 1 && !request.factor && raw_bytes_ == wide_bytes_) {
        const Reducer& sum = r_.reducer;
        constexpr Width raw = Width::raw, wide = Width::partial;
        convert_ = sum.move(raw, wide, false);
        first_ = sum.reduce(raw, raw, wide, false);
        further_ = sum.reduce(wide, raw, wide, false);
        if (r_.inputs > 1) sum_.resize(block_ * wide_bytes_);
        if (r_.factor) {
            const Reducer product = *Reducer::make(r_.dtype, Op::prod);
            multiply_ = product.reduce(r_.inputs > 1 ? wide : raw, wide, wide, false);
            factors_.resize(block_ * wide_bytes_);
            for (std::size_t i = 0; i < block_; ++i)
                std::memcpy(factors_.data() + i * wide_bytes_, r_.factor->data(), wide_bytes_);
        }
        if (r_.in_output || as_it_is_) return;
        const std::size_t bytes = r_.elements * wide_bytes_;
        prepared_ = r_.prepared ? r_.prepared->at_least(bytes) : WorkMemory::of_its_own(bytes);
    }

    void start(const Tag& tag, const void* in, void* out) override {
        inputs_ = r_.list ? static_cast<const void* const*>(in) : &in;
        if (as_it_is_) return inner_->start(tag, inputs_[0], out);
        auto* target = r_.in_output ? static_cast<std::byte*>(out) : prepared_.get();
        for (std::size_t at = 0; at < r_.elements; at += block_)
            prepare_block(at, std::min(block_, r_.elements - at), target + at * wide_bytes_);
        inner_->start(tag, target, out);
    }
    Poll progress() override { return inner_->progress(); }
    void cancel() override { inner_->cancel(); }
    void arm(bool on) override { inner_->arm(on); }
    Code health() const override { return inner_->health(); }
    bool untaken() const override { return inner_->untaken(); }
    Rank waits_for() const override { return inner_->waits_for(); }

private:
    const std::byte* input(int32_t index, std::size_t at) const {
        return static_cast<const std::byte*>(inputs_[index]) + at * raw_bytes_;
    }

    // Writes the target last, because it may be an input's own memory.
    void prepare_block(std::size_t at, std::size_t count, std::byte* target) {
        ReduceArgs args{.a = input(0, at), .count = count, .user = &r_.reducer.function()};
        for (int32_t i = 1; i < r_.inputs; ++i) {
            const bool last = i + 1 == r_.inputs && !r_.factor;
            args.b = input(i, at);
            args.dst = last ? target : sum_.data();
            (i == 1 ? first_ : further_)(args);
            args.a = args.dst;
        }
        args.dst = target;
        args.b = r_.factor ? factors_.data() : nullptr;
        if (r_.factor)
            multiply_(args);
        else if (r_.inputs == 1)
            convert_(args);
    }

    const PrepareRequest r_;
    const std::unique_ptr<Operation> inner_;
    const std::size_t raw_bytes_, wide_bytes_;
    const std::size_t block_;  // elements
    const bool as_it_is_;      // the inner operation reads the input directly
    ReduceFn convert_ = nullptr, first_ = nullptr, further_ = nullptr, multiply_ = nullptr;
    std::vector<std::byte> sum_, factors_;  // one block each
    SharedBytes prepared_;
    const void* const* inputs_ = nullptr;  // valid during start() only
};

}  // namespace

std::unique_ptr<Operation> prepare(const PrepareRequest& request,
                                   std::unique_ptr<Operation> inner) {
    return std::make_unique<PreparedOperation>(request, std::move(inner));
}

}  // namespace tutti
