// Shortens the names of a table's column so that different names stay different.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ms::profile {

// A text per name, of at most `width` bytes if that keeps them distinct. Equal names get equal texts, different names
// different ones.
//
// Names are made readable and their middle is cut out (table.h). Names that look equal then, such as kernels of one
// template, are cut around the place where they differ. If readable_name drops the difference, or no cut of this width
// shows it, the text is the whole name. width >= 16. O(bytes log n).
std::vector<std::string> distinct_short_names(const std::vector<std::string>& names, size_t width);

}  // namespace ms::profile
