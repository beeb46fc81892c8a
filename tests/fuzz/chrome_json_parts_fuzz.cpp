// profile/ingest: text that is read in pieces by several threads gives the same result as text read as a whole. The
// first byte determines the size of the pieces.
#include "profile/ingest/chrome_json.h"
#include "tests/fuzz/reader.h"
#include "tests/support/tell_trace.h"
#include "tests/support/text_stream.h"

namespace {

using namespace ms;

std::string read(std::string_view text, const profile::ChromeJsonOptions& options) {
  profile::RankTrace trace;
  profile::FileInfo file;
  profile::ImportStats stats;
  test::TextStream stream(text, SIZE_MAX, options.threads > 1);
  std::string out = "refused";
  fuzz::read_or_refuse([&] {
    const bool is_trace = profile::read_chrome_json(stream, "trace.json", trace, file, stats, options);
    out = core::cat(is_trace, " ", file.events, " ", test::tell(trace));
    for (const std::string& line : stats.lines()) out += line;
  });
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  // Few pieces: each allocates its own window.
  const auto piece = static_cast<int64_t>(text.size() / 12 + 1 + data[0]);
  fuzz::require(read(text, {3, piece}) == read(text, {}), "the same in pieces");
  return 0;
}
