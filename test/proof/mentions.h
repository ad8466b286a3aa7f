// The tests of the verifier search its verdicts for words.
#pragma once

#include <string>

#include "proof/verify.h"

namespace tutti::test {

inline bool mentions(const Verdict& verdict, const std::string& text) {
    return verdict.problem.find(text) != std::string::npos;
}

}  // namespace tutti::test
