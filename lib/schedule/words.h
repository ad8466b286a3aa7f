// Steps and regions in words, for drawings and for verify's errors.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace tutti {

std::string_view form_name(Form form);
std::string describe(const Region& region, uint32_t chunks);
/// "recv 3 (raw) ⊕ input[2] -> output[2] (final), send 1"
std::string describe(const Step& step);

}  // namespace tutti
