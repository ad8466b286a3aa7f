// Parts that all drawings share: frame, colours, and text that is safe in XML.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::svg {

std::string escape(std::string_view text);

/// The colour of a lane, or an algorithm, the same in every drawing; colours repeat after eight.
std::string_view colour(std::size_t index);

/// The root element, a white ground and the title; end with "</svg>\n".
std::string open(int width, int height, std::string_view title);

/// The smallest of 1, 2 and 5 times a power of ten that cuts the range into at most so many parts.
double tick_distance(double range, int parts);

}  // namespace tutti::svg
