// Every collective, in each of its forms, with each argument that it can refuse.
#include <array>
#include <cstdint>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::collectives {
namespace {

/// The arguments of any collective; each takes what it knows.
struct Arguments {
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 4;
    tutti_dtype dtype = TUTTI_FLOAT32;
    tutti_op op = TUTTI_SUM;
    int root = 0;
    const std::size_t* counts = nullptr;
    const tutti_call_opts* opts = nullptr;

    const void* const* ins() const { return &in; }
};
using A = const Arguments&;
using C = tutti_comm*;
using R = tutti_request**;
using P = tutti_plan**;

struct Collective {
    const char* name;
    bool reduces, rooted, listed;  // listed: its lengths are a list of counts
    bool two_buffers;
    tutti_status (*blocking)(C, A);
    tutti_status (*start)(C, A, R);
    tutti_status (*plan)(C, A, P);
};

constexpr Collective all_collectives[] = {
    {"allreduce", true, false, false, true,
     [](C c, A a) { return tutti_allreduce(c, a.in, a.out, a.count, a.dtype, a.op); },
     [](C c, A a, R r) {
         return tutti_iallreduce(c, a.in, a.out, a.count, a.dtype, a.op, a.opts, r);
     },
     [](C c, A a, P p) { return tutti_plan_allreduce(c, a.count, a.dtype, a.op, a.opts, p); }},
    {"allreduce_multi", true, false, false, true,
     [](C c, A a) { return tutti_allreduce_multi(c, a.ins(), 1, a.out, a.count, a.dtype, a.op); },
     [](C c, A a, R r) {
         return tutti_iallreduce_multi(c, a.ins(), 1, a.out, a.count, a.dtype, a.op, a.opts, r);
     },
     [](C c, A a, P p) {
         return tutti_plan_allreduce_multi(c, 1, a.count, a.dtype, a.op, a.opts, p);
     }},
    {"broadcast", false, true, false, false,
     [](C c, A a) { return tutti_broadcast(c, a.out, a.count, a.dtype, a.root); },
     [](C c, A a, R r) { return tutti_ibroadcast(c, a.out, a.count, a.dtype, a.root, a.opts, r); },
     [](C c, A a, P p) { return tutti_plan_broadcast(c, a.count, a.dtype, a.root, a.opts, p); }},
    {"reduce", true, true, false, true,
     [](C c, A a) { return tutti_reduce(c, a.in, a.out, a.count, a.dtype, a.op, a.root); },
     [](C c, A a, R r) {
         return tutti_ireduce(c, a.in, a.out, a.count, a.dtype, a.op, a.root, a.opts, r);
     },
     [](C c, A a, P p) { return tutti_plan_reduce(c, a.count, a.dtype, a.op, a.root, a.opts, p); }},
    {"allgather", false, false, false, true,
     [](C c, A a) { return tutti_allgather(c, a.in, a.out, a.count, a.dtype); },
     [](C c, A a, R r) { return tutti_iallgather(c, a.in, a.out, a.count, a.dtype, a.opts, r); },
     [](C c, A a, P p) { return tutti_plan_allgather(c, a.count, a.dtype, a.opts, p); }},
    {"allgatherv", false, false, true, true,
     [](C c, A a) { return tutti_allgatherv(c, a.in, a.out, a.counts, nullptr, a.dtype); },
     [](C c, A a, R r) {
         return tutti_iallgatherv(c, a.in, a.out, a.counts, nullptr, a.dtype, a.opts, r);
     },
     [](C c, A a, P p) { return tutti_plan_allgatherv(c, a.counts, nullptr, a.dtype, a.opts, p); }},
    {"reduce_scatter", true, false, false, true,
     [](C c, A a) { return tutti_reduce_scatter(c, a.in, a.out, a.count, a.dtype, a.op); },
     [](C c, A a, R r) {
         return tutti_ireduce_scatter(c, a.in, a.out, a.count, a.dtype, a.op, a.opts, r);
     },
     [](C c, A a, P p) { return tutti_plan_reduce_scatter(c, a.count, a.dtype, a.op, a.opts, p); }},
    {"reduce_scatterv", true, false, true, true,
     [](C c, A a) { return tutti_reduce_scatterv(c, a.in, a.out, a.counts, a.dtype, a.op); },
     [](C c, A a, R r) {
         return tutti_ireduce_scatterv(c, a.in, a.out, a.counts, a.dtype, a.op, a.opts, r);
     },
     [](C c, A a, P p) {
         return tutti_plan_reduce_scatterv(c, a.counts, a.dtype, a.op, a.opts, p);
     }},
    {"gather", false, true, false, true,
     [](C c, A a) { return tutti_gather(c, a.in, a.out, a.count, a.dtype, a.root); },
     [](C c, A a, R r) {
         return tutti_igather(c, a.in, a.out, a.count, a.dtype, a.root, a.opts, r);
     },
     [](C c, A a, P p) { return tutti_plan_gather(c, a.count, a.dtype, a.root, a.opts, p); }},
    {"gatherv", false, true, true, true,
     [](C c, A a) {
         return tutti_gatherv(c, a.in, a.count, a.out, a.counts, nullptr, a.dtype, a.root);
     },
     [](C c, A a, R r) {
         return tutti_igatherv(c, a.in, a.count, a.out, a.counts, nullptr, a.dtype, a.root, a.opts,
                               r);
     },
     [](C c, A a, P p) {
         return tutti_plan_gatherv(c, a.count, a.counts, nullptr, a.dtype, a.root, a.opts, p);
     }},
    {"scatter", false, true, false, true,
     [](C c, A a) { return tutti_scatter(c, a.in, a.out, a.count, a.dtype, a.root); },
     [](C c, A a, R r) {
         return tutti_iscatter(c, a.in, a.out, a.count, a.dtype, a.root, a.opts, r);
     },
     [](C c, A a, P p) { return tutti_plan_scatter(c, a.count, a.dtype, a.root, a.opts, p); }},
    {"scatterv", false, true, true, true,
     [](C c, A a) {
         return tutti_scatterv(c, a.in, a.counts, nullptr, a.out, a.count, a.dtype, a.root);
     },
     [](C c, A a, R r) {
         return tutti_iscatterv(c, a.in, a.counts, nullptr, a.out, a.count, a.dtype, a.root, a.opts,
                                r);
     },
     [](C c, A a, P p) {
         return tutti_plan_scatterv(c, a.counts, nullptr, a.count, a.dtype, a.root, a.opts, p);
     }},
    {"alltoall", false, false, false, true,
     [](C c, A a) { return tutti_alltoall(c, a.in, a.out, a.count, a.dtype); },
     [](C c, A a, R r) { return tutti_ialltoall(c, a.in, a.out, a.count, a.dtype, a.opts, r); },
     [](C c, A a, P p) { return tutti_plan_alltoall(c, a.count, a.dtype, a.opts, p); }},
    {"alltoallv", false, false, true, true,
     [](C c, A a) {
         return tutti_alltoallv(c, a.in, a.counts, nullptr, a.out, a.counts, nullptr, a.dtype);
     },
     [](C c, A a, R r) {
         return tutti_ialltoallv(c, a.in, a.counts, nullptr, a.out, a.counts, nullptr, a.dtype,
                                 a.opts, r);
     },
     [](C c, A a, P p) {
         return tutti_plan_alltoallv(c, a.counts, nullptr, a.counts, nullptr, a.dtype, a.opts, p);
     }},
    {"scan", true, false, false, true,
     [](C c, A a) { return tutti_scan(c, a.in, a.out, a.count, a.dtype, a.op); },
     [](C c, A a, R r) { return tutti_iscan(c, a.in, a.out, a.count, a.dtype, a.op, a.opts, r); },
     [](C c, A a, P p) { return tutti_plan_scan(c, a.count, a.dtype, a.op, a.opts, p); }},
    {"exscan", true, false, false, true,
     [](C c, A a) { return tutti_exscan(c, a.in, a.out, a.count, a.dtype, a.op); },
     [](C c, A a, R r) { return tutti_iexscan(c, a.in, a.out, a.count, a.dtype, a.op, a.opts, r); },
     [](C c, A a, P p) { return tutti_plan_exscan(c, a.count, a.dtype, a.op, a.opts, p); }},
};

constexpr std::size_t overflowing = ~std::size_t{0};
constexpr std::size_t four_elements[] = {4};
constexpr std::size_t endless[] = {overflowing};

/// One argument that is wrong.
struct Defect {
    const char* what;
    bool (*concerns)(const Collective&);
    void (*spoil)(Arguments&);
};
constexpr auto all = [](const Collective&) { return true; };
// The first rank's exscan has no result.
constexpr auto has_output = [](const Collective& c) {
    return c.two_buffers && std::string_view(c.name) != "exscan";
};

constexpr Defect defects[] = {
    {"a dtype that there is not", all, [](Arguments& a) { a.dtype = 99; }},
    {"an operator that there is not", [](const Collective& c) { return c.reduces; },
     [](Arguments& a) { a.op = 999; }},
    {"an operator of integers on floats", [](const Collective& c) { return c.reduces; },
     [](Arguments& a) { a.op = TUTTI_BXOR; }},
    {"a root past the end", [](const Collective& c) { return c.rooted; },
     [](Arguments& a) { a.root = 7; }},
    {"a negative root", [](const Collective& c) { return c.rooted; },
     [](Arguments& a) { a.root = -1; }},
    {"more elements than memory", [](const Collective& c) { return !c.listed; },
     [](Arguments& a) { a.count = overflowing; }},
    {"a list of more elements than memory", [](const Collective& c) { return c.listed; },
     [](Arguments& a) {
         a.counts = endless;
         a.count = overflowing;
     }},
};

// These are of the buffers, which a plan has when it runs.
constexpr Defect buffer_defects[] = {
    {"no input", [](const Collective& c) { return c.two_buffers; },
     [](Arguments& a) { a.in = nullptr; }},
    {"no output", has_output, [](Arguments& a) { a.out = nullptr; }},
    {"buffers that overlap", has_output,
     [](Arguments& a) { a.out = static_cast<char*>(a.out) + sizeof(float); }},
};

class Refused {
public:
    Refused(Ledger& ledger, tutti_comm* comm) : ledger_(ledger), comm_(comm) {}

