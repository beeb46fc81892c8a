// Escapes untrusted text for HTML, and JSON for a <script>.
#pragma once

#include <string>
#include <string_view>

namespace ms::profile {

// Escapes &, <, > and quotes, replaces control characters except line breaks by blanks, and invalid UTF-8 by U+FFFD.
std::string html_text(std::string_view text);
// JSON for the content of a <script>: every '<' is escaped, so that no text can end the script.
std::string script_json(std::string_view json);

}  // namespace ms::profile
