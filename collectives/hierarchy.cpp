#include "collectives/hierarchy.h"

namespace tutti {
namespace {

class Composer {
public:
    Composer(const ScheduleRequest& request, const Composition& what, const Hosts& hosts)
        : r_(request),
          what_(what),
          hosts_(hosts),
          reduces_(traits_of(what.collective).reduces),
          adds_first_(reduces_ && hosts.shape().largest > 1),
          host_(hosts.host_of(request.rank)),
          me_(hosts.local_of(request.rank)),
          locals_(hosts.size_of(host_)),
          stripes_(what.one_stripe ? 1 : hosts.shape().largest),
          with_root_(hosts.host_of(request.root) == host_) {
        ScheduleRequest outer = request;
        outer.ranks = hosts.count();
        outer.rank = host_;
        outer.root = hosts.host_of(request.root);
        outer.hosts = nullptr;
        outer_ = what.outer(outer);
        share_ = outer_.chunks / static_cast<uint32_t>(outer_.lanes.size());
    }

    Schedule run() {
        Schedule schedule;
        schedule.chunks = traits_of(what_.collective).cut == Cut::whole
                              ? outer_.chunks * static_cast<uint32_t>(stripes_)
                              : outer_.chunks / static_cast<uint32_t>(hosts_.count()) *
                                    static_cast<uint32_t>(r_.ranks);
        schedule.longest_run = outer_.longest_run;
        if (me_ < stripes_ && reduces_)
            schedule.scratch_slots = finals() + (for_root() ? outer_.chunks : 0);
        for (uint32_t l = 0; l < outer_.lanes.size(); ++l) {
            lane_.clear();
            for (Rank first = 0; first < stripes_; first += locals_) {
                first_ = first;
                for (uint32_t c = l * share_; c < (l + 1) * share_; ++c) prepare(c);
                if (carries(me_))
                    for (const Step& step : outer_.lanes[l]) go_out(step);
                for (uint32_t c = l * share_; c < (l + 1) * share_; ++c) spread(c);
            }
            schedule.lanes.push_back(std::move(lane_));
        }
        return schedule;
    }

private:
    // In this round, local rank i carries stripe first_ + i.
    bool carries(Rank local) const { return first_ + local < stripes_; }
    Rank local_rank(Rank local) const { return hosts_.member(host_, local); }
    Rank ahead(Rank k) const { return (me_ + k) % locals_; }
    Rank behind(Rank k) const { return (me_ + locals_ - k) % locals_; }
    bool root() const { return traits_of(what_.collective).rooted && r_.rank == r_.root; }

    // Scratch slots: the host's partial results, the outer schedule's own, and results for the
    // root.
    uint32_t finals() const { return outer_.chunks + outer_.scratch_slots; }

    // The outer chunk c of the stripe that local rank i carries; any_chunk: the owner's host has no
    // such rank.
    uint32_t chunk(Rank local, uint32_t c) const {
        const Rank stripe = first_ + local;
        if (!carries(local)) return any_chunk;
        if (traits_of(what_.collective).cut == Cut::whole)
            return static_cast<uint32_t>(stripe) * outer_.chunks + c;
        const auto hosts = static_cast<uint32_t>(hosts_.count());
        const auto owner = static_cast<Rank>(c % hosts);
        if (stripe >= hosts_.size_of(owner)) return any_chunk;
        return c / hosts * static_cast<uint32_t>(r_.ranks) +
               static_cast<uint32_t>(hosts_.member(owner, stripe));
    }

    void prepare(uint32_t c) {
        if (what_.before == Before::reduce) {
            for (Rank k = 1; k < locals_; ++k)
                if (const uint32_t at = chunk(ahead(k), c); at != any_chunk)
                    lane_.push_back({.local = Region::input(at), .send = local_rank(ahead(k))});
            if (chunk(me_, c) != any_chunk) collect(c);
        }
        if (what_.before != Before::from_root || !with_root_) return;
        if (root()) {
            for (Rank k = 1; k < locals_; ++k)
                if (const uint32_t at = chunk(ahead(k), c); at != any_chunk)
                    lane_.push_back({.local = Region::input(at), .send = local_rank(ahead(k))});
        } else if (const uint32_t at = chunk(me_, c); at != any_chunk) {
            lane_.push_back({.recv = r_.root, .out = Region::output(at)});
        }
    }

