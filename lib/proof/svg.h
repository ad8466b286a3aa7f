// Parts that all drawings share: frame, colours, and text that is safe in XML.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::svg {

/// Text for the inside of an element. Not for an attribute: quotes stay as they are.
std::string escape(std::string_view text);

/// The colour of a lane, or an algorithm, the same in every drawing; colours repeat after eight.
std::string_view colour(std::size_t index);

/// The root element, a white ground and the title. The caller appends its drawing and "</svg>\n".
std::string open(int width, int height, std::string_view title);

/// The distance between an axis's ticks: the smallest of 1, 2 and 5 times a power of ten that
/// divides `range` into at most `parts` intervals. 1 if the range is empty.
double tick_distance(double range, int parts);

}  // namespace tutti::svg
