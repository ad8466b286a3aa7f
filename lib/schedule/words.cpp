#include "schedule/words.h"

#include <fmt/format.h>

namespace tutti {

std::string_view form_name(Form form) {
    switch (form) {
        case Form::raw:
            return "raw";
        case Form::partial:
            return "partial";
        case Form::final:
            return "final";
    }
    return "?";
}

std::string describe(const Region& region, uint32_t chunks) {
    static constexpr std::string_view names[] = {"nothing", "input", "output", "scratch"};
    const auto name = names[static_cast<std::size_t>(region.space)];
    const uint32_t at = region.space == Space::scratch ? region.slot : region.chunk;
    return chunks == 1 ? fmt::format("{}[{}]", name, at)
                       : fmt::format("{}[{}..{}]", name, at, at + chunks - 1);
}

std::string describe(const Step& step) {
    std::string text;
    if (step.recv != nobody)
        text =
            fmt::format("{} {} ({})", step.keep ? "peek" : "recv", step.recv, form_name(step.in));
    if (step.local) {
        const std::string local =
            fmt::format("{} ({})", describe(step.local, step.chunks), form_name(step.local_form));
        text = text.empty()       ? local
               : step.local_first ? local + " ⊕ " + text
                                  : text + " ⊕ " + local;
    }
    if (step.out)
        text += fmt::format(" -> {} ({})", describe(step.out, step.chunks), form_name(step.result));
    if (step.send != nobody)
        text += fmt::format(", send {} ({})", step.send, form_name(step.result));
    if (step.after)
        text += fmt::format(", after lane {} step {}", step.after.lane, step.after.step);
    return text;
}

}  // namespace tutti