    void collect(uint32_t c) {
        const Region mine = Region::input(chunk(me_, c));
        const Form form = reduces_ ? Form::partial : Form::raw;
        for (Rank k = 1; k < locals_; ++k)
            lane_.push_back({.recv = local_rank(behind(k)),
                             .local = k == 1 ? mine : collected(c),
                             .out = collected(c),
                             .local_form = k == 1 ? Form::raw : form,
                             .result = form});
    }

    Region collected(uint32_t c) const {
        const uint32_t at = chunk(me_, c);
        return reduces_ ? Region::scratch(c, at) : Region::output(at);
    }

    // This rank's form of one of the outer schedule's steps, for its host.
    void go_out(Step step) {
        if (chunk(me_, step.extent().chunk) == any_chunk) return;
        const bool reads_input = step.local.space == Space::input;
        const Rank stripe = first_ + me_;
        for (Rank* peer : {&step.recv, &step.send})
            if (*peer != nobody) *peer = hosts_.carrier(*peer, stripe);
        step.local = carried(step.local);
        step.out = carried(step.out);
        if (adds_first_)
            for (Form* form : {&step.in, &step.local_form, &step.result})
                if (*form == Form::raw) *form = Form::partial;
        // A host of one rank adds nothing first: the outer step widens its raw input.
        if (reads_input && locals_ == 1) step.local_form = Form::raw;
        lane_.push_back(step);
    }

    Region carried(const Region& region) const {
        if (!region) return region;
        const uint32_t c = region.chunk, at = chunk(me_, c);
        switch (region.space) {
            case Space::input:
                if (what_.before == Before::reduce && locals_ > 1) return collected(c);
                if (what_.before == Before::from_root && !root()) return Region::output(at);
                return Region::input(at);
            case Space::output:
                return for_root() ? Region::scratch(finals() + c, at) : Region::output(at);
            default:
                return Region::scratch(outer_.chunks + region.slot, at);
        }
    }

    // Whether results are for the root, so that this rank has no output for them.
    bool for_root() const { return what_.afterwards == Afterwards::to_root && !root(); }

    void spread(uint32_t c) {
        const bool to_root = what_.afterwards == Afterwards::to_root;
        if (what_.afterwards == Afterwards::nothing || (to_root && !with_root_)) return;
        const Form form = reduces_ ? Form::final : Form::raw;
        const uint32_t mine = chunk(me_, c);
        // A broadcast's root has all data, a reduction's root needs all results.
        const bool gives = !to_root || !root(), takes = to_root == root();
        for (Rank k = 1; k < locals_ && gives && mine != any_chunk; ++k) {
            const Rank to = local_rank(ahead(k));
            if (traits_of(what_.collective).rooted && (to == r_.root) != to_root) continue;
            lane_.push_back({.local = finished(c), .send = to, .local_form = form, .result = form});
        }
        for (Rank k = 1; k < locals_ && takes; ++k)
            if (const uint32_t at = chunk(behind(k), c); at != any_chunk)
                lane_.push_back({.recv = local_rank(behind(k)),
                                 .out = Region::output(at),
                                 .in = form,
                                 .result = form});
    }

    Region finished(uint32_t c) const {
        const uint32_t at = chunk(me_, c);
        if (for_root()) return Region::scratch(finals() + c, at);
        return what_.before == Before::from_root && root() ? Region::input(at) : Region::output(at);
    }

    const ScheduleRequest& r_;
    const Composition& what_;
    const Hosts& hosts_;
    const bool reduces_;
    const bool adds_first_;  // some host adds first, so the outer schedule's inputs are partial
    const Rank host_, me_, locals_, stripes_;
    const bool with_root_;
    Schedule outer_;
    uint32_t share_ = 1;  // outer chunks a lane
    Rank first_ = 0;      // the round's first stripe
    Lane lane_;
};

}  // namespace

Schedule compose(const ScheduleRequest& request, const Composition& what) {
    const Hosts one = Hosts::in_blocks(request.ranks, request.ranks);
    return Composer(request, what, request.hosts ? *request.hosts : one).run();
}

std::string one_level(Rank, const HostShape& hosts) {
    if (hosts.hosts == 0) return "it is not known which ranks share a host";
    if (hosts.hosts == 1) return "all ranks are on one host";
    return hosts.largest == 1 ? "every rank has a host of its own" : "";
}

}  // namespace tutti
