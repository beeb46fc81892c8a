// profile/ingest: text read as a Chrome trace (or compressed), up to its analyses, Chrome JSON and report; a trace of
// ours also back to a native trace.
#include "profile/analysis/critical_path.h"
#include "profile/convert.h"
#include "profile/ingest/load.h"
#include "profile/report/html_report.h"
#include "profile/sections.h"
#include "tests/fuzz/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  static const std::string path = fuzz::folder() / "trace.json", folder = fuzz::folder() / "json";
  test::write_file(path, std::string(fuzz::text_of(data, size)));
  fuzz::read_or_refuse([&] {
    const profile::Store store = profile::load({path}, {});
    profile::Sections all = profile::sections::every();
    all.push_back(&profile::sections::kTensorboardSteps);
    const profile::Results results = profile::analyze(store, all);
    profile::html_report(store, results, {"fuzz"});
    profile::critical_path(*store.ranks[0], profile::view_devices(*store.ranks[0]), {});
    // A trace that is read, written and read again has the same number of events.
    const auto paths = profile::convert_ranks(store, folder, profile::ExportFormat::kJson);
    const profile::Store again = profile::load({paths[0]}, {});
    fuzz::require(again.ranks[0]->events.size() == store.ranks[0]->events.size(), "a round trip keeps all events");
    if (store.ranks[0]->meta.empty()) return;
    const auto native = profile::convert_ranks(store, folder, profile::ExportFormat::kNative);
    fuzz::require(profile::load({native[0]}, {}).ranks[0]->events.size() == store.ranks[0]->events.size(),
                  "a native trace of it holds all events");
  });
  return 0;
}
