#include "rendezvous/host_list.h"

#include <algorithm>
#include <charconv>

namespace tutti {
namespace {

constexpr std::size_t most_hosts = 65'536;
constexpr std::size_t most_digits = 9;

using Texts = std::vector<std::string>;

template <typename... Args>
ErrorResult malformed(fmt::format_string<Args...> text, Args&&... args) {
    return fail(Code::invalid, text, std::forward<Args>(args)...)
        .advice("set TUTTI_STORE, or correct the list (SLURM_STEP_NODELIST)");
}

Result<uint32_t> parse_number(std::string_view text) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.size() > most_digits || error != std::errc{} || end != text.data() + text.size())
        return malformed("'{}' in brackets is not a number", text);
    return value;
}

// "01-03" to "01", "02", "03": as many digits as the first number has.
Result<> add_range(Texts& out, std::string_view range) {
    const auto dash = range.find('-');
    const std::string_view low_text = range.substr(0, dash);
    TUTTI_ASSIGN(const uint32_t low, parse_number(low_text));
    uint32_t high = low;
    if (dash != std::string_view::npos) {
        TUTTI_ASSIGN(high, parse_number(range.substr(dash + 1)));
    }
    if (high < low) return malformed("the range '{}' ends before it begins", range);
    if (high - low >= most_hosts - out.size())
        return malformed("it has more than {} hosts", most_hosts);
    for (uint32_t number = low; number <= high; ++number)
        out.push_back(fmt::format("{:0{}}", number, low_text.size()));
    return {};
}

// Cuts the text up to the separator; the rest begins after it.
std::string_view cut(std::string_view& rest, std::size_t at) {
    const std::string_view first = rest.substr(0, at);
    rest.remove_prefix(std::min(first.size() + 1, rest.size()));
    return first;
}

// One name with its brackets: the product of their contents.
Result<Texts> expand_name(std::string_view name) {
    Texts done{""};
    while (!name.empty()) {
        const auto open = name.find('[');
        const std::string_view plain = name.substr(0, open);
        if (plain.find(']') != std::string_view::npos) return malformed("a ']' has no '['");
        Texts choices;
        if (open == std::string_view::npos) {
            name = {};
            choices.emplace_back();
        } else {
            name.remove_prefix(open + 1);
            const auto close = name.find(']');
            if (close == std::string_view::npos) return malformed("a '[' has no ']'");
            std::string_view inside = cut(name, close);
            do {
                TUTTI_TRY(add_range(choices, cut(inside, inside.find(','))));
            } while (!inside.empty());
        }
        if (done.size() * choices.size() > most_hosts)
            return malformed("it has more than {} hosts", most_hosts);
        Texts next;
        for (const std::string& begin : done)
            for (const std::string& choice : choices)
                next.push_back(fmt::format("{}{}{}", begin, plain, choice));
        done = std::move(next);
    }
    return done;
}

// The comma after the first name, outside brackets.
std::size_t end_of_name(std::string_view list) {
    bool inside = false;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i] == '[') inside = true;
        if (list[i] == ']') inside = false;
        if (list[i] == ',' && !inside) return i;
    }
    return std::string_view::npos;
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view list) {
    const auto wrong = [&](Error error) {
        return wrap(std::move(error), fmt::format("the list of hosts '{}'", list));
    };
    Texts hosts;
    std::string_view rest = list;
    do {
        const std::string_view name = cut(rest, end_of_name(rest));
        if (name.empty()) return wrong(malformed("a name is empty").value());
        auto more = expand_name(name);
        if (!more) return wrong(std::move(more).error());
        if (hosts.size() + more->size() > most_hosts)
            return wrong(malformed("it has more than {} hosts", most_hosts).value());
        hosts.insert(hosts.end(), more->begin(), more->end());
    } while (!rest.empty());
    return hosts;
}

}  // namespace tutti
