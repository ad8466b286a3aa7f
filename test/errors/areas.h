// The kinds of errors, each with a function that provokes them and hands them to a ledger. The
// files' own names lie in a namespace each, as a build may compile several files as one.
#pragma once

#include "errors/ledger.h"

namespace errors_test {

namespace null_pointers {
void provoke_null_pointers(Ledger& ledger);
void provoke_missing_arguments(Ledger& ledger);
}  // namespace null_pointers
namespace trainer_nulls {
void provoke_null_pointers_of_trainer(Ledger& ledger);
}
namespace settings {
void provoke_settings(Ledger& ledger);
void provoke_environment(Ledger& ledger);
}  // namespace settings
namespace collectives {
void provoke_collective_arguments(Ledger& ledger);
}
namespace calls {
void provoke_call_options(Ledger& ledger);
void provoke_single_rank_calls(Ledger& ledger);
}  // namespace calls
namespace joining {
void provoke_joining(Ledger& ledger);
}
namespace mismatches {
void provoke_mismatches(Ledger& ledger);
}
namespace failures {
void provoke_failures(Ledger& ledger);
}
namespace regrouping {
void provoke_regrouping(Ledger& ledger);
}
namespace handles {
void provoke_handles(Ledger& ledger);
}
namespace growing {
void provoke_growing(Ledger& ledger);
}
namespace messages {
void provoke_messages(Ledger& ledger);
}
namespace trainer_models {
void provoke_trainer_models(Ledger& ledger);
}
namespace trainer_calls {
void provoke_trainer_calls(Ledger& ledger);
}
namespace checkpoints {
void provoke_checkpoints(Ledger& ledger);
}
namespace faces {
void provoke_faces(Ledger& ledger);
}
namespace parallel {
void provoke_parallel(Ledger& ledger);
}

}  // namespace errors_test
