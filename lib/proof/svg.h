// Parts that all drawings share: their frame, their colours, text that is safe in XML.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::svg {

std::string escape(std::string_view text);

/// The same colour for a lane, or an algorithm, in every drawing; they repeat after eight.
std::string_view colour(std::size_t index);

/// The root element, a white ground and the title; end with "</svg>\n".
std::string open(int width, int height, std::string_view title);

/// The first of 1, 2 and 5 times a power of ten that cuts the range in at most so many parts.
double tick_distance(double range, int parts);

}  // namespace tutti::svg
