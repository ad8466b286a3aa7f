#include "proof/verify.h"

#include "proof/run.h"

namespace tutti {

Verdict verify(const VerifyRequest& asked,
               const std::function<Schedule(const ScheduleRequest&)>& make, uint32_t lanes) {
    VerifyRequest request = asked;
    request.in_place |= asked.collective == Collective::broadcast;
    Verdict verdict;
    SymbolicRun run(request);
    const bool sound = run.load(make, lanes);
    for (uint32_t credits = 1; credits <= request.max_credits; ++credits) {
        if (sound) run.run(credits, request.tiles ? request.tiles : credits + 2);
        verdict.problem = run.problem;
        if (run.deadlock) continue;
        verdict.ok = run.problem.empty();
        verdict.credits = credits;
        verdict.messages = run.messages;
        verdict.busiest_chunks = run.busiest;
        verdict.hops = run.hops;
        verdict.ordered = run.ordered;
        return verdict;
    }
    return verdict;
}

}  // namespace tutti
