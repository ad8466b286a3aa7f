#include "proof/svg.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace tutti::svg {
namespace {

constexpr std::string_view colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                        "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};

}  // namespace

std::string escape(std::string_view text) {
    std::string safe;
    for (char c : text) {
        if (c == '&')
            safe += "&amp;";
        else if (c == '<')
            safe += "&lt;";
        else if (c == '>')
            safe += "&gt;";
        else
            safe += c;
    }
    return safe;
}

std::string_view colour(std::size_t index) {
    return colours[index % std::size(colours)];
}

std::string open(int width, int height, std::string_view title) {
    return fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}">)"
        "\n<style>text{{font:12px sans-serif}}</style>\n"
        R"(<rect width="100%" height="100%" fill="white"/>)"
        "\n<text x=\"10\" y=\"20\" font-weight=\"bold\">{2}</text>\n",
        width, height, escape(title));
}

double tick_distance(double range, int parts) {
    if (!(range > 0)) return 1;
    const double power = std::pow(10, std::floor(std::log10(range / parts)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (range / (factor * power) <= parts) return factor * power;
    return 10 * power;
}

}  // namespace tutti::svg
