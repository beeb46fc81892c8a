// What stands for the inputs of a conversion, so that a later attempt knows whether it would write the same bytes.
#pragma once

#include <string>

namespace ms::convert {

// Of a file, or of all files of a folder: path, inode, size, and the times of the last change of contents and of
// attributes, as digits. Reads no contents: a file that was written anew, moved into place or touched is another one.
// Empty for a path that is absent or empty.
std::string identity_of(const std::string& path);

}  // namespace ms::convert
