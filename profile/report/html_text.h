// Text inside HTML, and JSON inside a <script>: harmless whatever it says.
#pragma once

#include <string>
#include <string_view>

namespace ms::profile {

// &, <, > and quotes escaped, control characters except line breaks replaced by blanks, always valid UTF-8.
std::string html_text(std::string_view text);
// JSON as the content of a <script>: every '<' becomes an escape, so that nothing looks like its end.
std::string script_json(std::string_view json);

}  // namespace ms::profile
