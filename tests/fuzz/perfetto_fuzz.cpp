// profile/ingest: a Perfetto trace, up to its analyses and report, exported again, and a trace of ours to a native
// trace.
#include "profile/convert.h"
#include "profile/ingest/load.h"
#include "profile/report/html_report.h"
#include "profile/sections.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "trace.pftrace", folder = fuzz::folder() / "out";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const profile::Store store = profile::load({path}, {});
    const profile::Results results = profile::analyze(store, profile::sections::every());
    profile::html_report(store, results, {"fuzz"});
    // A trace that is read, written and read again has the same number of events.
    const auto paths = profile::convert_ranks(store, folder, profile::ExportFormat::kPerfetto);
    const profile::Store again = profile::load({paths[0]}, {});
    fuzz::require(again.ranks[0]->events.size() == store.ranks[0]->events.size(), "a round trip keeps all events");
    fuzz::require(again.ranks[0]->counters.size() == store.ranks[0]->counters.size(), "and all samples");
    if (store.ranks[0]->meta.empty()) return;
    const auto native = profile::convert_ranks(store, folder, profile::ExportFormat::kNative);
    fuzz::require(profile::load({native[0]}, {}).ranks[0]->events.size() == store.ranks[0]->events.size(),
                  "a native trace of it holds all events");
  });
  return 0;
}