    void blocking(const Collective& c, const Defect& defect) {
        take(c, "", defect, c.blocking(comm_, spoilt(defect)));
    }
    void start(const Collective& c, const Defect& defect) {
        tutti_request* request = nullptr;
        take(c, "non-blocking ", defect, c.start(comm_, spoilt(defect), &request));
        if (request) ledger_.broken(c.name, "a refused call has left a request");
    }
    void plan(const Collective& c, const Defect& defect) {
        tutti_plan* plan = nullptr;
        take(c, "plan of ", defect, c.plan(comm_, spoilt(defect), &plan));
        if (plan) ledger_.broken(c.name, "a refused call has left a plan");
    }

private:
    Arguments spoilt(const Defect& defect) {
        Arguments arguments{.in = data_.data(), .out = data_.data(), .counts = four_elements};
        defect.spoil(arguments);
        return arguments;
    }
    void take(const Collective& c, const char* form, const Defect& defect, tutti_status status) {
        ledger_.take(std::string(form) + c.name + " with " + defect.what, status,
                     {.names = c.name, .reporter = 0});
    }

    Ledger& ledger_;
    tutti_comm* comm_;
    std::array<float, 64> data_{};
};

}  // namespace

void provoke_collective_arguments(Ledger& ledger) {
    const Alone alone(ledger);
    Refused refused(ledger, alone.comm());
    for (const Collective& c : all_collectives) {
        for (const Defect& defect : defects) {
            if (!defect.concerns(c)) continue;
            refused.blocking(c, defect);
            refused.start(c, defect);
            refused.plan(c, defect);
        }
        for (const Defect& defect : buffer_defects) {
            if (!defect.concerns(c)) continue;
            refused.blocking(c, defect);
            refused.start(c, defect);
        }
    }
}

}  // namespace errors_test::collectives
